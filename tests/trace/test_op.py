"""Every attribute of an op."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs.reading import floats


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor, *, scale: float = 2.0) -> tuple[Tensor, Tensor]:
        hidden = F.normalize(self.norm(self.linear(x)), dim=-1)
        low, high = hidden.split(2, dim=-1)
        if low.sum().item() > 100 or bool(high.sum() > 100):
            return low, high
        low = low.mul(scale)
        return 1 + low, torch.clamp(input=high, min=0.0)


@pytest.fixture
def trace() -> tl.Trace:
    torch.manual_seed(0)
    return tl.trace(Mixed(), floats(3, 4), input_kwargs={"scale": 3.0})


def test_ops_come_in_capture_order_with_consecutive_indices(trace: tl.Trace) -> None:
    assert [op.index for op in trace.ops] == list(range(len(trace.ops)))
    calls = [op.call_index for op in trace.ops]
    assert calls == sorted(calls)


def test_names_of_an_op(trace: tl.Trace) -> None:
    op = trace["linear_1:1"]
    assert (op.label, op.pass_number, op.kind, op.func_name, op.type, op.operation) == (
        "linear_1:1", 1, "call", "linear", "linear", "linear",
    )  # fmt: skip
    assert op.func is F.linear
    assert (op.title, repr(op)) == ("linear_1:1", "<Op linear_1:1 (3, 4) float32>")
    assert op.layer == trace.layers["linear_1"]


def test_kinds(trace: tl.Trace) -> None:
    kinds = [op.kind for op in trace.ops]
    assert kinds[0] == "input" and kinds[-2:] == ["output", "output"]
    assert {op.kind for op in trace.ops} == {"input", "call", "buffer", "output"}
    assert all(op.func is None and op.duration_ns is None for op in trace.ops if op.kind != "call")
    assert [op.name for op in trace.ops if op.kind == "buffer"][:1] == ["norm.num_batches_tracked"]


def test_kinds_beyond_calls() -> None:
    trace = tl.trace(models.TransformInLoop(), floats(3, 4))
    assert [op.is_boundary for op in trace.ops if op.type in ("vmap", "grad")] == [True] * 3
    assert trace["vmap_1:1"].kind == "boundary" and trace["add_1"].is_boundary is False


def test_outputs_of_one_call_share_its_index(trace: tl.Trace) -> None:
    first, second = trace["split_1:1"], trace["split_2:1"]
    assert first.call_index == second.call_index
    assert (first.output_slot, second.output_slot) == (0, 1)
    assert isinstance(first.duration_ns, int) and second.duration_ns is None
    assert second.flops is None and "split_1:1" in second.flops_reason


def test_composites_are_the_functions_torch_wrote_in_python(trace: tl.Trace) -> None:
    inside = {op.type for op in trace.ops if op.composites[:1] == ("normalize",)}
    assert {"clamp_min", "expand_as", "truediv"} <= inside or {"clamp_min", "expand_as", "div"} <= inside
    assert trace["linear_1:1"].composites == () and trace["split_1:1"].composites == ("split",)


def test_shape_dtype_device_bytes(trace: tl.Trace) -> None:
    op = trace["linear_1"]
    assert (op.shape, op.dtype, op.device, op.nbytes) == ((3, 4), torch.float32, torch.device("cpu"), 48)
    assert op.requires_grad is True and trace.inputs[0].requires_grad is False


def test_arguments_refer_to_ops_parameters_and_buffers(trace: tl.Trace) -> None:
    x, weight, bias = trace["linear_1"].args
    assert (x.op, x.param, x.buffer) == (trace.inputs[0], None, None)
    assert (weight.op, weight.param, bias.param) == (
        None,
        trace.params["linear.weight"],
        trace.params["linear.bias"],
    )
    assert [weight.label, weight.shape, weight.dtype] == ["linear.weight", (4, 4), torch.float32]
    norm = trace["batch_norm_1"]
    mean = next(arg for arg in norm.args if getattr(arg, "buffer", None) is not None)
    assert mean.buffer == trace.buffers["norm.running_mean"]
    assert mean.param is None
    assert {buffer.address for buffer in norm.buffers} == {"norm.running_mean", "norm.running_var"}
    assert [param.address for param in norm.params] == ["norm.weight", "norm.bias"]


def test_arguments_keep_numbers_and_keywords(trace: tl.Trace) -> None:
    split = trace["split_1:1"]
    assert (split.args[1:] == (2,) and split.kwargs == {"dim": -1}) or split.args[1:] == (2, -1)
    clamp = trace.outputs[1].parents[0]
    assert clamp.func_name == "clamp" and clamp.args == ()
    assert clamp.kwargs["input"].op == trace["split_2:1"] and clamp.kwargs["min"] == 0.0
    add = trace["radd_1"]
    assert add.func_name == "__radd__" and add.operation == "add"


def test_arguments_in_containers_keep_the_container() -> None:
    def join(x: Tensor) -> Tensor:
        return torch.cat([x, x * 2], dim=0) + x[1:2, [0]].sum()

    trace = tl.trace(join, floats(3, 4))
    (tensors,) = trace["cat_1"].args
    assert [ref.label for ref in tensors] == ["input_1:1", "mul_1:1"]
    assert trace["getitem_1"].args[1] == (slice(1, 2, None), [0])


def test_a_namedtuple_of_tensors_is_an_argument() -> None:
    from tests.programs.containers import Pair

    trace = tl.trace(lambda x: torch.stack(Pair(x, x + 1)), floats(3))
    (pair,) = trace["stack_1"].args
    assert [ref.label for ref in pair] == ["input_1:1", "add_1:1"]


def test_a_size_is_an_argument() -> None:
    trace = tl.trace(lambda x: x.view(x.flatten().shape), floats(3, 4))
    assert trace["view_1"].args[1] == torch.Size([12])


def test_parents_and_children_are_each_once_in_order_of_use() -> None:
    trace = tl.trace(lambda x: torch.where((y := x * 2) > x, y + y, x), floats(3))
    assert [op.label for op in trace["where_1"].parents] == ["gt_1:1", "add_1:1", "input_1:1"]
    assert [op.label for op in trace["mul_1"].children] == ["gt_1:1", "add_1:1"]
    assert [op.label for op in trace["add_1"].parents] == ["mul_1:1"]


def test_places(trace: tl.Trace) -> None:
    op = trace["linear_1:1"]
    assert op.module == trace.modules["linear"] and op.module_call == trace.module_calls["linear:1"]
    frame = op.call_site[-1]
    assert frame.function.endswith("forward") and frame.file.endswith("linear.py") and frame.line > 0
    split = trace["split_1:1"].call_site
    assert split[0].function.endswith("forward")
    assert split[0].file == __file__
    assert trace.inputs[0].call_site == () and trace.inputs[0].module_call is None


def test_the_columns_of_a_place_are_those_of_the_call(trace: tl.Trace) -> None:
    frame = trace["split_1:1"].call_site[0]
    lines, start = inspect.getsourcelines(Mixed.forward)
    assert "hidden.split" in lines[frame.line - start]
    if sys.version_info >= (3, 11):
        line = lines[frame.line - start].encode()
        assert line[frame.column : frame.end_column] == b"hidden.split(2, dim=-1)"


def test_site_keys_name_module_type_slot_and_ordinal(trace: tl.Trace) -> None:
    assert trace["linear_1:1"].graph.site_key == "linear/linear/0/0"
    assert trace["split_2:1"].graph.site_key == "/split/1/0"


@pytest.mark.parametrize(
    ("context", "grad", "autocast"),
    [
        (torch.enable_grad, True, {}),
        (torch.no_grad, False, {}),
        (torch.inference_mode, False, {}),
        (lambda: torch.autocast("cpu", torch.bfloat16), True, {"cpu": "bfloat16"}),
    ],
    ids=["grad", "no_grad", "inference_mode", "autocast"],
)
def test_the_context_of_an_op(context: Any, grad: bool, autocast: dict[str, str]) -> None:
    with context():
        trace = tl.trace(nn.Linear(4, 4), floats(3, 4))
    op = trace["linear_1"]
    assert (op.grad_enabled, dict(op.autocast)) == (grad, autocast)


def test_the_default_dtype_and_device_stand_with_factories() -> None:
    try:
        torch.set_default_dtype(torch.float64)
        trace = tl.trace(lambda: torch.ones(3), ())
    finally:
        torch.set_default_dtype(torch.float32)
    assert trace["ones_1"].context.default_dtype == "float64"
    assert trace["ones_1"].context.default_device == "cpu"


@pytest.mark.parametrize(
    ("leave", "names"),
    [
        (lambda y: y.sum().item(), ("item",)),
        (lambda y: bool(y.sum() > 0), ("__bool__",)),
        (lambda y: float(y.sum()), ("__float__",)),
        (lambda y: int(y.sum()), ("__int__",)),
        (lambda y: y.sum().tolist(), ("tolist",)),
        (lambda y: y.sum().numpy(), ("numpy",)),
        (lambda y: torch.equal(y.sum(), y.sum()), ("equal",)),
        (lambda y: [y.sum().item() for _ in range(1)] and y, ("item",)),
    ],
    ids=["item", "bool", "float", "int", "tolist", "numpy", "equal", "comprehension"],
)
def test_reads_are_where_a_value_left_for_python(leave: Any, names: tuple[str, ...]) -> None:
    def read(x: Tensor) -> Tensor:
        y = x * 2
        leave(y)
        return y + 1

    trace = tl.trace(read, floats(3))
    reads = [op.reads for op in trace.ops if op.reads]
    assert reads[:1] == [names]
    assert "item" not in {op.type for op in trace.ops}


def test_is_inplace_is_of_the_op_that_wrote() -> None:
    def write(x: Tensor) -> Tensor:
        y = x * 2
        y.add_(1)
        y[0] = 0
        torch.sin(x, out=y)
        y.t_()
        return y.cos()

    trace = tl.trace(write, floats(3, 4))
    assert {op.type: op.is_inplace for op in trace.ops} == {
        "input": False, "mul": False, "add": True, "setitem": True, "sin": True, "t": True, "cos": False,
        "output": False,
    }  # fmt: skip


def test_a_call_that_gives_back_its_input_is_its_maker_from_then_on() -> None:
    trace = tl.trace(lambda x: F.dropout(x.sin(), 0.5, False).cos(), floats(3))
    assert [op.label for op in trace["cos_1"].parents] == ["dropout_1:1"]
    assert trace["dropout_1"].is_inplace is False


def test_flops_of_a_matrix_product(trace: tl.Trace) -> None:
    op = trace["linear_1"]
    assert (op.macs, op.flops, op.flops_reason) == (3 * 4 * 4, 2 * 3 * 4 * 4, None)
    assert trace["split_1"].flops == 0
    assert trace.inputs[0].flops == 0


def test_what_is_unknown_has_a_reason() -> None:
    trace = tl.trace(lambda x: torch.linalg.qr(x), floats(3, 3))
    op = trace.ops[1]
    assert op.flops is None and op.macs is None and op.flops_reason


def test_an_attribute_that_gives_a_tensor_has_its_name() -> None:
    trace = tl.trace(lambda x: (x.T.mT, x.data, (x + 1j).real, (x + 1j).imag), floats(3, 4))
    names = [op.func_name for op in trace.ops if op.kind == "call"]
    assert names == ["T", "mT", "data", "__add__", "real", "__add__", "imag"]


@pytest.mark.parametrize("name", ["outt", "relu", "grad_fn", "_private"])
def test_an_op_has_no_other_attributes(trace: tl.Trace, name: str) -> None:
    assert not hasattr(trace[0], name)


def test_attributes_can_not_be_set_by_accident(trace: tl.Trace) -> None:
    with pytest.raises(AttributeError):
        trace[0].lable = "x"
