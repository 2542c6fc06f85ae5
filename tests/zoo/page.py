"""The page that lists the zoo: docs/zoo.md, the same from every run with the same packages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path

from tests.zoo.catalogue import FILES, SPREAD
from tests.zoo.entry import FAMILIES, Entry
from tests.zoo.examination import Findings

PATH = Path(__file__).parents[2] / "docs" / "zoo.md"

HEAD = """\
# The zoo

Real architectures with random weights, each run plainly and under `tl.trace` from one seed. For each of them
the traced output has the same bits as the plain one, every op names its layer and module, the witness
accounts for every operator that torch dispatched, `tl.validate` finds nothing that fails, and the trace
answers the same when it was saved and loaded. `tox -e zoo`
runs them all and writes this page; the models in bold run with every `tox`.

*Verified*: every tensor's origin was seen (`trace.provenance.verified`), or the reason for which it was not.
*Validated*: each call made again on its recorded inputs gave its recorded value, the rules of the record
hold, and a plain forward gives the same; "but for 2" counts what could not be checked: mostly memory that
`empty` gave and nothing had written yet, and caches in an output. Where torchvision's compiled operators fit
the torch beside it, its detectors have other ops than here.
"""


@dataclass(frozen=True)
class Line:
    """One model's line of the table, as text."""

    model: str
    package: str
    family: str
    parameters: str
    ops: str
    layers: str
    verified: str
    validated: str
    notes: str

    @classmethod
    def parse(cls, text: str) -> Line:
        return cls(*(cell.strip() for cell in text.strip("|").split("|")))

    def __str__(self) -> str:
        return f"| {' | '.join(asdict(self).values())} |"


def line_of(entry: Entry, findings: Findings) -> Line:
    but = f", but for {findings.unchecked}" if findings.unchecked else ""
    return Line(
        f"**{entry.name}**" if (entry.package, entry.name) in SPREAD else entry.name,
        entry.package,
        entry.family,
        f"{findings.parameters:,}",
        f"{findings.ops:,}",
        f"{findings.layers:,}",
        findings.verified,
        f"yes{but}",
        entry.notes,
    )


def page(lines: Sequence[Line]) -> str:
    packages = ", ".join(f"{name} {version(name).partition('+')[0]}" for name in ("torch", *FILES))
    counts = Counter(line.family for line in lines)
    families = ", ".join(f"{family} {counts[family]}" for family in FAMILIES)
    rule = "| --- | --- | --- | ---: | ---: | ---: | --- | --- | --- |"
    table = [str(Line(*(field.name for field in fields(Line)))), rule, *map(str, lines)]
    return "\n".join([HEAD, f"{len(lines)} models, of {packages}.\n", f"{families}.\n", *table]) + "\n"


def lines_in(text: str) -> list[Line]:
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    return [Line.parse(row) for row in rows[2:]]
