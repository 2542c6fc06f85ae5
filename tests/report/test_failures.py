"""What a trace says of the exception that ended its run: the call, its arguments, the last ops."""

from __future__ import annotations

import gc
import json
import traceback
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl
from tests.programs.reading import floats
from torchlens.report.failure import FailureReport


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class Shrinks(nn.Module):
    """Fails in the third pass of its loop."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        for step in range(5):
            x = torch.tanh(self.inner(x))
            x = x[:, : 4 - step]
        return x


class Falls(nn.Module):
    """Goes another way where an inner module raises, and fails afterwards by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong = nn.Linear(9, 9)
        self.right = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        try:
            x = self.wrong(x)
        except RuntimeError:
            x = self.right(x)
        raise LookupError("on its own")


class Ends(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def failed(model: nn.Module, *inputs: Any, **options: Any) -> tl.Trace:
    """The trace of a forward that raises, whatever it raises."""
    try:
        with tl.capture(model, **options) as trace:
            model(*inputs)
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)
        return trace
    raise AssertionError("the model did not raise")


def report(model: nn.Module, *inputs: Any, **options: Any) -> FailureReport:
    found = failed(model, *inputs, **options).error
    assert found is not None
    return found


def source_of(line: Any) -> str:
    return Path(line.file).read_text().splitlines()[line.line - 1].strip()


def test_shapes_that_do_not_match_in_linear() -> None:
    error = report(Net(), floats(3, 5))
    assert (error.type_name, error.call.func_name, error.call.composites) == ("RuntimeError", "linear", ())
    given = [(each.position, each.shape, each.dtype, each.param) for each in error.call.arguments]
    assert given == [
        ("0", (3, 5), "float32", None),
        ("1", (8, 4), "float32", "body.0.weight"),
        ("2", (8,), "float32", "body.0.bias"),
    ]
    assert error.lines[-1].text == source_of(error.lines[-1]) == "return self.head(self.body(x))"
    printed = str(error).splitlines()
    assert printed[:2] == [
        "raised     RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x5 and 4x8)",
        "in         body.0 (Linear), call body.0:1",
    ]
    assert printed[5:] == [
        "call       linear",
        "             0: 3×5 float32 cpu, input_1:1",
        "             1: 8×4 float32 cpu, parameter body.0.weight",
        "             2: 8 float32 cpu, parameter body.0.bias",
        "",
        "last ops   output       at",
        "input_1:1  3×5 float32",
    ]


def test_a_cat_of_wrong_sizes_names_the_op_behind_each_item() -> None:
    error = report(Ends(lambda x: torch.cat([x.relu(), x[1:]], dim=1)), floats(3, 4))
    assert error.call.func_name == "cat"
    shown = [line.strip() for _, line in error.facts if line.startswith("  ")]
    assert shown == ["0.0: 3×4 float32 cpu, relu_1:1", "0.1: 2×4 float32 cpu, getitem_1:1", "dim: 1"]


def test_an_index_error_in_user_code_has_a_line_and_no_call() -> None:
    def picks(x: Tensor) -> Tensor:
        return [x.relu()][int(x.numel())]

    error = report(Ends(picks), floats(3))
    assert (error.type_name, error.call) == ("IndexError", None)
    assert error.lines[-1].function == "picks"
    assert error.lines[-1].text == "return [x.relu()][int(x.numel())]"
    assert "call" not in dict(error.facts)
    assert [op.label for op in error.last_ops] == ["input_1:1", "relu_1:1"]


@pytest.mark.parametrize("kind", ["forward_pre", "forward"])
def test_an_exception_in_a_hook_is_told_from_one_in_the_forward(kind: str) -> None:
    model = Net()

    def hook(module: nn.Module, *given: Any) -> None:
        torch.ones(2).matmul(torch.ones(3))

    getattr(model.body[1], f"register_{kind}_hook")(hook)
    error = report(model, floats(3, 4))
    assert dict(error.facts)["in"] == "a hook of body.1 (ReLU), call body.1:1"
    assert error.call.func_name == "matmul"
    assert error.lines[-1].text == "torch.ones(2).matmul(torch.ones(3))"


def test_a_failing_op_inside_a_function_that_torch_wrote() -> None:
    error = report(Ends(lambda x: F.normalize(x.int())), floats(3, 4))
    assert error.call.func_name == "linalg_vector_norm"
    assert error.call.composites[0] == "normalize"
    assert dict(error.facts)["call"] == "linalg_vector_norm, through normalize and norm"
    assert "2: [1]" in str(error)
    assert error.lines[-1].function == "<lambda>"


def test_a_python_written_function_that_raises_by_itself_is_the_call() -> None:
    error = report(Ends(lambda x: F.grid_sample(x, x, mode="none")), floats(1, 1, 4, 4))
    assert (error.type_name, error.call.func_name) == ("ValueError", "grid_sample")
    assert "mode: 'none'" in str(error)


class Squares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, size: int) -> Tensor:
        return x.square().reshape(size)


def test_a_user_s_own_function_is_the_call_and_its_line_is_named() -> None:
    error = report(Ends(lambda x: Squares.apply(x.sin(), 7)), floats(3))
    assert error.lines[-1].text == "return x.square().reshape(size)"
    assert error.call is not None and error.call.func_name in ("apply", "reshape")
    assert "sin_1:1" in str(error)


def test_a_user_s_operator_is_the_call_and_its_line_is_named() -> None:
    library = torch.library.Library("torchlens_tests_failures", "DEF")
    library.define("thirds(Tensor x, int size) -> Tensor")

    def thirds(x: Tensor, size: int) -> Tensor:
        return x.div(3).reshape(size)

    library.impl("thirds", thirds, "CompositeExplicitAutograd")
    error = report(
        Ends(lambda x: torch.ops.torchlens_tests_failures.thirds(x.sin(), 7)), floats(3).requires_grad_()
    )
    assert error.call.func_name == "thirds"
    assert [(each.position, each.shape, each.text) for each in error.call.arguments] == [
        ("0", (3,), "Tensor"),
        ("1", None, "7"),
    ]
    assert error.lines[-1].text == "return x.div(3).reshape(size)"
    assert "0: 3 float32 cpu, sin_1:1" in str(error)


def test_an_error_in_python_s_own_modules_is_told_by_the_user_s_line() -> None:
    error = report(Ends(lambda x: json.loads("no json")), floats(3))
    assert (error.type_name, error.lines[-1].function) == ("JSONDecodeError", "<lambda>")


def test_an_assertion_of_the_user() -> None:
    def checked(x: Tensor) -> Tensor:
        y = x.log()
        assert not y.isnan().any(), "NaN in y"
        return y

    error = report(Ends(checked), floats(3))
    assert (error.type_name, error.message.partition("\n")[0], error.call) == (
        "AssertionError",
        "NaN in y",
        None,
    )
    assert error.lines[-1].text == 'assert not y.isnan().any(), "NaN in y"'
    last = error.last_ops[-1]
    assert (last.label, last.output) == ("any_1:1", "scalar bool")
    assert last.place.endswith('checked: assert not y.isnan().any(), "NaN in y"')


def test_a_failure_in_the_third_pass_of_a_loop() -> None:
    error = report(Shrinks(), floats(2, 4))
    assert dict(error.facts)["in"] == "inner (Linear), call inner:3"
    labels = ["tanh_1:1", "getitem_1:1", "linear_1:2", "tanh_1:2", "getitem_1:2"]
    assert [op.label for op in error.last_ops] == labels
    assert [op.output for op in error.last_ops] == ["2×4 float32"] * 4 + ["2×3 float32"]
    assert error.last_ops[2].place.startswith("inner: linear.py:")
    assert "0: 2×3 float32 cpu, getitem_1:2" in str(error)


def test_an_interrupt() -> None:
    def interrupted(x: Tensor) -> Tensor:
        x.sin()
        raise KeyboardInterrupt

    error = report(Ends(interrupted), floats(3))
    assert (error.type_name, error.message, error.call) == ("KeyboardInterrupt", "", None)
    assert error.facts[0] == ("raised", "KeyboardInterrupt")
    assert error.last_ops[-1].label == "sin_1:1"


def test_the_call_behind_an_exception_that_followed_from_it() -> None:
    def wraps(x: Tensor) -> Tensor:
        try:
            return torch.stack([x, x[0]])
        except RuntimeError as error:
            raise ValueError("bad shapes") from error

    error = report(Ends(wraps), floats(3, 4))
    assert (error.type_name, error.call.func_name) == ("ValueError", "stack")
    assert error.call.raised.startswith("RuntimeError: stack expects each tensor to be equal size")
    assert dict(error.facts)["call"].startswith("stack, which raised RuntimeError: stack expects")


def test_a_call_whose_failure_was_overcome_is_not_told_of() -> None:
    error = report(Falls(), floats(2, 4))
    assert (error.type_name, error.call) == ("LookupError", None)
    assert dict(error.facts)["in"] == "the root (Falls), call :1"


def test_a_call_of_an_earlier_capture_is_not_told_of() -> None:
    def fails(x: Tensor) -> Tensor:
        return x.reshape(7)

    with pytest.raises(RuntimeError, match="invalid for input") as held, tl.capture(fails):
        fails(floats(3))

    def raises_it(x: Tensor) -> Tensor:
        raise held.value

    error = report(Ends(raises_it), floats(3))
    assert error.call is None


@dataclass
class Settings:
    size: int
    like: Tensor | None

    def __repr__(self) -> str:
        raise AssertionError("no code of the user's is to run")


def endless(items: list[Any]) -> list[Any]:
    items.append(items)
    return items


class Nasty:
    """Its text cannot be had."""

    def __repr__(self) -> str:
        raise ValueError("no text")

    __str__ = __repr__


@pytest.mark.parametrize(
    ("function", "texts"),
    [
        pytest.param(lambda x: x + Nasty(), ["1: <tests", "Nasty>"], id="an object without a text"),
        pytest.param(
            lambda x: torch.cat(endless([x])), ["0.0: 3 float32 cpu, input_1:1", "0.1: <"], id="itself in it"
        ),
        pytest.param(
            lambda x: x[Settings(2, x)], ["1.size: 2", "1.like: 3 float32 cpu, input_1:1"],
            id="a dataclass",
        ),
        pytest.param(lambda x: x + Settings(1, None), ["1: <tests", "Settings>"], id="a dataclass's text"),
        pytest.param(lambda x: x.view([1] * 5000), ["0: [1, 1, 1, 1, 1, 1, 1, 1, ...]"], id="a long list"),
        pytest.param(
            lambda x: torch.cat([x] * 100 + [x.sum()], dim=0), ["  0.11: 3 float32", "and 90 arguments more"],
            id="many",
        ),
        pytest.param(
            lambda x: x[x.long(), :, 5, 6], ["1.0: 3 int64 cpu, long_1:1", "slice(None"], id="index"
        ),
        pytest.param(lambda x: x.to_sparse().matmul(x[:2]), ["0: 3 float32 cpu, to_sparse_1:1"], id="sparse"),
        pytest.param(lambda x: torch.nested.nested_tensor([x, x[:2]]).matmul(x), ["0: 2×"], id="nested"),
        pytest.param(
            lambda x: torch.vmap(lambda row: row @ torch.ones(3))(x.outer(x)[:, :2]),
            ["call       matmul", "0: 2 float32 cpu, of no recorded op"],
            id="inside a transform",
        ),
        pytest.param(lambda x: x.add_(torch.ones(2)), ["call       add_", "0: 3 float32"], id="in place"),
        pytest.param(lambda x: x.complex_of_nothing(), ["AttributeError"], id="no such method"),
        pytest.param(lambda x: x.bfloat16().view(2), ["0: 3 bfloat16 cpu, bfloat16_1:1"], id="bfloat16"),
        pytest.param(lambda x: x.to("meta") + x[:2].to("meta"), ["0: 3 float32 meta, to_1:1"], id="meta"),
    ],
)  # fmt: skip
def test_hard_arguments(function: Callable[..., Any], texts: list[str]) -> None:
    text = str(report(Ends(function), floats(3)))
    assert [each for each in texts if each not in text] == [], text


@pytest.mark.parametrize("options", [{"save": []}, {"save": "linear_1"}], ids=["nothing", "one"])
def test_a_capture_that_keeps_little_tells_the_same(options: dict[str, Any]) -> None:
    little, whole = report(Shrinks(), floats(2, 4), **options), report(Shrinks(), floats(2, 4))
    assert little.facts[:2] == whole.facts[:2]
    assert little.call == whole.call
    assert little.last_ops == whole.last_ops


def test_a_recursion_without_end_shows_its_innermost_lines_only() -> None:
    def descends(x: Tensor) -> Tensor:
        return descends(x + 1)

    error = report(Ends(descends), floats(2))
    assert error.type_name == "RecursionError"
    assert len(error.lines) == 8


def test_a_failed_trace_holds_neither_frames_nor_what_they_held() -> None:
    class Held:
        pass

    seen: list[weakref.ref[Any]] = []

    def fails(x: Tensor) -> Tensor:
        held = Held()
        alone = torch.ones(3).numpy().copy()
        seen.extend([weakref.ref(held), weakref.ref(alone)])
        return x.reshape(7)

    gc.collect()
    gc.disable()
    try:
        trace = failed(Ends(fails), floats(3))
        assert trace.error is not None and trace.error.call is not None
        assert [each() for each in seen] == [None, None]
    finally:
        gc.enable()


def test_the_exception_leaves_as_the_model_raised_it() -> None:
    raised = ValueError("as it is")

    def fails(x: Tensor) -> Tensor:
        raise raised

    def captured(function: Callable[..., Any], x: Tensor) -> None:
        with tl.capture(function):
            function(x)

    for door in (tl.trace, captured):
        with pytest.raises(ValueError, match="as it is") as caught:
            door(fails, floats(3))
        assert caught.value is raised
        assert (raised.args, raised.__cause__, raised.__context__) == (("as it is",), None, None)
        assert not hasattr(raised, "__notes__")


def test_what_cannot_be_found_out_does_not_hide_the_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object) -> object:
        raise OSError("no source")

    monkeypatch.setattr("linecache.getline", broken)
    monkeypatch.setattr("torchlens._capture.post_mortem.plain", broken)
    with pytest.raises(RuntimeError, match="cannot be multiplied"), tl.capture(model := Net()) as trace:
        model(floats(3, 5))
    monkeypatch.undo()
    assert (trace.error.lines, trace.error.call, trace.error.type_name) == ((), None, "RuntimeError")


def test_it_is_shown_by_summary_and_print_and_as_html() -> None:
    trace = failed(Net(), floats(3, 5))
    for text in (str(trace.summary()), str(trace), str(trace.error)):
        assert "1: 8×4 float32 cpu, parameter body.0.weight" in text
        assert "last ops" in text
    assert "parameter body.0.weight" in trace.error._repr_html_()


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_asked(width: int) -> None:
    from torchlens.report.text import as_text

    for model in (Net(), Shrinks()):
        trace = failed(model, floats(3, 5 if isinstance(model, Net) else 4))
        text = as_text(trace.error, width)
        assert max(map(len, text.splitlines())) <= width
        assert trace.error.last_ops[-1].label in text


def test_a_complete_run_has_no_error() -> None:
    trace = tl.trace(Net(), floats(3, 4))
    assert trace.error is None
    assert "last ops" not in str(trace.summary())
