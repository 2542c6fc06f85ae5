"""The figures of one case, as a table and as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from memory import Memory
from rows import FULL, KEEPING, NOTHING, PLAIN, UNCHECKED, WITNESS
from timing import Samples

MIB = 1 << 20


@dataclass
class Peer:
    version: str
    plain: Samples
    trace: Samples


@dataclass
class Measured:
    title: str
    calls: int
    ops: int
    rows: dict[str, Samples]
    graph: Samples
    memory: Memory
    peer: Peer | None = None

    def ratio(self, row: str, to: str) -> float:
        return self.rows[row].median_ms / self.rows[to].median_ms

    def microseconds_per_call(self, row: str) -> float:
        """What a call costs more than in the plain forward."""
        return (self.rows[row].median_ms - self.rows[PLAIN].median_ms) * 1e3 / self.calls

    def graph_microseconds_per_op(self) -> float:
        return self.graph.median_ms * 1e3 / self.ops

    def as_data(self) -> dict[str, Any]:
        ratios = {row: {to: self.ratio(row, to) for to in (PLAIN, KEEPING)} for row in self.rows}
        per_call = {row: self.microseconds_per_call(row) for row in self.rows}
        return {
            **asdict(self),
            "ratios": ratios,
            "microseconds_per_call": per_call,
            "graph_microseconds_per_op": self.graph_microseconds_per_op(),
        }


def rich_of(measured: Measured) -> Group:
    return Group(table_of(measured), *(Text(line) for line in lines_of(measured)), Text())


def table_of(measured: Measured) -> Table:
    title = f"{measured.title}: {measured.calls:,} torch calls, {measured.ops:,} ops"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for heading in ("ms", "x plain", "x null", "us/call more", "page faults"):
        table.add_column(heading, justify="right")
    for row in (PLAIN, KEEPING, NOTHING, UNCHECKED, FULL, WITNESS):
        if row not in measured.rows:
            table.add_row(row, "not available")
            continue
        samples = measured.rows[row]
        table.add_row(
            row,
            f"{samples.median_ms:,.2f}",
            f"{measured.ratio(row, PLAIN):.2f}",
            f"{measured.ratio(row, KEEPING):.2f}",
            f"{measured.microseconds_per_call(row):.2f}",
            f"{samples.median_faults:,.0f}",
        )
    if measured.peer is not None:
        add_peer(table, measured.peer, measured.calls)
    return table


def add_peer(table: Table, peer: Peer, calls: int) -> None:
    for name, samples in ((PLAIN, peer.plain), (FULL, peer.trace)):
        more = (samples.median_ms - peer.plain.median_ms) * 1e3 / calls
        table.add_row(
            f"release {peer.version}: {name}",
            f"{samples.median_ms:,.2f}",
            f"{samples.median_ms / peer.plain.median_ms:.2f}",
            "",
            f"{more:.2f}",
            f"{samples.median_faults:,.0f}",
        )


def mib(number: int) -> str:
    return f"{number / MIB:,.2f} MiB"


def lines_of(measured: Measured) -> list[str]:
    memory, graph, per_op = measured.memory, measured.graph.median_ms, measured.graph_microseconds_per_op()
    kept, storages, values = map(mib, (memory.kept_bytes, memory.storage_bytes, memory.value_bytes))
    copied = "not available" if memory.copied_bytes is None else mib(memory.copied_bytes)
    record, read = memory.record_bytes_per_op, memory.read_bytes_per_op
    lines = [
        f"trace.graph: {graph:,.2f} ms, {per_op:.2f} us an op",
        f"kept: {kept}; distinct storages: {storages}; every value by itself: {values}",
        f"saved before overwriting: {copied}",
        f"record: {record:,.0f} bytes an op; {read:,.0f} with layers read",
    ]
    if measured.peer is not None:
        times = measured.peer.trace.median_ms / measured.rows[FULL].median_ms
        lines.append(f"release {measured.peer.version} takes {times:.1f} times as long for its trace")
    return lines
