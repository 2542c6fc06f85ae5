"""Whether two forwards gave the same: their outputs, as plain data, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

from torch import Tensor

from torchlens._records import Opaque
from torchlens.validation.comparison import difference
from torchlens.validation.findings import Finding, Tally


def is_same_output(expected: Any, found: Any) -> bool:
    """Whether two outputs are alike and hold the same tensors, bit for bit."""
    return all(_apart(one, other) is None for _, one, other in _pairs(expected, found, "output"))


def compare_outputs(expected: Any, found: Any, excuse: str | None = None) -> Tally:
    """Compare the outputs of a traced and of a plain forward.

    `excuse` is why a difference says nothing about the trace.
    """
    tally = Tally()
    for path, one, other in _pairs(expected, found, "output"):
        apart = _apart(one, other)
        if apart is not None and excuse is not None:
            tally.unchecked.append(Finding(path, excuse))
        elif apart is not None:
            tally.failed.append(Finding(path, f"a plain forward gives {apart}"))
        elif isinstance(one, Opaque):
            text = f"a {one.type_name} is not looked into, so what it holds is not compared"
            tally.unchecked.append(Finding(path, text))
        else:
            tally.checked += 1
    return tally


def _apart(one: Any, other: Any) -> str | None:
    """What sets two parts of an output apart."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        apart = difference(one, other)
        return None if apart is None else f"another value: {apart}"
    kind, other_kind = _kind(one), _kind(other)
    if kind != other_kind:
        return f"a {other_kind} instead of a {kind}"
    if isinstance(one, Opaque) or one == other or (one != one and other != other):
        return None
    return f"{other!r} instead of {one!r}"


def _kind(value: object) -> str:
    return value.type_name if isinstance(value, Opaque) else type(value).__name__


def _pairs(one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """(path, part, part) of what two outputs hold, and of their containers where these differ."""
    ours, theirs = _parts(one), _parts(other)
    if ours is None or theirs is None or type(one) is not type(other):
        yield path, one, other
    elif [name for name, _ in ours] != [name for name, _ in theirs]:
        yield path, [name for name, _ in ours], [name for name, _ in theirs]
    else:
        for (name, part), (_, counterpart) in zip(ours, theirs):
            yield from _pairs(part, counterpart, f"{path}{name}")


def _parts(value: Any) -> list[tuple[str, Any]] | None:
    """What a container of plain data holds, by how one would ask for it; None for what is no container."""
    if isinstance(value, (Opaque, type)):
        return None
    if isinstance(value, (list, tuple)):
        return [(f"[{at}]", item) for at, item in enumerate(cast("Sequence[Any]", value))]
    if isinstance(value, dict):
        return [(f"[{key!r}]", item) for key, item in cast("Mapping[Any, Any]", value).items()]
    if is_dataclass(value):
        names = [field.name for field in fields(value) if hasattr(value, field.name)]
        return [(f".{name}", getattr(value, name)) for name in names]
    return None
