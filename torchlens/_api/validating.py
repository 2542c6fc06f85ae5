"""`validate`: trace a model, check the trace, and run the model once more without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from torch import Tensor

from torchlens._api.capturing import trace
from torchlens._capture.compiled import compiled_code_eager
from torchlens._capture.random_state import derived_seed, seeded
from torchlens._capture.unwrapping import root_of, unwrapped
from torchlens._values.plain import plain, tensors_in
from torchlens.options import CaptureOptions
from torchlens.validation.census import check_census
from torchlens.validation.checking import check_trace
from torchlens.validation.comparison import is_same
from torchlens.validation.findings import Finding, Tally
from torchlens.validation.forward import BufferState, compare_outputs, own_copy
from torchlens.validation.report import Report


def validate(
    model: Callable[..., Any], x: Any = (), *, input_kwargs: Mapping[str, Any] | None = None
) -> Report:
    """Trace `model` once and check the trace; the report is true when nothing that could be checked failed.

    Each recorded call is made again on its recorded inputs, taken through the edges of the graph, and must
    give its recorded value; the record's own rules must hold; every operator that torch dispatched must
    belong to an op; a plain forward from the same random state must give the traced output, bit for bit.
    Buffers and random state are given back. An exception of the traced forward comes through unchanged.

    >>> import torch, torchlens as tl
    >>> report = tl.validate(torch.nn.Linear(3, 2), torch.zeros(1, 3))
    >>> bool(report), len(report.failed)
    (True, 0)
    """
    seed = derived_seed()
    args = cast("tuple[Any, ...]", x) if type(x) is tuple else (x,)
    given = (args, dict(input_kwargs or {}))
    first, second, third = own_copy(given), own_copy(given), own_copy(given)
    buffers = BufferState(root_of(unwrapped(model)))
    options = CaptureOptions(seed=seed, witness=True)
    try:
        try:
            traced = trace(model, args, input_kwargs=input_kwargs, capture=options)
        except Exception:  # noqa: BLE001 - torch itself refuses some work under any dispatch mode
            buffers.restore()
            options = replace(options, witness=False)
            traced = trace(model, third[0], input_kwargs=third[1], capture=options)
        expected = [tensor.detach().clone() for tensor in tensors_in(traced.output)]
        report = check_trace(traced._reader)
        forward = _compare_with_plain(model, seed, expected, buffers, (first, second))
    finally:
        buffers.restore()
    sections = {**report.sections, "witness": check_census(traced._reader), "forward": forward}
    return Report(report.name, sections, report.unverified)


def _compare_with_plain(
    model: Callable[..., Any],
    seed: int,
    expected: list[Tensor],
    buffers: BufferState,
    inputs: tuple[Any, Any],
) -> Tally:
    try:
        found = _plain_outputs(model, seed, buffers, inputs[0])
        if len(found) == len(expected) and all(map(is_same, expected, found)):
            return compare_outputs(expected, found, varies=False)
        again = _plain_outputs(model, seed, buffers, inputs[1])
    except Exception as error:  # noqa: BLE001 - a model may raise anything
        text = f"a plain forward raised {type(error).__name__}: {error}, the traced one did not"
        return Tally(failed=[Finding("output", text)])
    varies = len(found) != len(again) or not all(map(is_same, found, again))
    return compare_outputs(expected, found, varies=varies)


def _plain_outputs(model: Callable[..., Any], seed: int, buffers: BufferState, inputs: Any) -> list[Tensor]:
    """The tensors that a plain forward gives, from the buffers and the random state of the traced one."""
    args, kwargs = inputs
    buffers.restore()
    with seeded(seed), compiled_code_eager():
        output = unwrapped(model)(*args, **kwargs)
    return tensors_in(plain(output, lambda tensor: tensor.detach()))
