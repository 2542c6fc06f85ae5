"""The page that documents every column, docs/tables.md: its tables are written from the schemas.

`python -m tests.tables.page` writes them anew.
"""

from __future__ import annotations

import re
from pathlib import Path

from torchlens.tables.collection import KINDS

PATH = Path(__file__).parents[2] / "docs" / "tables.md"
HEAD = "| Column | Type | Unit | |\n|---|---|---|---|\n"


def rendered(name: str) -> str:
    """The columns of a table, as the page shows them."""
    lines = []
    for column in KINDS[name].columns:
        null = ", nullable" if column.nullable else ""
        lines.append(
            f"| `{column.name}` | `{column.type}`{null} | {column.unit or ''} | {column.meaning} |\n"
        )
    return HEAD + "".join(lines)


def section(name: str) -> re.Pattern[str]:
    """Where the page shows a table: under its heading, from the head on."""
    return re.compile(rf"(?<=\n## `{name}`\n)(.*?){re.escape(HEAD)}(?:\|[^\n]*\n)*", re.DOTALL)


def main() -> None:
    text = PATH.read_text(encoding="utf-8")
    for name in KINDS:
        table = rendered(name)
        text = section(name).sub(lambda found, table=table: found[1] + table, text, count=1)
    PATH.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
