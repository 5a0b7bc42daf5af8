"""Reads files of properties to the letter of `java.util.Properties.load`, and of Python's sections.

Kafka's own tools read their files so. No kept library is taken: each would add a dependency to the
SDK for these lines, and none tells the line of an entry, which a refusal has to name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_NATURAL: Final = re.compile(r"\r\n|\n|\r")  # `splitlines` splits on more, which belong to values
_WHITE: Final = " \t\f"
_BACKSLASHES: Final = re.compile(r"\\*\Z")
# A name ends at the first separator without a backslash. At most one of "=" and ":" follows it.
_PARTS: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_DEFAULT: Final = "default"
_BYTE_ORDER: Final = "\ufeff"


class NotTakenError(ValueError):
    """A value cannot be taken. The message has the remedy, and no part of the value."""


class NameValue(NamedTuple):
    """A name with its value, and the place that it comes from, such as "line 3"."""

    name: str
    value: str
    where: str

    def __repr__(self) -> str:
        return f"NameValue({self.name!r}, {self.where!r})"  # the value may be a secret


def decoded(content: bytes) -> str:
    """Returns the text: UTF-8 without a byte order mark, else ISO 8859-1 as Java reads it."""
    try:
        return content.decode("utf-8").removeprefix(_BYTE_ORDER)
    except UnicodeDecodeError:
        return content.decode("latin-1")


def entries(text: str) -> list[NameValue]:
    """Returns all entries in their order, a name given twice among them. Raises NotTakenError."""
    found = []
    for line, number in _logical_lines(text):
        name, value = _PARTS.fullmatch(line).groups()  # type: ignore[union-attr] # takes any text
        where = f"line {number}"
        found.append(NameValue(_unescaped(name, where), _unescaped(value, where), where))
    return found


def unsectioned(found: list[NameValue]) -> tuple[list[NameValue], list[str]]:
    """Returns the entries before any section and in `[default]`, and the names of the sections left
    out. Files of Python's configparser have sections, and comments after ";" too.
    """
    section, kept, left_out = _DEFAULT, [], []
    for entry in found:
        header = f"{entry.name} {entry.value}".strip()
        if header.startswith("[") and header.endswith("]"):
            section = header[1:-1].strip()
            if section.lower() != _DEFAULT:
                left_out.append(section)
        elif section.lower() == _DEFAULT:
            kept.append(entry)
    if section != _DEFAULT or left_out or len(kept) < len(found):
        kept = [entry for entry in kept if not entry.name.startswith(";")]
    return kept, left_out


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    """Yields lines without comments, joined where a backslash prolongs one, and the number of the
    first line of each.
    """
    joined, begun = "", 0
    for number, natural in enumerate(_NATURAL.split(text), 1):
        line = natural.lstrip(_WHITE)
        if not joined and (not line or line[0] in "#!"):
            continue
        begun = begun if joined else number
        joined += line
        if len(_BACKSLASHES.search(line).group()) % 2:  # type: ignore[union-attr] # may be empty
            joined = joined[:-1]
        else:
            yield joined, begun
            joined = ""
    if joined:
        yield joined, begun


def _unescaped(text: str, where: str) -> str:
    """Returns the text without its escapes. Raises NotTakenError."""

    def plain(match: re.Match[str]) -> str:
        what = match[1]
        if what == "u":
            raise NotTakenError(f"{where}: \\u wants four hexadecimal digits; double a backslash")
        return chr(int(what[1:], 16)) if what[0] == "u" else _ESCAPED.get(what, what)

    units = _ESCAPE.sub(plain, text)
    try:  # Java's characters are halves of some of ours
        return units.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise NotTakenError(f"{where}: \\u names half a character; give both halves") from None
