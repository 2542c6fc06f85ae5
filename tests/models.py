"""Tiny models, each named by what it shows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

# ---- places in the code: loops, reuse, recursion -------------------------------------------------


class Looped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.tanh(x) * 0.5
        return x


class Unrolled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(x) * 0.5
        x = torch.tanh(x) * 0.5
        return x


class ResidualBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.first(x)
        x = x + self.second(x)
        return x


class ReusedBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = ResidualBlock()

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.block(x)
        return x


class StackedBlocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ResidualBlock() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class ReusedRelu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(x)
        x = self.relu(x - 1)
        x = x * 2
        return self.relu(x)


class TiedWeights(nn.Module):
    """Embedding and output head use one weight; the input is a batch of token ids."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embed(ids))


class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 3), nn.ReLU())

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return (self.encoder(left) * self.encoder(right)).sum(-1)


class Wrapper(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class SharedByTwoParents(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        shared = nn.Linear(4, 4)
        self.left = Wrapper(shared)
        self.right = Wrapper(shared)

    def forward(self, x: Tensor) -> Tensor:
        return self.right(self.left(x))


class CallsItself(nn.Module):
    """A module whose forward calls the same module, three deep."""

    def forward(self, x: Tensor, depth: int = 3) -> Tensor:
        x = torch.tanh(x)
        return self(x, depth - 1) * 2 if depth > 1 else x


class RecursiveFunction(nn.Module):
    def descend(self, x: Tensor, depth: int) -> Tensor:
        return x if depth == 0 else torch.sin(self.descend(x * 2, depth - 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.descend(x, 3)


class BranchesOnValues(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        while x.abs().max() > 0.5:
            x = x / 2
        if (x > 0).any():
            x = torch.exp(x)
        return x


class SumsHeads(nn.Module):
    """A generator expression runs the heads, builtin `sum` adds them."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(4, 2) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return sum(head(x) for head in self.heads)


class WalksGenerators(nn.Module):
    def halves(self, x: Tensor) -> Iterator[Tensor]:
        for part in x.chunk(2, dim=-1):
            yield torch.sigmoid(part)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([*map(torch.cos, self.halves(x)), *[torch.sin(h) for h in self.halves(x)]], dim=-1)


class LoopsOverParameters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.eye(4) * k for k in (1.0, 0.5, 0.25))

    def forward(self, x: Tensor) -> Tensor:
        for w in self.weights:
            x = torch.tanh(x @ w)
        return x


class BareParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.frozen


# ---- hooks, parametrizations, indirect calls -----------------------------------------------------


def add_one(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    return output + 1


def halve_input(module: nn.Module, args: Any) -> Any:
    return (args[0] * 0.5, *args[1:])


class Hooked(nn.Module):
    """User hooks that change what a module takes and gives."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.linear.register_forward_pre_hook(halve_input)
        self.linear.register_forward_hook(add_one)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = self.linear(x)
        return x


def weight_normed() -> nn.Module:
    norm = torch.nn.utils.parametrizations.weight_norm
    return nn.Sequential(norm(nn.Linear(4, 4)), nn.ReLU(), norm(nn.Linear(4, 4)))


def spectral_normed() -> nn.Module:
    return nn.Sequential(torch.nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), nn.Tanh())


class CallsForwardDirectly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear.forward(x) + self.linear(x)


class ForwardInC(nn.Module):
    """No Python frame lies between the module call and its op."""

    forward = staticmethod(torch.tanh)


class UsesForwardInC(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tanh = ForwardInC()

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = self.tanh(x)
        return x


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.3))
        self.use_reentrant = use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(self.block, x, use_reentrant=self.use_reentrant)
        x = checkpoint(self.block, x, use_reentrant=self.use_reentrant)
        return x


class TransformInLoop(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = torch.func.vmap(lambda row: torch.tanh(row) * row.sum())(x)
        return x + torch.func.grad(lambda t: (t**2).sum())(x)


class HasScriptedChild(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scripted = torch.jit.trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.ones(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = self.scripted(x)
        return x


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


class CustomBackward(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Doubled.apply(torch.sin(x)) + 1


@torch.no_grad()
def frozen_scale(x: Tensor) -> Tensor:
    return x.detach().abs().amax() + 1


class SwitchesModes(nn.Module):
    """Grad mode, autocast and a decorated helper change in the middle of a forward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            mask = x > 0
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = self.linear(x)
        return torch.where(mask, low.float(), x) / frozen_scale(x)


# ---- buffers, views, writes ----------------------------------------------------------------------


class CountsInPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            self.count.add_(1)
        return x + self.count


class CountsOnTwoLines(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        x = x - self.count
        self.count.add_(2)
        return x + self.count


class ReassignsBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("h", torch.zeros(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            self.h = torch.tanh(self.h.detach() + x)
        return self.h * 2


class WritesThroughViews(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        c = torch.zeros_like(x)
        c[..., :-1] = x[..., 1:]
        first, rest = c[0], c[1:]
        first.add_(1).mul_(2)
        rest[:, ::2] += x[1:, ::2]
        c[c > 2] = 0.5
        return torch.sin(c) + first


class WritesEveryWay(nn.Module):
    """In-place activation, `out=`, a change of geometry in place, and a write into the input."""

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(x * 1, inplace=True) + 0
        total = torch.empty(len(x), 4)
        torch.add(y.detach(), 1, out=total)
        y.transpose_(0, 1)
        if not x.requires_grad:
            x.mul_(3)
        return y.T * total + x


class CachesKeys(nn.Module):
    """Slices of one cache are written step by step, the part filled so far is read."""

    def forward(self, x: Tensor) -> Tensor:
        cache = torch.zeros(len(x), 4)
        steps = []
        for t in range(len(x)):
            cache[t] = x[t].detach() * 2
            steps.append(cache[: t + 1].sum(0) + x[t])
        return torch.stack(steps)


class SeveralOutputs(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        low, high = x.split(2, dim=-1)
        values, indices = torch.max(x, dim=-1)
        top = torch.topk(high, 1, dim=-1)
        return low, values, indices, top.values, *x.unbind(0)


class MakesTensors(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        noise = torch.randn(x.shape) + torch.rand_like(x) * torch.bernoulli(torch.full_like(x, 0.5))
        return x + noise + torch.arange(4) + torch.tensor([1.0, 0, 0, 1]) + torch.eye(3, 4)


class ReadsValues(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        scale = float(x.detach().mean()) + x.detach().sum().item()
        back = torch.from_numpy(x.detach().numpy().copy())
        return x * scale + back + len(x.detach().flatten().tolist())


class KeepsTables(nn.Module):
    """Tables made once and kept: by `lru_cache`, by `cache`, in a dict, in its class."""

    shift = torch.ones(4)
    made: dict[tuple[int, int], Tensor] = {}

    @lru_cache(maxsize=2)  # noqa: B019 - which keeps the module, too
    def positions(self, size: int, *, start: int) -> Tensor:
        return torch.arange(start, start + size, dtype=torch.float32)

    @staticmethod
    @cache
    def scales(size: int) -> tuple[Tensor, Tensor]:
        return torch.full((size,), 2.0), torch.full((size,), 0.5)

    @property
    def weights(self) -> Tensor:
        return self.scales(4)[1]

    def forward(self, x: Tensor) -> Tensor:
        key = (len(x), x.shape[-1])
        if key not in self.made:
            self.made[key] = torch.zeros(key)
        x = x + self.positions(4, start=1) + self.made[key] + self.shift
        return x * self.scales(4)[0] * self.weights


# ---- library layers ------------------------------------------------------------------------------


def normalized_convolution() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Dropout(0.4),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


class CrossAttends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, kdim=3, vdim=5, batch_first=True)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.attention(query, key, value)[0]


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def sequence_first_encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 1, enable_nested_tensor=False)


class StepsThroughTime(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(len(x), 4)
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
        return h


class Raises(nn.Module):
    """Fails in the second of three layers."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.inner = Thrower(error)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.inner(self.linear(x)))


class Thrower(nn.Module):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: Tensor) -> Tensor:
        torch.tanh(x)
        raise self.error
