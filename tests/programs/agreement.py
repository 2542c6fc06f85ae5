"""One program, run plainly and under a capture: the same bits, and a trace that holds together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import torchlens as tl
from tests.programs.reading import lint
from torchlens.errors import UnreadableError

SEED = 7


@dataclass
class Outcome:
    """What a run gave: its tensors, and the gradients of inputs and parameters."""

    tensors: list[Tensor]
    gradients: list[Tensor | None]


def agrees(
    build: Callable[[], Callable[..., Any]],
    *inputs: Any,
    grad: bool = False,
    verified: bool = True,
    checked: bool = True,
    rendered: bool = True,
    **options: Any,
) -> Any:
    """The trace of one run, after a plain run and a traced one were found to be the same.

    `build` makes the program afresh for each run. `checked=False` leaves out making the calls again, for
    programs that draw on what a replay does not have; `rendered=False` printing it, which takes longest.
    """
    plain = _outcome(build, inputs, grad, lambda program, given: program(*given))
    traces: list[Any] = []

    def traced(program: Callable[..., Any], given: Sequence[Any]) -> Any:
        capture = tl.options.CaptureOptions(seed=SEED, **options)
        traces.append(tl.trace(program, tuple(given), capture=capture))
        return traces[0].output

    assert_same_outcome(_outcome(build, inputs, grad, traced), plain)
    (trace,) = traces
    lint(trace)
    if rendered:
        render(trace)
    reasons = [] if trace.provenance.verified else [trace.provenance.verification_reason]
    assert (reasons == []) is verified, reasons
    if checked:
        report = trace.check()
        assert report, [(finding.about, finding.text) for finding in report.failed]
    return trace


def _outcome(
    build: Callable[[], Callable[..., Any]],
    inputs: Sequence[Any],
    grad: bool,
    run: Callable[[Callable[..., Any], Sequence[Any]], Any],
) -> Outcome:
    torch.manual_seed(1)
    program = build()
    given = [_fresh(value, grad) for value in inputs]
    torch.manual_seed(SEED)
    with torch.set_grad_enabled(grad):
        tensors = tensors_of(run(program, given))
    if not grad:
        return Outcome(tensors, [])
    roots = [t for t in tensors if t.requires_grad]
    wanted = [t for t in given if isinstance(t, Tensor) and t.requires_grad]
    wanted += list(program.parameters()) if isinstance(program, torch.nn.Module) else []
    torch.autograd.backward([(t.values() if t.is_nested else t).abs().sum() for t in roots])
    return Outcome(tensors, [t.grad for t in wanted])


def _fresh(value: Any, grad: bool) -> Any:
    if type(value) is not Tensor:
        return value
    copied = value.detach().clone()
    return copied.requires_grad_(grad and (copied.is_floating_point() or copied.is_complex()))


def tensors_of(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in tensors_of(item)] if isinstance(value, (list, tuple)) else []


def assert_same_outcome(found: Outcome, expected: Outcome) -> None:
    for one, other in ((found.tensors, expected.tensors), (found.gradients, expected.gradients)):
        assert len(one) == len(other)
        for a, b in zip(one, other):
            assert (a is None) is (b is None)
            if a is not None and b is not None:
                assert type(a) is type(b)
                assert a.requires_grad == b.requires_grad
                assert_same_bits(a, b)


def assert_same_bits(found: Tensor, expected: Tensor) -> None:
    """Equal in type, layout and every bit; of meta tensors, in shape."""
    for fact in ("dtype", "layout", "device", "is_nested", "is_quantized"):
        assert getattr(found, fact) == getattr(expected, fact), fact
    if found.is_nested:
        pairs = zip(found.detach().unbind(), expected.detach().unbind(), strict=True)
        for one, other in pairs:
            assert_same_bits(one, other)
        return
    assert found.shape == expected.shape
    if not found.is_meta and found.numel():
        one, other = raw(found), raw(expected)
        assert torch.equal(one, other)


def raw(tensor: Tensor) -> Tensor:
    """The bytes of its elements, in order."""
    plain = tensor.detach()
    plain = plain if plain.layout is not torch.strided else plain.as_subclass(Tensor)
    plain = plain.to_dense() if plain.layout is not torch.strided else plain
    plain = plain.int_repr() if plain.is_quantized else plain
    return plain.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def render(trace: Any) -> None:
    """Read all that can be shown of a trace; a value that was not kept may say so."""
    for thing in (trace, trace.summary(), *trace.ops, *trace.layers, *trace.modules, *trace.module_calls):
        assert str(thing) and repr(thing)
        assert thing._repr_html_() if hasattr(thing, "_repr_html_") else True
    assert trace.graph.number_of_nodes() == len(trace.ops)
    for op in trace.ops:
        assert op.flops is not None or op.flops_reason
        assert (op.shape, op.dtype, op.device, op.nbytes, op.args, op.kwargs, op.params) is not None
        try:
            assert op.gradient_edge is None or op.requires_grad
        except UnreadableError:
            pass
