"""What is one layer, and with how many passes: the grouping page, row by row and statement by statement."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tests.programs.rows_of_functions
import tests.programs.rows_of_modules  # noqa: F401 - both fill CHECKS
from tests import models
from tests.programs.page import CHECKS, ROWS
from tests.programs.reading import (
    compiled,
    computed,
    floats,
    op_labels,
    parent_labels,
    passes_of,
    run_labels,
    traced,
)


@pytest.mark.parametrize("text", ROWS)
def test_row(text: str) -> None:
    CHECKS[text]()


def test_every_row_of_the_page_has_its_test() -> None:
    assert set(CHECKS) == set(ROWS)
    assert len(ROWS) == len(set(ROWS)) == 48


# ---- scope ---------------------------------------------------------------------------------------


def test_a_module_that_calls_itself_is_one_scope_with_a_call_per_depth() -> None:
    trace = traced(models.CallsItself())
    assert op_labels(trace) == "tanh_1:1 tanh_1:2 tanh_1:3 mul_1:1 mul_1:2"
    assert [op.module_call.label for op in computed(trace)] == [":1", ":2", ":3", ":2", ":1"]
    assert trace.modules[""].num_calls == 3


def test_module_calls_have_labels_and_keep_their_ops() -> None:
    trace = traced(models.ReusedBlock())
    second = trace["block:2"]
    assert second.label == "block:2"
    assert [op.label for op in second.ops] == ["add_1:2", "add_2:2"]
    assert [op.label for op in trace["block.first:2"].ops] == ["linear_1:2"]
    assert [op.label for op in second.outputs] == ["add_2:2"]
    assert [op.label for op in second.inputs] == ["add_2:1"]


def test_pass_number_of_a_module_called_again_is_its_call_number() -> None:
    trace = traced(models.Siamese(), floats(2, 4), floats(2, 4))
    for op in trace["relu_1"].ops:
        assert op.module_call.label == f"encoder.1:{op.pass_number}"


def test_a_forward_called_directly_belongs_to_the_callers_scope() -> None:
    trace = traced(models.CallsForwardDirectly())
    assert op_labels(trace) == "linear_1:1 linear_2:1 add_1:1"
    assert [op.module.address for op in computed(trace)] == ["", "linear", ""]
    assert trace.modules["linear"].num_calls == 1


# ---- call site -----------------------------------------------------------------------------------


def test_two_calls_on_one_line_are_two_places() -> None:
    assert run_labels(lambda a: torch.sin(a) + torch.sin(a)) == "sin_1:1 sin_2:1 add_1:1"


def test_torch_functions_written_in_python_are_part_of_the_chain() -> None:
    def run(x: Tensor) -> Tensor:
        for _ in range(2):
            x = F.normalize(x)
        return F.normalize(x)

    trace = traced(run)
    types = [op.type for op in computed(trace)]
    assert len(types) % 3 == 0 and len(types) >= 9
    once = types[: len(types) // 3]
    assert types == once * 3
    assert passes_of(trace, "truediv") == {"truediv_1": 2, "truediv_2": 1}
    assert {op.composites for op in computed(trace)} >= {("normalize",)}


def test_lambdas_and_partials_are_part_of_the_chain() -> None:
    wave = functools.partial(lambda x, k: torch.sin(x) * k, k=2)

    def run(x: Tensor) -> Tensor:
        return wave(wave(x)) + wave(x)

    expected = "sin_1:1 mul_1:1 sin_2:1 mul_2:1 sin_3:1 mul_3:1 add_1:1"
    assert run_labels(run) == expected


def test_a_while_condition_of_several_ops_is_one_place_each() -> None:
    def run(x: Tensor) -> Tensor:
        while x.sum() < 16 and x.amax() < 100:
            x = x + 1
        return x

    rounds = [f"sum_1:{k} lt_1:{k} amax_1:{k} lt_2:{k} add_1:{k}" for k in (1, 2)]
    assert run_labels(run) == " ".join([*rounds, "sum_1:3 lt_1:3"])


def test_a_chained_comparison_is_two_places() -> None:
    def run(x: Tensor) -> bool:
        low, middle, high = x.amin(), x.mean(), x.amax()
        return bool(low < middle < high)

    assert passes_of(traced(run), "lt") == {"lt_1": 1, "lt_2": 1}


def test_the_copies_of_a_finally_body_are_one_place() -> None:
    def run(x: Tensor) -> Tensor:
        for k in range(3):
            try:
                if k == 1:
                    raise KeyError(k)
            except KeyError:
                x = torch.cos(x)
            finally:
                x = torch.sin(x)
        return x

    assert run_labels(run) == "sin_1:1 cos_1:1 sin_1:2 sin_1:3"


def test_a_generator_belongs_to_the_line_that_resumes_it() -> None:
    def waves(x: Tensor) -> Iterator[Tensor]:
        while True:
            x = torch.sin(x)
            yield x

    def run(x: Tensor) -> Tensor:
        steps = waves(x)
        first = next(steps)
        for _ in range(2):
            first = torch.cos(next(steps))
        return first

    assert run_labels(run) == "sin_1:1 sin_2:1 cos_1:1 sin_2:2 cos_1:2"


def test_mutual_recursion_folds() -> None:
    def even(x: Tensor, depth: int) -> Tensor:
        x = torch.sin(x)
        return odd(x, depth - 1) if depth else x

    def odd(x: Tensor, depth: int) -> Tensor:
        x = torch.cos(x)
        return even(x, depth - 1) if depth else x

    assert run_labels(lambda x: even(x, 4)) == "sin_1:1 cos_1:1 sin_1:2 cos_1:2 sin_1:3"


def test_recursion_from_two_lines_of_the_recursive_function_folds() -> None:
    def tree(x: Tensor, depth: int) -> Tensor:
        if depth == 0:
            return torch.sin(x)
        left = tree(x, depth - 1)
        right = tree(x, depth - 1)
        return left + right

    trace = traced(lambda x: tree(x, 2))
    assert op_labels(trace) == "sin_1:1 sin_1:2 add_1:1 sin_1:3 sin_1:4 add_1:2 add_1:3"


def test_nested_decorated_helpers_are_no_recursion() -> None:
    @torch.no_grad()
    def inner(x: Tensor) -> Tensor:
        return torch.sin(x)

    @torch.no_grad()
    def outer(x: Tensor) -> Tensor:
        x = inner(x)
        return inner(x)

    assert run_labels(lambda x: outer(x)) == "sin_1:1 sin_2:1"


def test_equal_code_of_two_files_is_two_places() -> None:
    source = "def wave(x):\n    return torch.sin(x)"
    waves = [compiled(source, name)["wave"] for name in ("first.py", "second.py")]
    assert waves[0].__code__ == waves[1].__code__, "file names are not part of a code object's equality"

    def run(x: Tensor) -> Tensor:
        for wave in waves * 2:
            x = wave(x)
        return x

    assert run_labels(run) == "sin_1:1 sin_2:1 sin_1:2 sin_2:2"


def test_code_that_is_made_again_is_the_same_place() -> None:
    def run(x: Tensor) -> Tensor:
        for _ in range(2):
            x = compiled("def wave(x):\n    return torch.sin(x)", "again.py")["wave"](x)
            x = (lambda t: torch.cos(t))(x)
        return x

    assert run_labels(run) == "sin_1:1 cos_1:1 sin_1:2 cos_1:2"


# ---- operation and output slot -------------------------------------------------------------------


def test_two_functions_called_at_one_place_are_two_layers() -> None:
    def run(x: Tensor) -> Tensor:
        for function in (torch.sin, torch.cos, torch.sin):
            x = function(x)
        return x

    assert run_labels(run) == "sin_1:1 cos_1:1 sin_1:2"


def test_each_output_slot_is_a_layer() -> None:
    def run(x: Tensor) -> Tensor:
        for _ in range(2):
            values, indices = torch.max(x, dim=-1)
            x = x + values[:, None]
        return x

    trace = traced(run)
    assert passes_of(trace, "max") == {"max_1": 2, "max_2": 2}
    assert [op.output_slot for op in trace["max_2"].ops] == [1, 1]
    assert trace["max_1:2"].call_index == trace["max_2:2"].call_index


def test_arguments_and_shapes_are_no_evidence() -> None:
    def run(x: Tensor) -> Tensor:
        for dim in (-1, 0):
            x = x.sum(dim)
        return x

    assert run_labels(run) == "sum_1:1 sum_1:2"


# ---- no Python frame between the module and the op -----------------------------------------------


class CallsTwice(nn.Module):
    def __init__(self, forward_in_c: Callable[..., Any]) -> None:
        super().__init__()
        self.inner = nn.Module()
        self.inner.forward = forward_in_c

    def forward(self, *steps: tuple[Any, ...]) -> None:
        for arguments in steps:
            self.inner(*arguments)


@pytest.mark.parametrize(
    ("forward_in_c", "steps", "expected"),
    [
        pytest.param(torch.tanh, [()] * 2, "tanh_1:1 tanh_1:2", id="one op"),
        pytest.param(torch.sum, [(0,), (0,)], "sum_1:1 sum_1:2", id="equal arguments"),
        pytest.param(torch.sum, [(0,), (1,)], "sum_1:1 sum_2:1", id="other arguments"),
    ],
)
def test_ops_without_a_frame_go_by_position(forward_in_c: Any, steps: list[Any], expected: str) -> None:
    x = floats(2, 4)
    model = CallsTwice(forward_in_c)
    assert op_labels(traced(model, *[(x, *extra) for extra in steps])) == expected


def test_positions_within_one_module_call_are_apart() -> None:
    x = floats(2, 4)
    model = CallsTwice(functools.partial(functools.reduce, torch.add))
    trace = traced(model, ([x, x, x],), ([x, x, x],))
    assert op_labels(trace) == "add_1:1 add_2:1 add_1:2 add_2:2"


# ---- buffers -------------------------------------------------------------------------------------


def test_a_buffer_written_once_is_two_layers() -> None:
    class Once(models.CountsInPlace):
        def forward(self, x: Tensor) -> Tensor:
            self.count.add_(1)
            return x + self.count

    trace = traced(Once())
    assert op_labels(trace) == "buffer_1:1 add_1:1 buffer_2:1 add_2:1"
    assert parent_labels(trace["buffer_2:1"]) == ["add_1:1"]
    assert parent_labels(trace["add_2:1"]) == ["input_1:1", "buffer_2:1"]
    assert [op.label for op in trace.buffers["count"].versions] == ["buffer_1:1", "buffer_2:1"]


def test_a_buffer_assigned_in_a_loop_is_one_layer_with_its_starting_value() -> None:
    trace = traced(models.ReassignsBuffer(), floats(3, 4))
    step = "detach_1:{0} add_1:{0} tanh_1:{0} buffer_1:{1}"
    assert op_labels(trace) == " ".join(["buffer_1:1", step.format(1, 2), step.format(2, 3), "mul_1:1"])
    assert trace["buffer_1"].is_buffer


def test_one_line_that_writes_two_buffers_makes_layers_of_each() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", torch.zeros(4))
            self.register_buffer("b", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            for buffer in (self.a, self.b):
                buffer.add_(1)
            return x + self.a + self.b

    trace = traced(Two())
    assert set(passes_of(trace, "buffer").values()) == {1}
    assert len(passes_of(trace, "buffer")) == 4
    assert passes_of(trace, "add")["add_1"] == 2


def test_running_statistics_get_a_version_per_call() -> None:
    trace = traced(nn.BatchNorm1d(4), floats(3, 4))
    for name, writer in (("running_mean", "batch_norm_1:1"), ("num_batches_tracked", "add_1:1")):
        start, new = trace.buffers[name].versions
        assert parent_labels(start) == [] and parent_labels(new) == [writer]
        assert start.kind == new.kind == "buffer"


# ---- hooks and parametrizations ------------------------------------------------------------------


def test_a_hook_on_a_module_called_from_two_lines_is_two_layers() -> None:
    class Calls(models.Wrapper):
        def forward(self, x: Tensor) -> Tensor:
            x = self.inner(x)
            return self.inner(x)

    model = Calls(nn.Linear(4, 4))
    model.inner.register_forward_hook(models.add_one)
    trace = traced(model)
    assert op_labels(trace) == "linear_1:1 add_1:1 linear_1:2 add_2:1"
    assert [op.module.address for op in computed(trace)] == ["inner", "", "inner", ""]


def test_hooks_and_pre_hooks_belong_to_the_callers_scope() -> None:
    trace = traced(models.Hooked())
    assert [op.module.address for op in computed(trace)] == ["", "linear", ""] * 2


def test_hooks_of_both_kinds_see_keyword_arguments_too() -> None:
    def double(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        return args, {"x": kwargs["x"] * 2}

    def negate(module: nn.Module, args: Any, kwargs: dict[str, Any], output: Tensor) -> Tensor:
        return -output

    class Calls(models.Wrapper):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(2):
                x = self.inner(x=x)
            return x

    model = Calls(models.Wrapper(nn.Tanh()))
    model.inner.register_forward_pre_hook(double, with_kwargs=True)
    model.inner.register_forward_hook(negate, with_kwargs=True)
    assert op_labels(traced(model)) == "mul_1:1 tanh_1:1 neg_1:1 mul_1:2 tanh_1:2 neg_1:2"


def test_hooks_of_the_root_are_ops_too() -> None:
    model = nn.Linear(4, 4)
    model.register_forward_pre_hook(models.halve_input)
    model.register_forward_hook(models.add_one)
    assert op_labels(traced(model)) == "mul_1:1 linear_1:1 add_1:1"


def test_weight_norm_hooks_of_two_layers_of_a_sequential_are_apart() -> None:
    with pytest.warns(FutureWarning, match="weight_norm"):
        layers = [torch.nn.utils.weight_norm(nn.Linear(4, 4)) for _ in range(2)]
    trace = traced(nn.Sequential(*layers))
    assert op_labels(trace) == "weight_norm_1:1 linear_1:1 weight_norm_2:1 linear_2:1"


def test_parametrizations_are_modules_of_their_own() -> None:
    trace = traced(models.weight_normed())
    assert op_labels(trace) == "weight_norm_1:1 linear_1:1 relu_1:1 weight_norm_2:1 linear_2:1"
    names = [trace[f"weight_norm_{n}"].module.address for n in (1, 2)]
    assert names == ["0.parametrizations.weight.0", "2.parametrizations.weight.0"]


# ---- other limits --------------------------------------------------------------------------------


def test_calls_made_by_one_c_function_are_passes_of_one_layer() -> None:
    def run(*xs: Tensor) -> Tensor:
        return functools.reduce(torch.add, xs)

    assert run_labels(run, *floats(4, 4)) == "add_1:1 add_1:2 add_1:3"


def test_transforms_on_two_lines_are_two_layers() -> None:
    def run(x: Tensor) -> Tensor:
        x = torch.func.vmap(torch.sin)(x)
        return torch.func.vmap(torch.sin)(x)

    assert run_labels(run) == "vmap_1:1 vmap_2:1"


def test_the_trace_says_which_rule_grouped_it() -> None:
    assert traced(models.Looped()).options.grouping_policy["detector"] == "callsite_v1"
