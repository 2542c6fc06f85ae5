"""Programs of single calls into torch's C code that write in place, each in a way of its own."""

from __future__ import annotations

import torch
from torch import Tensor


def grid(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    values = torch.arange(1, torch.Size(shape).numel() + 1, dtype=torch.float32).reshape(shape)
    return (values * (1 - 2j)).to(dtype) if dtype.is_complex else values.to(dtype)


def in_place_chain(x: Tensor) -> Tensor:
    return x.clone().add_(1).mul_(2).sub_(3).neg_().clamp_(-4, 4).sqrt_().zero_().fill_(2)


def views_of_views(x: Tensor) -> Tensor:
    y = x.clone()
    row = y[1]
    tail = row[1:]
    tail.mul_(10)
    y.t()[0].add_(100)
    one = tail[::2]
    one.zero_()
    return y + row + 1


def base_after_view(x: Tensor) -> Tensor:
    y = x.clone()
    first = y[0]
    a = y * 1
    first.fill_(7)
    b = y * 1
    y.view(-1)[1::3] = -1
    return a + b + y


def dtype_view(x: Tensor) -> Tensor:
    y = x.clone()
    bits = y.view(torch.int32)
    a = y + 0
    bits[0] = 0
    b = y + 0
    y.view(torch.uint8)[1, 3] = 64
    return a + b + y + bits


def conjugate_view(x: Tensor) -> Tensor:
    y = x * 1
    c = y.conj()
    before = c + 0
    c.mul_(2j)
    after = y + 0
    y[0] = 3 + 1j
    return before + after + c


def negative_view(x: Tensor) -> Tensor:
    y = x * 1
    n = y.conj().imag
    before = n + 0
    n.mul_(2)
    after = y + 0
    y.real.add_(1)
    n[0] = 5
    return before + after.real + n + y.imag


def expanded(x: Tensor) -> Tensor:
    y = x[:, :1].clone()
    wide = y.expand(3, 4)
    a = wide + 0
    y.mul_(2)
    b = wide + 0
    y.add_(wide[:, :1].clone())
    return a + b + wide


def zero_size(x: Tensor) -> Tensor:
    y = x.clone()
    none = y[:0]
    none.add_(1)
    none.zero_()
    y[3:] = 5
    y.add_(1)
    return y + none.sum()


def mask_changed_later(x: Tensor) -> Tensor:
    y = x.clone()
    mask = y > 4
    y[mask] = 0
    mask.logical_not_()
    y[mask] = -1
    y.masked_fill_(mask, 3)
    mask.zero_()
    return y + mask


def index_changed_later(x: Tensor) -> Tensor:
    y = x.clone()
    at = torch.tensor([0, 2])
    y[at] = 50
    at.add_(-1)
    y[:, at] = 60
    y[at.abs_(), at] += 5
    at.fill_(0)
    return y + at.sum()


def index_list(x: Tensor) -> Tensor:
    y = x.clone()
    rows = [0, 2]
    y[rows] = 0
    rows.append(1)
    y[rows, 1] = 5
    y[None, ..., 0] = 2
    y[1, [0, 1]] = 9
    return y + 1


def out_argument(x: Tensor) -> Tensor:
    y = x.clone()
    torch.add(x, 1, out=y)
    values, indices = y.new_zeros(3), torch.zeros(3, dtype=torch.int64)
    torch.max(x, 1, out=(values, indices))
    torch.mul(values, 2, out=values)
    torch.mul(x[0], 0, out=y[1])
    return y.sum() + values + indices


def foreach(x: Tensor) -> Tensor:
    parts = [x[0].clone(), x[1].clone(), x.clone()]
    torch._foreach_add_(parts, 1)
    torch._foreach_mul_(parts, [2, 3, 4])
    torch._foreach_sqrt_(parts)
    torch._foreach_copy_(parts[:2], [parts[2][0], parts[2][1]])
    torch._foreach_zero_(parts)
    return parts[0] + parts[2]


def assigned_data(x: Tensor) -> Tensor:
    y = x.clone()
    a = y + 0
    y.data = x * 5
    b = y + 0
    y.add_(1)
    y.data = x[0] * 2
    return y + a + b


def new_shapes(x: Tensor) -> Tensor:
    y = x.clone()
    y.unsqueeze_(0)
    y.add_(1)
    y.squeeze_(0)
    y.t_()
    y.mul_(2)
    y.transpose_(0, 1)
    y.swapaxes_(0, 1)
    y.swapdims_(1, 0)
    y.as_strided_((2, 2), (1, 4))
    y.zero_()
    return y + 1


def resized(x: Tensor) -> Tensor:
    y = x.clone()
    y.resize_(2, 3)
    y.add_(1)
    y.resize_(3, 2).fill_(3)
    y.resize_as_(x)
    return y + 0


def given_storage(x: Tensor) -> Tensor:
    y, z = x.clone(), x * 2
    y.add_(1)
    y.set_(z)
    y.mul_(3)
    z.add_(1)
    return y + z


def scattered(x: Tensor) -> Tensor:
    y = x.clone()
    at = torch.tensor([[0, 1], [1, 2]])
    y.scatter_(0, at, 50)
    y.scatter_add_(1, at, x)
    y.scatter_reduce_(0, at, x, "amax")
    y.index_put_((at[0], at[1]), x[0, 0])
    y.index_put_((at[0],), x[0], accumulate=True)
    y.put_(at, x[:2, :2])
    y.masked_scatter_(y > 3, x)
    y.masked_fill_(y > 5, 1)
    return y + 0


def indexed(x: Tensor) -> Tensor:
    y = x.clone()
    at = torch.tensor([2, 0])
    y.index_copy_(0, at, x[:2] * 10)
    y.index_fill_(1, at, 3)
    y.index_add_(-1, at, x[:, :2])
    y.index_reduce_(0, at, x[:2], "prod")
    at.zero_()
    return y + 0


def mapped(x: Tensor) -> Tensor:
    y = x.clone()
    y.map_(x, lambda a, b: a * b)
    y.apply_(lambda a: a + 1)
    return y + 0


def numbers_and_diagonals(x: Tensor) -> Tensor:
    y = x.clone()
    y.fill_diagonal_(0)
    y.diagonal().add_(5)
    y.triu_()
    y.copy_(x)
    y.copy_(x[0])
    y.unfold(1, 2, 2)[0] = 1
    y.unbind()[2].mul_(0)
    y.split(2, 1)[1].add_(9)
    y.bernoulli_(0.5)
    y.uniform_().exp_()
    y.addmm_(x, x.t() @ x)
    y.lerp_(x, 0.5)
    return y + 0


def operators(x: Tensor) -> Tensor:
    y = x.clone()
    y += 1
    y -= x
    y *= 3
    y /= 2
    y **= 2
    y //= 1
    y %= 7
    whole = (y * 1).int()
    whole &= 6
    whole |= 1
    whole ^= 3
    whole <<= 2
    whole >>= 1
    return y + whole


def written_input(x: Tensor) -> Tensor:
    y = x[0]
    x.mul_(2)
    z = y + 1
    y.sub_(1)
    return x + z


def source_and_target_overlap(x: Tensor) -> Tensor:
    y = x.clone()
    y[0] = y[1] * 2
    y[:, 0].copy_(y[:, 1])
    y[1:] = y[:-1].clone()
    y.mul_(y)
    return y + 0


def several_outputs(x: Tensor) -> Tensor:
    y = x.clone()
    low, high = y.chunk(2, 1)
    values, indices = torch.sort(y)
    low.detach().zero_()
    high.detach().mul_(-1)
    indices.fill_(1)
    return y + values + indices


def activations(x: Tensor) -> Tensor:
    y = (x - 6).clone()
    y.relu_()
    torch.relu_(y)
    torch.sigmoid_(y)
    torch._C._nn.hardtanh_(y, -1.0, 0.7)
    torch._C._nn.leaky_relu_(y)
    torch.dropout_(y, 0.5, True)
    return y + 0


PROGRAMS = [
    in_place_chain, views_of_views, base_after_view, dtype_view, expanded, zero_size, mask_changed_later,
    index_changed_later, index_list, out_argument, foreach, assigned_data, new_shapes, resized,
    scattered, indexed, mapped, numbers_and_diagonals, operators, written_input, source_and_target_overlap,
    several_outputs, activations,
]  # fmt: skip
