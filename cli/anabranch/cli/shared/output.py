"""Output of commands: JSON for scripts, aligned columns for people."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from anabranch.cli.shared.terminal import escaped


def write_json(value: Any) -> None:
    """One JSON document on standard output, indented."""
    click.echo(msgspec.json.format(msgspec.json.encode(value)).decode())


def said_as(name: str, data: bytes | None) -> dict[str, str | None]:
    r"""Bytes as fields of a document: text, and in base 64 too where they are no UTF-8.

    >>> said_as("key", b"eve"), said_as("key", None), said_as("key", b"\xff")
    ({'key': 'eve'}, {'key': None}, {'key': '�', 'keyBase64': '/w=='})
    """
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        encoded = base64.b64encode(data).decode()
        return {name: data.decode(errors="replace"), f"{name}Base64": encoded}


def shown(data: bytes | None) -> str:
    r"""Bytes as a field of a line, as text; - for none.

    >>> shown(b"eve"), shown(None), shown(b"\xff")
    ('eve', '-', '�')
    """
    return "-" if data is None else data.decode(errors="replace")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their widest cell."""
    rows = [[escaped(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    for row in (head, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
