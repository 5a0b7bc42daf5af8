"""Keeps others' text from moving a terminal's cursor, or beginning a line of its own.

Names, properties, reasons, keys and values come from any writer, and a terminal obeys control
characters. So both streams of the command line escape them, for all that is printed. `escaped` also
escapes the ends of lines and tabs. The escapes are those of JSON, so JSON stays as it is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, TextIO, cast

# Also what turns the direction of writing, or begins a line elsewhere than in a file.
_STRANGE: Final = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_ALL: Final = re.compile(rf"[\x00-\x1f{_STRANGE}]")
_BUT_LAYOUT: Final = re.compile(rf"[\x00-\x08\x0b-\x1f{_STRANGE}]")


def escaped(text: str) -> str:
    r"""Text of somebody else as a part of a line.

    >>> print(escaped("a\x1b[2J\n"))
    a\u001b[2J\u000a
    """
    return _ALL.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


class _Tame:
    """A text stream on which no control character goes out but the ends of lines, and tabs."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(_BUT_LAYOUT.sub(_escape, text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def tame_streams() -> None:
    """Makes both streams escape all that is printed from now on."""
    sys.stdout = cast(TextIO, _Tame(sys.stdout))
    sys.stderr = cast(TextIO, _Tame(sys.stderr))


def print_data(fields: Sequence[str], *, raw: bool = False) -> None:
    """Prints a line of messages' fields.

    It escapes them for a terminal. A program gets them as they are, and so does a terminal if
    `raw`.
    """
    out = sys.stdout.stream if isinstance(sys.stdout, _Tame) else sys.stdout
    shown = fields if raw or not out.isatty() else [escaped(field) for field in fields]
    out.write("\t".join(shown) + "\n")
    out.flush()
