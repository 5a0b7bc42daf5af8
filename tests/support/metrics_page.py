"""The tables of metrics: docs/metrics.md has a node's, docs/containers.md those of the audits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
_LINE: Final = re.compile(r"\| `(\w+)` \| (\w+) \| ([^|]*) \| (.+) \|")


class Row(NamedTuple):
    """One metric; `name` of a counter ends in `_total`, as it is shown."""

    name: str
    kind: str
    labels: str
    meaning: str

    def line(self) -> str:
        """As the page has it."""
        return f"| `{self.name}` | {self.kind} | {self.labels} | {self.meaning} |"


def documented(page: str = "metrics.md") -> list[Row]:
    """Every row of the page."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    return [Row(*found.groups()) for found in _LINE.finditer(text)]
