"""Avro's binary encoding of flat records, compiled from the schema into straight-line code.

Replay decodes every record of the log and start-up peeks into a million units, so this is the
hottest code of a node. A record of ours is flat (strings, longs, enums, booleans, doubles, arrays
of strings), which makes its decoder one expression per field; generated, it takes about a third of
the time of fastavro's general reader (docs/decisions). A property test holds the two equal.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from anabranch.channel.errors import UnreadableError

Decoder = Callable[[bytes, int], Any]  # bytes and where the body starts

_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1
_DOUBLE: Final = struct.Struct("<d")
_BODY_FAULTS: Final = (IndexError, ValueError, struct.error)


# --- decoding -------------------------------------------------------------------------------


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag variable-length number, and where the next field starts. Raises ValueError."""
    byte = data[at]
    number = byte & 0x7F
    if byte > 0x7F:  # one or two bytes more are what most offsets and lengths need
        at += 1
        byte = data[at]
        number |= (byte & 0x7F) << 7
        shift = 7
        while byte > 0x7F:
            at += 1
            byte = data[at]
            shift += 7
            if shift > 63:
                raise ValueError("a number is longer than 64 bits")
            number |= (byte & 0x7F) << shift
        if number >> 64:
            raise ValueError("a number is longer than 64 bits")
    return (number >> 1) ^ -(number & 1), at + 1


def read_length(data: bytes, at: int) -> tuple[int, int]:
    """The length that a string starts with, and where its bytes are. Raises ValueError."""
    length, at = _long(data, at)
    if length < 0:
        raise ValueError("a length is negative")
    return length, at


def _strings(data: bytes, at: int) -> tuple[tuple[str, ...], int]:
    """An array of strings: blocks, each with its count (negative: then its size follows)."""
    found: list[str] = []
    count, at = _long(data, at)
    while count:
        if count < 0:
            count = -count
            _, at = read_length(data, at)
        for _ in range(count):
            length, at = read_length(data, at)
            if at + length > len(data):
                raise ValueError("a string ends after the record")
            found.append(data[at : at + length].decode())
            at += length
        count, at = _long(data, at)
    return tuple(found), at


# The first byte of a number says all about it when neither bit 7 (more follow) nor bit 0
# (negative) is set: that is the fast path of every template.
_TEMPLATES: Final = {
    "long": "{f} = data[at]\nif {f} & 129: {f}, at = long(data, at)\nelse:\n {f} >>= 1\n at += 1\n",
    "string": "size = data[at]\nif size & 129: size, at = length(data, at)\n"
    "else:\n size >>= 1\n at += 1\n"
    "end = at + size\n{f} = data[at:end].decode()\nat = end\n",
    "enum": "{f} = data[at]\nif {f} & 129: raise ValueError('an enum is out of range')\n"
    "{f} = {f}_members[{f} >> 1]\nat += 1\n",
    "boolean": "{f} = booleans[data[at]]\nat += 1\n",
    "double": "{f} = double(data, at)[0]\nat += 8\n",
    "strings": "if data[at]: {f}, at = strings(data, at)\nelse:\n {f} = ()\n at += 1\n",
}


def field_kind(schema: Any) -> str:
    """Which of the supported kinds a field's schema is. Raises ValueError for any other."""
    if isinstance(schema, str):
        kind = schema
    elif schema["type"] == "array":
        kind = f"{schema['items']}s"
    else:
        kind = str(schema["type"])
    if kind not in _TEMPLATES:
        raise ValueError(f"Avro type {schema!r} is not one of {', '.join(_TEMPLATES)}")
    return kind


def compile_decoder(
    schema: Mapping[str, Any], members: Mapping[str, Sequence[Any]], make: Callable[..., Any]
) -> Decoder:
    """A function that reads one record and passes its fields, in order, to `make`.

    `members` gives the values of each enum field by index. The function raises UnreadableError
    unless exactly the bytes from the start of the body to the end are a record of this schema.
    """
    fields = schema["fields"]
    names = [f"f{number}" for number in range(len(fields))]
    lines = [
        _TEMPLATES[field_kind(field["type"])].format(f=name)
        for name, field in zip(names, fields, strict=True)
    ]
    body = "".join(lines) + (
        "if at != len(data): raise ValueError(f'it ends at byte {at} of {len(data)}')\n"
        f"return make({', '.join(names)})\n"
    )
    indented = "".join(f"  {line}\n" for line in body.splitlines())
    source = (
        f"def decode(data, at):\n try:\n{indented}"
        " except faults as error:\n"
        f"  raise unreadable(f'not a record of {schema['name']}: {{error}}') from error\n"
    )
    scope: dict[str, Any] = {
        "make": make,
        "long": _long,
        "length": read_length,
        "strings": _strings,
        "double": _DOUBLE.unpack_from,
        "booleans": (False, True),
        "faults": _BODY_FAULTS,
        "unreadable": UnreadableError,
    }
    for name, field in zip(names, fields, strict=True):
        if field["name"] in members:
            scope[f"{name}_members"] = tuple(members[field["name"]])
    # The source is made from our own committed schemas, like a namedtuple's __new__.
    exec(compile(source, f"<decoder of {schema['name']}>", "exec"), scope)  # noqa: S102
    decoder: Decoder = scope["decode"]
    return decoder


# --- encoding -------------------------------------------------------------------------------


def _varint(number: int) -> bytes:
    if not _LONG_MIN <= number <= _LONG_MAX:
        raise ValueError(f"{number} does not fit an Avro long")
    zigzag = (number << 1) ^ (number >> 63)
    if 1 << 35 <= zigzag < 1 << 42:  # a time in milliseconds, until the year 2039
        return bytes(
            (
                zigzag & 0x7F | 0x80,
                zigzag >> 7 & 0x7F | 0x80,
                zigzag >> 14 & 0x7F | 0x80,
                zigzag >> 21 & 0x7F | 0x80,
                zigzag >> 28 & 0x7F | 0x80,
                zigzag >> 35,
            )
        )
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


_SMALL: Final = tuple(_varint(number) for number in range(1024))


def _write_long(number: int) -> bytes:
    return _SMALL[number] if 0 <= number < 1024 else _varint(number)


def _write_string(text: str) -> bytes:
    data = text.encode()
    return _write_long(len(data)) + data


def _write_strings(texts: Sequence[str]) -> bytes:
    if not texts:
        return b"\0"
    return b"".join((_write_long(len(texts)), *map(_write_string, texts), b"\0"))


# For each kind, a statement that comes before the join, and the pieces that go into it.
_PIECES: Final = {
    "long": ("", "small[{f}] if 0 <= {f} < 1024 else varint({f})"),
    "enum": ("", "small[{f}]"),
    "string": (
        "{f} = {f}.encode()\n{f}_size = len({f})",
        "small[{f}_size] if {f}_size < 1024 else varint({f}_size), {f}",
    ),
    "boolean": ("", "yes if {f} else nothing"),
    "double": ("", "double({f})"),
    "strings": ("", "strings({f}) if {f} else nothing"),
}


def compile_encoder(schema: Mapping[str, Any]) -> Callable[[Sequence[Any]], bytes]:
    """A function that writes the values of one record, given in the order of its fields."""
    names = [f"f{number}" for number in range(len(schema["fields"]))]
    pieces = [
        tuple(text.format(f=name) for text in _PIECES[field_kind(field["type"])])
        for name, field in zip(names, schema["fields"], strict=True)
    ]
    lines = [
        f"{', '.join(names)}, = values",
        *(line for before, _ in pieces for line in before.splitlines()),
        f"return join(({', '.join(piece for _, piece in pieces)},))",
    ]
    source = "def encode(values):\n" + "".join(f" {line}\n" for line in lines)
    scope: dict[str, Any] = {
        "join": b"".join,
        "small": _SMALL,
        "varint": _varint,
        "strings": _write_strings,
        "double": _DOUBLE.pack,
        "nothing": b"\0",
        "yes": b"\1",
    }
    # As for the decoder: the source is made from our own committed schemas.
    exec(compile(source, f"<encoder of {schema['name']}>", "exec"), scope)  # noqa: S102
    encoder: Callable[[Sequence[Any]], bytes] = scope["encode"]
    return encoder
