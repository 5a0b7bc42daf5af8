"""Where a report goes: a table or JSON on standard output, JSON in a file, a page."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class Reported(Protocol):
    """What was found, for programs."""

    def json(self) -> str: ...


def write(
    found: Reported,
    table: Callable[[], str],
    page: Callable[[], str],
    json_path: str,
    html_path: Path | None,
) -> None:
    """`json_path`: "-" for JSON in place of the table, "" for none."""
    if json_path == "-":
        sys.stdout.write(found.json() + "\n")
    else:
        sys.stdout.write(table())
        if json_path:
            Path(json_path).write_text(found.json() + "\n", encoding="utf-8")
    if html_path is not None:
        html_path.write_text(page(), encoding="utf-8")
        if json_path != "-":
            sys.stdout.write(f"report: {html_path}\n")
