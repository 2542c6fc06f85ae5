"""What holds for every wrapped model: traced and plain runs agree, and the trace holds what ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.reading import lint


def agreeing(
    build: Callable[[], nn.Module], *args: Any, input_kwargs: Mapping[str, Any] | None = None
) -> list[tl.Trace]:
    """The traces of two runs of a model, each equal to the plain run of a model that was built alike."""
    observed, plain = build(), build()
    kwargs = dict(input_kwargs or {})
    before = dict(attachments(observed))
    traces = []
    for _ in range(2):
        trace = tl.trace(observed, args, input_kwargs=kwargs)
        lint(trace)
        assert trace.provenance.verified, trace.provenance.verification_reason
        report = trace.check()
        assert report, str(report)
        output, returned = plain_run(plain, args, kwargs, trace.options.seed)
        assert_same_tensors(trace.output, output)
        assert_same_returns(trace, returned)
        assert_same_state(observed, plain)
        traces.append(trace)
    added = {key: now for key, now in attachments(observed) if before.get(key) != now}
    assert added == {key: now for key, now in attachments(plain) if before.get(key) != now}
    return traces


def plain_run(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int
) -> tuple[Any, dict[str, list[Any]]]:
    """A run's output, and by address what each call of a module without parts returned."""
    returned: dict[str, list[Any]] = {}

    def keep(address: str) -> Callable[..., None]:
        return lambda module, args, output: returned.setdefault(address, []).append(copied(output))

    parts = [(name, part) for name, part in model.named_modules() if not list(part.children())]
    handles = [part.register_forward_hook(keep(name)) for name, part in parts]
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return model(*args, **kwargs), returned
    finally:
        for handle in handles:
            handle.remove()


def copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def assert_same_returns(trace: tl.Trace, returned: Mapping[str, list[Any]]) -> None:
    for address, outputs in returned.items():
        calls = trace.modules[address].calls
        assert len(calls) == len(outputs), address
        for call, output in zip(calls, outputs):
            if isinstance(output, Tensor):
                (op,) = call.outputs
                assert torch.equal(op.out, output), call.label


def assert_same_tensors(ours: Any, expected: Any) -> None:
    found, wanted = list(tensors_of(ours)), list(tensors_of(expected))
    assert len(found) == len(wanted) > 0
    for one, other in zip(found, wanted):
        assert one.dtype == other.dtype and torch.equal(one, other)


def tensors_of(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_of(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_of(item)


def assert_same_state(observed: nn.Module, plain: nn.Module) -> None:
    one, other = observed.state_dict(), plain.state_dict()
    assert list(one) == list(other)
    for key, tensor in one.items():
        if isinstance(tensor, Tensor):
            assert tensor.device == other[key].device and tensor.dtype == other[key].dtype, key
            assert tensor.is_meta or torch.equal(tensor, other[key]), key


def attachments(model: nn.Module) -> Iterator[tuple[tuple[str, str], object]]:
    """What hangs on each module: its attributes by name, and how many hooks of each kind."""
    for address, module in model.named_modules():
        for name, value in vars(module).items():
            yield (address, name), len(value) if "hooks" in name else type(value).__name__
