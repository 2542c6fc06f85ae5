"""What selectors are made of: conditions on an op, as data that any op can be held against.

A condition answers True, False, or None while it cannot tell yet: whether an op is a module's output is known
only when the module has returned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from torchlens.errors import InputError

LABEL: Final = re.compile(r"\w+_\d+(:\d+)?")


class PlaceInCode(Protocol):
    """A frame of a call site."""

    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int | None: ...
    @property
    def end_line(self) -> int | None: ...


class Candidate(Protocol):
    """What a selector asks of an op: the same names that `Op` has, and three more."""

    @property
    def kind(self) -> str: ...
    @property
    def func_name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def operation(self) -> str: ...
    @property
    def composites(self) -> tuple[str, ...]: ...
    @property
    def call_site(self) -> Sequence[PlaceInCode]: ...
    @property
    def label(self) -> str | None:
        """None while it is not known."""
        ...

    @property
    def scopes(self) -> frozenset[str]:
        """The addresses of the modules in whose calls the op ran, under each of their names."""
        ...

    def ask(self, predicate: Callable[[Any], object]) -> bool:
        """What a predicate answers about the op."""
        ...

    def is_output_of(self, address: str) -> bool | None:
        """Whether a module (`"fc"`) or a module call (`"fc:1"`) returned it; None while one may yet."""
        ...


class Selector:
    """A condition on ops. Combine selectors with `&`, `|` and `~`."""

    __slots__ = ()

    def matches(self, op: Candidate) -> bool | None:
        """Whether the op is meant; None while it cannot be told."""
        raise NotImplementedError

    def parts(self) -> tuple[Selector, ...]:
        """The selectors that it is made of; none for a simple one."""
        return ()

    def simple(self) -> Iterator[Selector]:
        """The simple selectors in it, from left to right."""
        if not self.parts():
            yield self
        for part in self.parts():
            yield from part.simple()

    def __and__(self, other: object) -> Selector:
        return All((self, _operand(other, "&")))

    def __or__(self, other: object) -> Selector:
        return AnyOf((self, _operand(other, "|")))

    def __invert__(self) -> Selector:
        return Not(self)

    def __bool__(self) -> bool:
        raise InputError(
            f"{self} is a selector, which has no truth by itself; combine selectors with &, | and ~, "
            "not with and, or and not"
        )


@dataclass(frozen=True, slots=True, repr=False)
class Func(Selector):
    name: str

    def matches(self, op: Candidate) -> bool:
        return self.name in (op.func_name, op.type, op.operation)

    def __repr__(self) -> str:
        return f"func({self.name!r})"


@dataclass(frozen=True, slots=True, repr=False)
class InFunc(Selector):
    name: str

    def matches(self, op: Candidate) -> bool:
        return self.name in op.composites

    def __repr__(self) -> str:
        return f"in_func({self.name!r})"


@dataclass(frozen=True, slots=True, repr=False)
class Output(Selector):
    def matches(self, op: Candidate) -> bool:
        return op.kind == "output"

    def __repr__(self) -> str:
        return "output()"


@dataclass(frozen=True, slots=True, repr=False)
class ModuleOutput(Selector):
    address: str
    """Of a module or of one of its calls."""

    def matches(self, op: Candidate) -> bool | None:
        return op.is_output_of(self.address)

    def __repr__(self) -> str:
        return f"module({self.address!r})"


@dataclass(frozen=True, slots=True, repr=False)
class InModule(Selector):
    address: str

    def matches(self, op: Candidate) -> bool:
        return self.address in op.scopes

    def __repr__(self) -> str:
        return f"in_module({self.address!r})"


@dataclass(frozen=True, slots=True, repr=False)
class Label(Selector):
    label: str
    """Of a layer, or of one of its passes."""

    def matches(self, op: Candidate) -> bool | None:
        label = op.label
        if label is None and op.kind == "buffer" and not self.label.startswith("buffer_"):
            return False
        return None if label is None else self.label in (label, label.rpartition(":")[0])

    def __repr__(self) -> str:
        return f"label({self.label!r})"


@dataclass(frozen=True, slots=True, repr=False)
class Line(Selector):
    file: str
    line: int

    def matches(self, op: Candidate) -> bool:
        return any(self._holds(frame) for frame in op.call_site)

    def _holds(self, frame: PlaceInCode) -> bool:
        if frame.line is None or not frame.line <= self.line <= (frame.end_line or frame.line):
            return False
        file, wanted = frame.file.replace("\\", "/"), self.file.replace("\\", "/")
        return file == wanted or file.endswith("/" + wanted)

    def __repr__(self) -> str:
        return f"line('{self.file}:{self.line}')"


@dataclass(frozen=True, slots=True, repr=False)
class Where(Selector):
    predicate: Callable[[Any], object]

    def matches(self, op: Candidate) -> bool:
        return op.ask(self.predicate)

    def __repr__(self) -> str:
        return f"where({getattr(self.predicate, '__name__', '...')})"


@dataclass(frozen=True, slots=True, repr=False)
class All(Selector):
    of: tuple[Selector, ...]

    def matches(self, op: Candidate) -> bool | None:
        known: bool | None = True
        for part in self.of:
            found = part.matches(op)
            if found is False:
                return False
            known = known and found
        return known

    def parts(self) -> tuple[Selector, ...]:
        return self.of

    def __repr__(self) -> str:
        return f"({' & '.join(map(repr, self.of))})" if self.of else "everything"


@dataclass(frozen=True, slots=True, repr=False)
class AnyOf(Selector):
    of: tuple[Selector, ...]

    def matches(self, op: Candidate) -> bool | None:
        known: bool | None = False
        for part in self.of:
            found = part.matches(op)
            if found:
                return True
            known = None if found is None else known
        return known

    def parts(self) -> tuple[Selector, ...]:
        return self.of

    def __repr__(self) -> str:
        if self.of and all(isinstance(part, Key) for part in self.of):
            return repr(list(self.of))  # as it was given
        return f"({' | '.join(map(repr, self.of))})" if self.of else "nothing"


@dataclass(frozen=True, slots=True, repr=False)
class Not(Selector):
    of: Selector

    def matches(self, op: Candidate) -> bool | None:
        found = self.of.matches(op)
        return None if found is None else not found

    def parts(self) -> tuple[Selector, ...]:
        return (self.of,)

    def __repr__(self) -> str:
        return f"~{self.of!r}"


@dataclass(frozen=True, slots=True, repr=False)
class Key(Selector):
    """A label or an address, as `trace[key]` takes them."""

    key: str

    def matches(self, op: Candidate) -> bool | None:
        return AnyOf((Label(self.key), ModuleOutput(self.key))).matches(op)

    def __repr__(self) -> str:
        return repr(self.key)


EVERYTHING: Final = All(())
NOTHING: Final = AnyOf(())


def negates_module(selector: Selector, *, inside: bool = False) -> bool:
    """Whether an op may be meant because it is no module's output."""
    if isinstance(selector, (ModuleOutput, Key)):
        return inside
    inside = inside != isinstance(selector, Not)
    return any(negates_module(part, inside=inside) for part in selector.parts())


def _operand(other: object, operator: str) -> Selector:
    if isinstance(other, Selector):
        return other
    hint = "; write tl.label(...) or tl.module(...)" if isinstance(other, str) else ""
    raise InputError(f"{operator} takes selectors on both sides, not {other!r}{hint}")
