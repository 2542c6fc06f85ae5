"""What sets two descriptions apart, layer by layer, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, TypeAlias

from torchlens.report.amounts import quantity
from torchlens.testing.alignment import Pair, align
from torchlens.testing.description import Description, LayerLine
from torchlens.testing.starts import find_starts

_MOST_SHOWN: Final = 14
_WIDEST_NAME: Final = 32


@dataclass(frozen=True, slots=True)
class Apart:
    """How the values of two layers differ, and the first op of the found trace at which they do."""

    op: int
    text: str
    read: Mapping[int, str] | None = None
    """What that op read, op to layer label; None where all passes were compared as one."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as expected."""

    name: str
    """Of the layer, or of what the header says."""
    text: str
    op: int = -1
    """Where it comes in capture order; what concerns the whole is before all."""
    in_values: bool = False
    read: Mapping[int, str] | None = None
    """That of an `Apart`."""
    pair: int = -1
    """Number of the pair of layers; -1 for what concerns the whole."""
    place: str = ""
    """`net.py:7`, on the first difference of a layer whose line is known."""
    start: str = ""
    """Whether differences start at this layer, on its first one."""


CompareValues: TypeAlias = Callable[[LayerLine, LayerLine], Apart | None]
"""What sets the values of two layers of like shape apart, the expected one first."""


def find_differences(
    expected: Description, found: Description, compare_values: CompareValues | None = None
) -> list[Difference]:
    """The differences between the layers of two descriptions, in capture order; those of values come last.

    Another structure makes other values, and statistics are of all passes: a late one may move the first.
    """
    pairs = align(expected.layers, found.layers)
    differences = list(_in_layers(expected, found, pairs, compare_values))
    differences.sort(key=lambda difference: (difference.in_values, difference.op))
    differences = _with_starts(differences, expected.layers, found.layers, pairs)
    if not differences and expected.header.edges != found.header.edges:
        text = f"other passes read one another: {found.header.edges} instead of {expected.header.edges}"
        differences.append(Difference("edges", text))
    return differences


def header_differences(expected: Description, found: Description) -> Iterator[Difference]:
    """What sets two traces apart as a whole."""
    before, now = expected.header, found.header
    for name, ours, theirs in (
        ("model", before.model, now.model),
        ("status", before.status, now.status),
        ("parameters", before.parameters, now.parameters),
    ):
        if ours != theirs:
            yield Difference(name, f"{theirs} instead of {ours}")


def _in_layers(
    expected: Description, found: Description, pairs: Sequence[Pair], compare_values: CompareValues | None
) -> Iterator[Difference]:
    old, new = expected.layers, found.layers
    renamed = {
        old[pair.old].label: new[pair.new].label
        for pair in pairs
        if pair.old is not None and pair.new is not None
    }
    before: LayerLine | None = None
    for at, pair in enumerate(pairs):
        if pair.new is None:
            gone = old[pair.old or 0]
            after = -1 if before is None else before.first_op
            yield Difference(gone.label, f"is gone{_place(gone, before)}", after, pair=at)
            continue
        here = new[pair.new]
        if pair.old is None:
            yield Difference(here.label, f"is new{_place(here, before)}", here.first_op, pair=at)
        else:
            there = old[pair.old]
            for text in _in_pair(there, here, renamed):
                yield Difference(here.label, text, here.first_op, pair=at)
            alike = (there.type, there.passes, there.tensors) == (here.type, here.passes, here.tensors)
            apart = compare_values(there, here) if alike and compare_values is not None else None
            if apart is not None:
                yield Difference(here.label, apart.text, apart.op, True, apart.read, at)
        before = here


def _with_starts(
    differences: Sequence[Difference],
    old: Sequence[LayerLine],
    new: Sequence[LayerLine],
    pairs: Sequence[Pair],
) -> list[Difference]:
    """The same differences, the first of each layer with its line of code and whether it starts there."""
    first = {difference.pair: at for at, difference in reversed(list(enumerate(differences)))}
    parents = _parents({pair: differences[at] for pair, at in first.items()}, old, new, pairs)
    gaps = {at for at, pair in enumerate(pairs) if pair.new is not None and new[pair.new].is_partly_known}
    uncertain = {
        pair for pair, at in first.items() if differences[at].in_values and not gaps.isdisjoint(parents[pair])
    }
    starts = {
        group[0]: "starts here"
        if len(group) == 1
        else f"starts in the loop from here to {differences[first[group[-1]]].name}"
        for group in find_starts(sorted(first), parents, uncertain)
    }
    marked = list(differences)
    for pair, at in first.items():
        number = pairs[pair].new
        place = "" if number is None else new[number].place
        marked[at] = replace(marked[at], place=place, start=starts.get(pair, ""))
    return marked


def _parents(
    first: Mapping[int, Difference], old: Sequence[LayerLine], new: Sequence[LayerLine], pairs: Sequence[Pair]
) -> dict[int, set[int]]:
    """For each pair that differs, the pairs from which that may come: what it reads, or read before.

    Other values make no other structure: of that, only what is of another structure itself is a cause.
    """
    was = {old[pair.old].label: at for at, pair in enumerate(pairs) if pair.old is not None}
    now = {new[pair.new].label: at for at, pair in enumerate(pairs) if pair.new is not None}
    found: dict[int, set[int]] = {}
    for at, difference in first.items():
        there, here = pairs[at].old, pairs[at].new
        if difference.read is not None:
            read = ((now[label], op) for op, label in difference.read.items())
            found[at] = {parent for parent, op in read if parent not in first or first[parent].op <= op}
            continue
        found[at] = set() if there is None else {was[label] for label in old[there].parents}
        found[at] |= set() if here is None else {now[label] for label in new[here].parents}
        if not difference.in_values:
            found[at] = {parent for parent in found[at] if parent in first and not first[parent].in_values}
    return found


def _place(line: LayerLine, before: LayerLine | None) -> str:
    after = ", before all others" if before is None else f", after {before.label}"
    return after + (f", in {line.module}" if line.module else "")


def _in_pair(old: LayerLine, new: LayerLine, renamed: Mapping[str, str]) -> Iterator[str]:
    if old.type != new.type:
        yield f"stands in place of {old.label}"
    if old.passes != new.passes:
        yield f"{quantity(new.passes, 'pass', 'passes')} instead of {old.passes}"
    yield from _in_tensors(old, new)
    if old.module != new.module:
        yield f"in {new.module or 'the model itself'} instead of {old.module or 'the model itself'}"
    parents = {renamed.get(label, label): count for label, count in old.parents.items()}
    if list(parents.items()) != list(new.parents.items()):
        yield f"reads {_counted(new.parents)} instead of {_counted(parents)}"
    yield from _in_params(old, new)


def _in_tensors(old: LayerLine, new: LayerLine) -> Iterator[str]:
    """One text for each of shape, dtype and writing where the passes agree, otherwise one for all passes."""
    if old.tensors == new.tensors:
        return
    if "; " in old.tensors + new.tensors:
        yield f"{new.tensors} instead of {old.tensors}"
        return
    shape, dtype, *inplace = old.tensors.split(" ")
    shape_now, dtype_now, *inplace_now = new.tensors.split(" ")
    if shape != shape_now:
        yield f"shape {shape_now} instead of {shape}"
    if dtype != dtype_now:
        yield f"dtype {dtype_now} instead of {dtype}"
    if inplace != inplace_now:
        yield "is written in place now" if inplace_now else "is no longer written in place"


def _in_params(old: LayerLine, new: LayerLine) -> Iterator[str]:
    before, now = old.params, new.params
    for address in dict.fromkeys([*before, *now]):
        if address not in now:
            yield f"no longer uses parameter {address} {before[address]}"
        elif address not in before:
            yield f"uses parameter {address} {now[address]}"
        elif before[address] != now[address]:
            shape, dtype = old.param(address)
            shape_now, dtype_now = new.param(address)
            if dtype != dtype_now:
                yield f"parameter {address} {shape_now} {dtype_now} instead of {shape} {dtype}"
            elif shape != shape_now:
                yield f"parameter {address} {shape_now} instead of {shape}"


def _counted(parents: Mapping[str, int]) -> str:
    return ", ".join(label if n == 1 else f"{label} x{n}" for label, n in parents.items()) or "nothing"


def as_text(title: str, differences: Sequence[Difference], hint: str | None = None) -> str:
    """The differences below a title, the first ones first, and what to do about them."""
    shown = differences[:_MOST_SHOWN]
    width = min(_WIDEST_NAME, max(len(_named(difference)) for difference in shown))
    lines = [title, "", *(f"  {_named(each):<{width}}  {_marked(each)}" for each in shown)]
    rest = list(islice(differences, _MOST_SHOWN, None))
    if rest:
        layers = len({difference.name for difference in rest})
        lines.append(f"  and {quantity(len(rest), 'more difference')}, of {quantity(layers, 'layer')}")
    return "\n".join([*lines, "", hint] if hint else lines)


def _named(difference: Difference) -> str:
    return f"{difference.name} ({difference.place})" if difference.place else difference.name


def _marked(difference: Difference) -> str:
    return f"{difference.text}  <- {difference.start}" if difference.start else difference.text
