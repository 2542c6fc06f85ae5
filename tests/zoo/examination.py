"""What is asked of each model: the numbers of a plain forward, and a trace that accounts for all of it."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.answers import assert_same_answers, round_trip
from tests.zoo.entry import Entry, Inputs
from torchlens.validation.report import Report

SEED = 0


@dataclass(frozen=True)
class Findings:
    """One row of the page."""

    parameters: int
    ops: int
    layers: int
    verified: str
    unchecked: int


def examine(entry: Entry) -> Findings:
    """Run the model plainly and traced, each built anew from one seed; raises where they differ."""
    model, inputs = prepared(entry)
    with entry.setting():
        seed_all()
        plain = model(*inputs.args, **inputs.kwargs)
    model, inputs = prepared(entry)
    options = tl.options.CaptureOptions(seed=SEED)
    with entry.setting():
        trace = tl.trace(model, inputs.args, input_kwargs=inputs.kwargs, capture=options)
    assert trace.status == "complete"
    assert_identical(trace.output, plain)
    assert_every_op_is_named(trace)
    assert_same_when_loaded(trace)
    reason = trace.provenance.verification_reason
    assert reason == entry.unseen, str(trace.provenance)
    report = validated(entry, model)
    return Findings(
        parameters=sum(param.numel for param in trace.params),
        ops=len(trace.ops),
        layers=len(trace.layers),
        verified="yes" if reason is None else f"no: {reason}",
        unchecked=len(report.unchecked),
    )


def validated(entry: Entry, model: nn.Module) -> Report:
    """What `validate` says of a further run, which a witness watches; raises where something fails."""
    inputs = inputs_of(entry)
    with entry.setting():
        report = tl.validate(model, inputs.args, input_kwargs=inputs.kwargs)
    assert report, str(report)
    assert report.sections["witness"].checked
    assert not report.sections["witness"].unchecked, str(report)
    assert report.sections["values"].checked
    assert report.sections["forward"].checked
    left = report.sections["forward"].unchecked
    assert all("Cache is not looked into" in finding.text for finding in left), str(report)
    return report


def prepared(entry: Entry) -> tuple[nn.Module, Inputs]:
    seed_all()
    model = entry.build()
    return model, inputs_of(entry)


def inputs_of(entry: Entry) -> Inputs:
    seed_all()
    return entry.inputs()


def seed_all() -> None:
    torch.manual_seed(SEED)
    random.seed(SEED)
    np.random.seed(SEED)


def assert_same_when_loaded(trace: tl.Trace) -> None:
    """Saved and loaded, the trace answers the same, but for functions that are not torch's own."""
    with tempfile.TemporaryDirectory() as directory:
        loaded = round_trip(trace, Path(directory) / "run.tlens", params=True)
        assert_same_answers(
            loaded,
            trace,
            printed=False,
            without=lambda question, found, live: found == "UnsavedFunctionError" and ".func" in question,
        )


def tensors_within(value: Any, path: str = "output") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of an output with its path, by a walk of our own."""
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_within(item, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for at, item in enumerate(value):
            yield from tensors_within(item, f"{path}[{at}]")
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors_within(getattr(value, field.name), f"{path}.{field.name}")


def assert_identical(traced: Any, plain: Any) -> None:
    ours, theirs = dict(tensors_within(traced)), dict(tensors_within(plain))
    assert theirs, f"{type(plain).__name__} holds no tensor"
    assert ours.keys() == theirs.keys()
    for path, expected in theirs.items():
        assert same_bits(ours[path], expected), f"{path} differs"


def same_bits(one: Tensor, other: Tensor) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.is_quantized:
        one, other = one.int_repr(), other.int_repr()
    one, other = one.detach().contiguous(), other.detach().contiguous()
    return torch.equal(one.view(-1).view(torch.uint8), other.view(-1).view(torch.uint8))


def assert_every_op_is_named(trace: tl.Trace) -> None:
    for op in trace.ops:
        assert trace.ops[op.label] == op
        assert op.layer == trace.layers[op.layer.layer_label]
        assert op == op.layer.ops[op.pass_number - 1]
        assert trace.modules[op.module.address] == op.module
