"""`tl.trace`: ways to give inputs, and what is refused."""

from __future__ import annotations

import functools
from collections import namedtuple
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs.reading import floats, op_labels
from torchlens.errors import InputError, NestedCaptureError, OptionError, UnsupportedModelError

Pair = namedtuple("Pair", "low high")


def received(given: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any], tl.Trace]:
    seen: list[Any] = []

    class Notes(nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> None:
            seen.append((args, kwargs))

    trace = tl.trace(Notes(), given, **kwargs)
    return *seen[0], trace


A, B = floats(2), floats(3)


@pytest.mark.parametrize(
    ("given", "args"),
    [
        (A, (A,)),
        ((A, B), (A, B)),
        ((A,), (A,)),
        (((A, B),), ((A, B),)),
        ([A, B], ([A, B],)),
        ({"a": A}, ({"a": A},)),
        (Pair(A, B), (Pair(A, B),)),
        ((Pair(A, B), 3), (Pair(A, B), 3)),
        ((), ()),
        (None, (None,)),
        ((None,), (None,)),
        ("text", ("text",)),
        (5, (5,)),
        (torch.Size([2]), (torch.Size([2]),)),
        (((),), ((),)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_a_plain_tuple_is_several_arguments(given: Any, args: tuple[Any, ...]) -> None:
    found, kwargs, _ = received(given)
    assert kwargs == {} and len(found) == len(args)
    assert all(one is other or one == other for one, other in zip(found, args))
    assert [type(one) for one in found] == [type(other) for other in args]


def test_the_caller_s_objects_reach_the_model() -> None:
    batch = {"a": [A]}
    (found,), kwargs, trace = received(batch, input_kwargs={"b": (batch_b := [B])})
    assert found is batch and kwargs["b"] is batch_b
    assert [op.shape for op in trace.inputs] == [(2,), (3,)]


def test_a_packed_sequence_is_one_argument() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.rand(3, 2), torch.rand(2, 2)])
    model = nn.LSTM(2, 3)
    for given in (packed, (packed,)):
        trace = tl.trace(model, given)
        assert [op.label for op in trace.inputs] == ["input_1:1", "input_2:1"]
        assert torch.equal(trace.output[0].data, model(packed)[0].data)
        assert trace.provenance.verified


class Endless:
    def __iter__(self) -> Any:
        raise AssertionError("walked")


def test_an_object_that_is_no_known_container_is_not_walked() -> None:
    (found,), _, trace = received(endless := Endless())
    assert found is endless and list(trace.inputs) == []
    assert repr(trace.module_calls[0].args[0]) == f"<{__name__}.Endless>"


def test_a_list_that_contains_itself_is_an_argument() -> None:
    value: list[Any] = [A]
    value.append(value)
    (found,), _, trace = received(value)
    assert found is value and [op.label for op in trace.inputs] == ["input_1:1"]


def test_keys_may_be_any_object() -> None:
    key = Endless()
    (found,), _, trace = received({key: A, Endless(): B})
    assert found[key] is A and len(trace.inputs) == 2


@pytest.mark.parametrize(
    ("model", "root"),
    [
        (models.Looped(), "Looped"),
        (models.Looped().forward, "Looped"),
        (functools.partial(models.Looped()), "Looped"),
        (functools.partial(models.Looped().forward), "Looped"),
        (torch.tanh, "tanh"),
        (lambda x: x.tanh(), "<lambda>"),
        (functools.partial(torch.mul, other=2), "partial"),
    ],
    ids=[
        "module",
        "bound method",
        "partial",
        "partial of a method",
        "torch function",
        "lambda",
        "partial function",
    ],
)
def test_any_callable_has_a_root(model: Any, root: str) -> None:
    trace = tl.trace(model, floats(2, 4))
    assert (trace.modules[""].address, trace.modules[""].type) == ("", root)
    assert trace.status == "complete" and len(trace.ops) >= 2


@pytest.mark.parametrize(
    "model", [None, 5, "resnet", [nn.ReLU()], torch.zeros(2)], ids=lambda m: type(m).__name__
)
def test_what_can_not_be_called_is_refused(model: Any) -> None:
    with pytest.raises(InputError, match=f"model is a {type(model).__name__}, which cannot be called"):
        tl.trace(model, A)


UNSUPPORTED: dict[str, Any] = {
    "script": lambda model: torch.jit.script(model),
    "jit trace": lambda model: torch.jit.trace(model, torch.ones(1, 2)),
    "exported program": lambda model: torch.export.export(model, (torch.ones(1, 2),)),
    "exported module": lambda model: torch.export.export(model, (torch.ones(1, 2),)).module(),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", UNSUPPORTED)
def test_models_that_do_not_run_as_python_are_refused(name: str) -> None:
    model = UNSUPPORTED[name](nn.Linear(2, 2))
    with pytest.raises(UnsupportedModelError, match="trace the eager"):
        tl.trace(model, torch.ones(1, 2))
    with pytest.raises(UnsupportedModelError, match="trace the eager"), tl.capture(model):
        raise AssertionError("ran")


def test_a_trace_inside_a_trace_is_refused_and_the_outer_goes_on() -> None:
    def nested(x: Tensor) -> Tensor:
        y = x * 2
        with pytest.raises(NestedCaptureError, match="already open on this thread"):
            tl.trace(models.Looped(), x)
        return y + 1

    assert op_labels(tl.trace(nested, floats(2, 4))) == "mul_1:1 add_1:1"


def test_data_parallel_is_unwrapped() -> None:
    trace = tl.trace(nn.DataParallel(models.ReusedRelu()), floats(2, 4))
    assert "relu_1" in trace and trace.status == "complete"


def test_a_model_may_be_traced_again_and_in_between() -> None:
    model, x = models.StackedBlocks(), floats(2, 4)
    plain = model(x)
    traces = [tl.trace(model, x) for _ in range(3)]
    assert all(torch.equal(trace.output, plain) for trace in traces)
    assert [op.label for op in traces[0].ops] == [op.label for op in traces[2].ops]


# ---- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, r"seed=-1 is not in 0..2\*\*63-1"),
        ({"seed": 2**63}, "is not in 0"),
        ({"max_copied": -5}, "max_copied=-5 is negative"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        tl.options.CaptureOptions(**options)


@pytest.mark.parametrize("options", [{"seed": 1.5}, {"seed": "1"}, {"max_copied": "1"}], ids=str)
def test_options_of_the_wrong_type_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(tl.errors.TorchLensError, match=r"seed|max_copied"):
        tl.options.CaptureOptions(**options)


def test_options_are_frozen_and_by_keyword() -> None:
    options = tl.options.CaptureOptions(seed=1)
    with pytest.raises(AttributeError, match="seed"):
        options.seed = 2  # type: ignore[misc]
    with pytest.raises(TypeError, match="positional"):
        tl.options.CaptureOptions(1)  # type: ignore[misc]


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32, 2**63 - 1])
def test_a_seed_is_what_manual_seed_would_take(seed: int) -> None:
    trace = tl.trace(lambda x: torch.rand(4) + x, floats(4), capture=tl.options.CaptureOptions(seed=seed))
    torch.manual_seed(seed)
    assert torch.equal(trace["rand_1"].out, torch.rand(4)) and trace.options.seed == seed


def test_a_dict_of_models_must_hold_modules() -> None:
    with (
        pytest.raises(InputError, match=r"model\['b'\] is a function"),
        tl.capture({"a": nn.ReLU(), "b": lambda x: x}),
    ):
        raise AssertionError("ran")


def test_options_of_another_class_are_refused() -> None:
    with pytest.raises(OptionError, match=r"capture=\{'seed': 1\} is a dict; give tl.options.CaptureOptions"):
        tl.trace(nn.ReLU(), floats(2), capture={"seed": 1})  # type: ignore[arg-type]
