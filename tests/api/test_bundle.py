"""A bundle: a read-only mapping of names to traces, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

import torchlens as tl


def sine() -> Any:
    return tl.trace(torch.sin, torch.ones(2))


def test_it_is_a_mapping() -> None:
    a, b, c = sine(), sine(), sine()
    given = {"a": a, "b": b, "c": c}
    bundle = tl.Bundle(given)
    given.clear()
    assert isinstance(bundle, Mapping) and list(bundle) == ["a", "b", "c"] and len(bundle) == 3
    assert bundle["b"] is b and "a" in bundle and "d" not in bundle
    assert repr(bundle) == "<Bundle of 3 traces: 'a', 'b', 'c'>"
    assert bundle.compare("a", "c").names == ("a", "c")
    assert bundle.compare("a", "a")
    with pytest.raises(TypeError, match="does not support item assignment"):
        bundle["d"] = a  # type: ignore[index]


@pytest.mark.parametrize(
    ("traces", "message"),
    [
        pytest.param([1, 2], r"takes a dict of names to traces, not list; write tl\.Bundle", id="a list"),
        pytest.param({}, "two traces or more, this one has 0", id="none"),
        pytest.param({"a": 1, "b": 2}, "'a' is int, not a trace", id="no traces"),
        pytest.param({1: 1}, "a name in a bundle is a string, not 1", id="a number as a name"),
        pytest.param({"a": tl.Trace}, "'a' is type, not a trace", id="the class"),
    ],
)
def test_what_is_no_bundle(traces: Any, message: str) -> None:
    with pytest.raises(tl.errors.InputError, match=message):
        tl.Bundle(traces)


def test_one_trace_and_a_recording() -> None:
    with pytest.raises(tl.errors.InputError, match="this one has 1; add the other run"):
        tl.Bundle({"a": sine()})
    recording = tl.record(torch.sin, torch.ones(2))
    with pytest.raises(
        tl.errors.InputError, match=r"'b' is Recording, not a trace; .*recording\.to_trace\(\)"
    ):
        tl.Bundle({"a": sine(), "b": recording})
    bundle = tl.Bundle({"a": sine(), "b": recording.to_trace()})
    assert not bundle.compare("a", "b").only_in_b


@pytest.mark.parametrize("call", ["compare", "first_divergence"])
def test_a_wrong_name_an_open_and_a_cleaned_trace(call: str) -> None:
    a = sine()
    bundle = tl.Bundle({"before": a, "after": sine()})
    compare = {"compare": bundle.compare, "first_divergence": bundle.first_divergence}[call]
    with pytest.raises(tl.errors.MissingKeyError, match="no trace is called 'befor'; nearest: 'before'"):
        compare("befor", "after")
    a.cleanup()
    with pytest.raises(tl.errors.NotSavedError, match="freed this trace"):
        compare("before", "after")
    with tl.capture(torch.nn.ReLU()) as block:
        torch.ones(2) + 1
        with pytest.raises(tl.errors.CaptureOpenError, match="still open"):
            tl.Bundle({"a": block, "b": a}).compare("a", "b")


def test_the_result_outlives_the_traces() -> None:
    a, b = sine(), tl.trace(torch.sin, torch.zeros(2))
    bundle = tl.Bundle({"a": a, "b": b})
    found, parted = bundle.compare("a", "b"), bundle.first_divergence("a", "b")
    a.cleanup(), b.cleanup()
    assert str(found) and found.to_arrow().num_rows == 3 and str(parted)
