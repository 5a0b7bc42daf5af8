"""How commands print: JSON for scripts, aligned columns for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec


def write_json(value: Any) -> None:
    """One JSON document on standard output, indented."""
    click.echo(msgspec.json.format(msgspec.json.encode(value)).decode())


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their widest cell."""
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    for row in (head, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
