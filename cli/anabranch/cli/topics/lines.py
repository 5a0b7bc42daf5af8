"""Turns input of `anabranch topics produce` into messages: lines, documents, or all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import msgspec

from anabranch.core.errors import InvalidInputError


class InputMessage(msgspec.Struct, frozen=True):
    """A message to be sent; no event time: that of sending."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    event_time_ms: int | None = None

    @classmethod
    def of_line(cls, line: bytes, key: bytes | None) -> Self:
        r"""Reads a line without its end. `key`: all lines' key; the lines are then values as they
        are.

        >>> InputMessage.of_line(b"eve\tone\ttwo", None)
        InputMessage(key=b'eve', value=b'one\ttwo', headers=(), event_time_ms=None)
        >>> InputMessage.of_line(b"a\tb", b"k").value, InputMessage.of_line(b"one", None).key
        (b'a\tb', None)
        >>> InputMessage.of_line(b"\tone", None).key
        b''
        """
        if key is not None:
            return cls(key, line)
        before, tab, after = line.partition(b"\t")
        return cls(before, after) if tab else cls(None, line)

    @classmethod
    def of_document(cls, line: bytes) -> Self:
        """Reads a document as `topics consume --json` prints it. Raises InvalidInputError.

        >>> InputMessage.of_document(b'{"key": "eve", "value": null}').value is None
        True
        """
        try:
            found = msgspec.json.decode(line, type=_Document)
            headers = [_header(each) for each in found.headers]
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise InvalidInputError(
                f"{error}: give a document as `anabranch topics consume --json` prints them"
            ) from None
        value = found.value
        if value is msgspec.UNSET:
            if found.value_base64 is None:
                raise InvalidInputError(
                    "a document without value or valueBase64: write null for no value"
                )
            value = None
        return cls(
            _exact(found.key, found.key_base64),
            _exact(value, found.value_base64),
            headers,
            found.event_time_ms,
        )


class _Document(msgspec.Struct, frozen=True, rename="camel"):
    key: str | None = None
    key_base64: bytes | None = None  # msgspec decodes it
    value: str | msgspec.UnsetType | None = msgspec.UNSET
    value_base64: bytes | None = None
    headers: list[list[str | None]] = []
    event_time_ms: int | None = None


def _exact(text: str | None, data: bytes | None) -> bytes | None:
    """Returns the bytes if both are given: the text only shows them as far as it can."""
    if data is not None or text is None:
        return data
    return text.encode()


def _header(given: list[str | None]) -> tuple[str, bytes | None]:
    name, text, *data = given if len(given) in (2, 3) else (None, None)
    if name is None:
        raise msgspec.DecodeError(
            f"a header is [name, text], or [name, text, base 64 of its bytes], not {given}"
        )
    return name, _exact(text, msgspec.convert(data[0], bytes) if data else None)
