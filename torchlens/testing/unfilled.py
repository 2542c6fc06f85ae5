"""Which ops give memory that nothing has filled yet: their values are whatever lay there before."""

from __future__ import annotations

from typing import Final

from torchlens._trace.reader import TraceReader
from torchlens._values.geometry import storage_key

_GIVE_MEMORY: Final = frozenset(
    "empty empty_like empty_permuted empty_strided new_empty new_empty_strided resize_ resize_as_".split()
)
_FILL_ALL: Final = frozenset(
    "copy_ fill_ zero_ normal_ uniform_ random_ bernoulli_ exponential_ geometric_ cauchy_ log_normal_ "
    "eye_ ones_ zeros_ constant_".split()
)
"""Those that write every element of what they are called on, and read none."""


def find_unfilled(reader: TraceReader) -> frozenset[int]:
    """The ops whose value may hold memory as it came from `torch.empty`.

    These are the calls that give it, the views of it, and writes into a part of it. What other calls compute
    from such memory is not among them.
    """
    found: set[int] = set()
    numbers, rows, parents = reader.numbers, reader.rows, reader.parents
    names: dict[int, str] = {}
    for op, (row, slot) in enumerate(zip(numbers.rows, numbers.slots)):
        if rows.kind[row] != "call":
            continue
        func = id(rows.func[row])
        name = names.get(func)
        if name is None:
            name = names[func] = reader.name(row)
        if name in _GIVE_MEMORY:
            found.add(op)
        elif found and name not in _FILL_ALL and "out" not in (rows.kwargs[row] or {}):
            key = storage_key(reader.tensor(row, slot))
            if any(
                parent in found
                and storage_key(reader.tensor(numbers.rows[parent], numbers.slots[parent])) == key
                for parent in parents[op]
            ):
                found.add(op)
    return frozenset(found)
