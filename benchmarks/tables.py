"""The figures of one case, as a table and as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from memory import Memory
from peak import Peaks
from peers import Peer
from references import CUT, KEEPING, PLAIN, is_partial
from rows import FULL, NOT_BUILT, NOTHING, ONE, STOPPED
from timing import Rows, Samples, measured, ratio

MIB = 1 << 20
NUMBERS = ("ms", "x plain", "x null", "us/call more", "page faults")


@dataclass
class Measured:
    title: str
    calls: int
    ops: int
    places: dict[str, str]
    """The modules behind "one module" and "1/4"."""
    rows: Rows
    graph: Samples
    memory: Memory
    peaks: Peaks
    peers: list[Peer] = field(default_factory=list)

    def microseconds_per_call(self, row: str) -> float | None:
        return more_per_call(self.rows, row, self.calls)

    def graph_microseconds_per_op(self) -> float:
        return self.graph.median_ms * 1e3 / self.ops

    def as_data(self) -> dict[str, Any]:
        timed = [row for row in self.rows if measured(self.rows, row)]
        return {
            **asdict(self),
            "ratios": {row: {to: ratio(self.rows, row, to) for to in (PLAIN, KEEPING)} for row in timed},
            "microseconds_per_call": {row: self.microseconds_per_call(row) for row in timed},
            "graph_microseconds_per_op": self.graph_microseconds_per_op(),
            "peer_ratios": {peer.package: {row: peer.ratio(row) for row in peer.rows} for peer in self.peers},
        }

    def shown(self) -> Group:
        return Group(table_of(self), *(Text(line) for line in lines_of(self)), Text())


def more_per_call(rows: Rows, row: str, calls: int) -> float | None:
    """What a call costs more than in the plain forward; None where a row does not make all of them."""
    samples, plain = measured(rows, row), measured(rows, PLAIN)
    if samples is None or plain is None or is_partial(row):
        return None
    return (samples.median_ms - plain.median_ms) * 1e3 / calls


def times_table(title: str, first: str, headings: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first, no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def short(reason: str) -> str:
    return reason.partition(":")[0]


def table_of(found: Measured) -> Table:
    table = times_table(f"{found.title}: {found.calls:,} torch calls, {found.ops:,} ops", "", NUMBERS)
    for row, samples in found.rows.items():
        if row == FULL:
            table.add_section()
        if isinstance(samples, str):
            table.add_row(row, short(samples))
            continue
        to_plain, to_null = (ratio(found.rows, row, to) for to in (PLAIN, KEEPING))
        add_row(table, row, samples, [to_plain, to_null, found.microseconds_per_call(row)])
    for peer in found.peers:
        table.add_section()
        add_peer(table, peer)
    return table


def add_row(table: Table, name: str, samples: Samples, numbers: list[float | None]) -> None:
    table.add_row(name, number(samples.median_ms), *map(number, numbers), number(samples.median_faults, 0))


def add_peer(table: Table, peer: Peer) -> None:
    for row, samples in peer.rows.items():
        name = f"{peer.name}: {row}" if row == PLAIN else f"  {row}"
        if isinstance(samples, str):
            table.add_row(name, short(samples))
            continue
        add_row(table, name, samples, [peer.ratio(row), None, more_per_call(peer.rows, row, peer.calls)])


def mib(size: int) -> str:
    return f"{size / MIB:,.2f} MiB"


def lines_of(found: Measured) -> list[str]:
    return [
        "; ".join(f"{name}: {module}" for name, module in found.places.items()),
        *reason_lines(found.rows, ""),
        *stopping_lines(found),
        *memory_lines(found),
        *peak_lines(found.peaks),
        *(line for peer in found.peers for line in peer_lines(found, peer)),
    ]


def reason_lines(rows: Rows, prefix: str) -> list[str]:
    """Why a row was not measured, where there is more to say than that it is not built."""
    told = {row: why for row, why in rows.items() if isinstance(why, str) and ":" in why}
    return [f"{prefix}{row} {why}"[:100] for row, why in told.items()]


def stopping_lines(found: Measured) -> list[str]:
    times = ratio(found.rows, STOPPED, CUT)
    return [] if times is None else [f"{STOPPED}: {times:.2f} of the plain forward that is cut there"]


def memory_lines(found: Measured) -> list[str]:
    memory, graph, per_op = found.memory, found.graph.median_ms, found.graph_microseconds_per_op()
    kept, storages, values = map(mib, (memory.kept_bytes, memory.storage_bytes, memory.value_bytes))
    copied = "not available" if memory.copied_bytes is None else mib(memory.copied_bytes)
    record, read = memory.record_bytes_per_op, memory.read_bytes_per_op
    return [
        f"trace.graph: {graph:,.2f} ms, {per_op:.2f} us an op",
        f"kept: {kept}; distinct storages: {storages}; every value by itself: {values}",
        f"saved before overwriting: {copied}",
        f"record: {record:,.0f} bytes an op; {read:,.0f} with layers read",
    ]


def peak_lines(peaks: Peaks) -> list[str]:
    """What a run takes at its peak beyond a plain one."""
    named = {ONE: f"{peaks.middle} kept", NOTHING: "nothing kept", FULL: "all kept"}
    lines = [f"output of {peaks.middle}: {mib(peaks.middle_bytes)}"]
    for title, found in (("no gradients", peaks.without_gradients), ("gradients", peaks.with_gradients)):
        plain = found[PLAIN] or 0
        more = [
            f", {name} + {(size - plain) / MIB:,.2f}"
            for row, name in named.items()
            if (size := found[row]) is not None
        ]
        lines.append(f"peak, {title}: plain {mib(plain)}{''.join(more)}")
    if missing := [name for row, name in named.items() if peaks.without_gradients[row] is None]:
        lines.append(f"peak: {', '.join(missing)}: {NOT_BUILT}")
    return lines


def peer_lines(found: Measured, peer: Peer) -> list[str]:
    lines = reason_lines(peer.rows, f"{peer.name}: ")
    theirs, ours = measured(peer.rows, FULL), measured(found.rows, FULL)
    if theirs and ours and peer.calls == found.calls:
        times = theirs.median_ms / ours.median_ms
        lines.append(f"{peer.name} takes {times:.1f} times as long for its trace")
    if peer.calls and peer.calls != found.calls:
        lines.append(f"{peer.name} ran {peer.calls:,} torch calls instead of {found.calls:,}")
    return lines
