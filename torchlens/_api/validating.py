"""`validate`: trace a model, check the trace, and run the model again without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from torchlens._api.capturing import trace
from torchlens._api.trace import Trace
from torchlens._capture.compiled import compiled_code_eager
from torchlens._capture.random_state import derived_seed, seeded
from torchlens._capture.unwrapping import root_of, unwrapped
from torchlens._values.plain import plain
from torchlens.options import CaptureOptions
from torchlens.validation.census import check_census
from torchlens.validation.checking import check_trace
from torchlens.validation.findings import Finding, Tally
from torchlens.validation.forward import BufferState, own_copy
from torchlens.validation.outputs import compare_outputs, is_same_output
from torchlens.validation.report import Report


def validate(
    model: Callable[..., Any], x: Any = (), *, input_kwargs: Mapping[str, Any] | None = None
) -> Report:
    """Trace `model` and check the trace; the report is true when nothing that could be checked failed.

    Each recorded call is made again on its recorded inputs, taken through the edges of the graph, and must
    give its recorded value; the record's own rules must hold; a plain forward from the same random state must
    give the traced output, bit for bit; and a second traced forward accounts for every operator that torch
    dispatches. Buffers and random state are given back. An exception of the traced forward comes through
    unchanged; what `tl.trace` refuses is refused.

    >>> import torch, torchlens as tl
    >>> report = tl.validate(torch.nn.Linear(3, 2), torch.zeros(1, 3))
    >>> bool(report), len(report.failed)
    (True, 0)
    """
    runs = _Runs(model, x, input_kwargs)
    try:
        traced = runs.traced(witness=False)
        expected = plain(traced.output, lambda tensor: tensor.detach().clone())
        report = check_trace(traced._reader)
        forward = _compare_with_plain(runs, expected)
        witnessed, census = _account_for_operators(runs)
    finally:
        runs.buffers.restore()
    sections = {**report.sections, "witness": census, "forward": forward}
    return Report(report.name, sections, report.unverified or witnessed)


class _Runs:
    """Forwards of one model, each from the same buffers, random state and inputs."""

    def __init__(self, model: Callable[..., Any], x: Any, input_kwargs: Mapping[str, Any] | None) -> None:
        self._model = model
        self._seed = derived_seed()
        args = cast("tuple[Any, ...]", x) if type(x) is tuple else (x,)
        self._given = (args, dict(input_kwargs or {}))
        self._kept = own_copy(self._given)
        self._first = True
        self.buffers = BufferState(root_of(unwrapped(model)))

    def traced(self, *, witness: bool) -> Trace:
        """A traced forward."""
        args, kwargs = self._inputs()
        options = CaptureOptions(seed=self._seed, witness=witness)
        return trace(self._model, args, input_kwargs=kwargs, capture=options)

    def plain(self) -> Any:
        """What a plain forward gives, as plain data."""
        args, kwargs = self._inputs()
        with seeded(self._seed), compiled_code_eager():
            output = unwrapped(self._model)(*args, **kwargs)
        return plain(output, lambda tensor: tensor.detach())

    def _inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The inputs as they were given: the user's own at first, copies from then on."""
        if self._first:
            self._first = False
            return self._given
        self.buffers.restore()
        return own_copy(self._kept)


def _compare_with_plain(runs: _Runs, expected: Any) -> Tally:
    try:
        found = runs.plain()
        if is_same_output(expected, found):
            return compare_outputs(expected, found)
        varies = not is_same_output(found, runs.plain())
        changes = not varies and is_same_output(found, runs.traced(witness=False).output)
    except Exception as error:  # noqa: BLE001 - a model may raise anything
        text = f"a plain forward raised {type(error).__name__}: {error}, the traced one did not"
        return Tally(failed=[Finding("output", text)])
    excuse = None
    if varies:
        excuse = "two plain forwards from one random state differ too, so the traced one cannot be compared"
    elif changes:
        excuse = "the model's first forward differs from its later ones, traced or not"
    return compare_outputs(expected, found, excuse)


def _account_for_operators(runs: _Runs) -> tuple[str | None, Tally]:
    """The first reason for which a trace under the witness is unverified, and its census."""
    try:
        reader = runs.traced(witness=True)._reader
    except Exception as error:  # noqa: BLE001 - torch itself refuses some work under any dispatch mode
        text = f"under the witness the forward raised {type(error).__name__}, without it it did not"
        return None, Tally(unchecked=[Finding("witness", text)])
    return reader.record.unverified, check_census(reader)
