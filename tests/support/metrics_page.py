"""The tables of metrics: docs/metrics.md has a node's, docs/containers.md those of the audits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
_LINE: Final = re.compile(r"\| `([\w{},]+)` \| (\w+) \| ([^|]*) \| (.+) \|")
_ALTERNATIVES: Final = re.compile(r"\{([\w,]+)\}")


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
    """Every row of the page; `x_{a,b}` stands for the two metrics `x_a` and `x_b`."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    rows = (Row(*found.groups()) for found in _LINE.finditer(text))
    return [row._replace(name=name) for row in rows for name in _names(row.name)]


def _names(pattern: str) -> Iterator[str]:
    parts = _ALTERNATIVES.split(pattern)  # odd ones are alternatives
    for chosen in product(*(each.split(",") if n % 2 else (each,) for n, each in enumerate(parts))):
        yield "".join(chosen)
