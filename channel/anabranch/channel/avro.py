"""Avro's binary encoding of flat records, compiled from the schema into straight-line code.

Replay decodes every record of the log and start-up peeks into a million units, so this is the
hottest code of a node. A record of ours is flat (strings, longs, enums, booleans, doubles), which
makes its decoder one expression per field. Generated, it takes about a third of the time of
fastavro's general reader (docs/decisions). A field may also be an array of strings, of longs or of
one kind of flat record. The array's code is a loop around the same expressions. A property test
holds the two codecs equal.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from anabranch.channel.errors import UnreadableError

Decoder = Callable[[bytes, int], Any]  # bytes and where the body starts
Schema = Mapping[str, Any]


class Shape(msgspec.Struct, frozen=True):
    """The object that a schema's bytes become: `make` gets the record's fields in the schema's
    order.
    """

    make: Callable[..., Any]
    members: Mapping[str, Sequence[Any]] = {}  # by enum field: its values by index
    nested: Mapping[str, Shape] = {}  # by field that is an array of records: one of them


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
    "longs": "if data[at]: {f}, at = longs(data, at)\nelse:\n {f} = ()\n at += 1\n",
    "records": "if data[at]: {f}, at = {f}_records(data, at)\nelse:\n {f} = ()\n at += 1\n",
}


class Field(msgspec.Struct, frozen=True):
    """One field of a schema; `type` is its own definition, also where the schema only names it."""

    name: str
    kind: str
    type: Any


def fields_of(schema: Schema) -> list[Field]:
    """The fields in order. Raises ValueError for a type that is not supported."""
    found = []
    for field in _inlined(schema, {})["fields"]:
        of = field["type"]
        if isinstance(of, dict) and of["type"] == "array":
            of = of["items"]
            kind = "records" if isinstance(of, dict) and of["type"] == "record" else f"{of}s"
        else:
            kind = of if isinstance(of, str) else of["type"]
        if kind not in _TEMPLATES:
            raise ValueError(f"Avro type {field['type']!r} is not one of {', '.join(_TEMPLATES)}")
        found.append(Field(field["name"], kind, of))
    if not found:
        raise ValueError(f"{schema['name']} has no fields, so its bytes would say nothing")
    return found


def _inlined(of: Any, named: dict[str, Any]) -> Any:
    """A type with its definitions in place of names. Avro lets a schema define a type at its first
    use and name it from there on (`named`: the ones so far).
    """
    if isinstance(of, str):
        return named.get(of, of)
    found = dict(of)
    if "items" in of:
        found["items"] = _inlined(of["items"], named)
    if "fields" in of:
        fields = of["fields"]
        found["fields"] = [{**one, "type": _inlined(one["type"], named)} for one in fields]
    if "name" in of:
        named[of["name"]] = found
    return found


def compile_decoder(schema: Schema, shape: Shape) -> Decoder:
    """A function that reads one record of the shape.

    It raises UnreadableError unless exactly the bytes from the start of the body to the end are a
    record of this schema.
    """
    lines, scope, made = _reading(schema, shape)
    indented = "".join(f"  {line}\n" for line in lines)
    source = (
        f"def decode(data, at):\n try:\n{indented}"
        "  if at != len(data): raise ValueError(f'it ends at byte {at} of {len(data)}')\n"
        f"  return {made}\n"
        " except faults as error:\n"
        f"  raise unreadable(f'not a record of {schema['name']}: {{error}}') from error\n"
    )
    scope |= {"faults": _BODY_FAULTS, "unreadable": UnreadableError}
    decoder: Decoder = _compiled("decode", schema["name"], source, scope)
    return decoder


def _compiled(function: str, name: str, source: str, scope: dict[str, Any]) -> Any:
    """The function of that name that the source defines; the names of `scope` are its globals."""
    # The source is made from our own committed schemas, like a namedtuple's __new__.
    exec(compile(source, f"<{function} {name}>", "exec"), scope)  # noqa: S102
    return scope[function]


def _reading(schema: Schema, shape: Shape) -> tuple[list[str], dict[str, Any], str]:
    """The lines that read a record's fields, the names they use, and the expression that makes it.

    A text or a number may end after the data; the next read, or a comparison of `at`, finds that
    out.
    """
    scope: dict[str, Any] = {
        "make": shape.make,
        "long": _long,
        "length": read_length,
        "strings": _strings,
        "longs": _longs,
        "double": _DOUBLE.unpack_from,
        "booleans": (False, True),
    }
    lines: list[str] = []
    fields = fields_of(schema)
    for number, field in enumerate(fields):
        lines += _TEMPLATES[field.kind].format(f=f"f{number}").splitlines()
        if field.kind == "enum":
            scope[f"f{number}_members"] = tuple(shape.members[field.name])
        elif field.kind == "records":
            scope[f"f{number}_records"] = _compile_array(
                field.type["name"], *_reading(field.type, shape.nested[field.name])
            )
    return lines, scope, f"make({', '.join(f'f{number}' for number in range(len(fields)))})"


def _compile_array(name: str, lines: Sequence[str], scope: dict[str, Any], made: str) -> Any:
    """A function that reads an array of the items that the lines read. It returns the array, and
    the start of the next field.

    Arrays are blocks, each with its count (negative: then its size follows). The function raises
    ValueError, IndexError or struct.error. An item takes a byte at least, so a count that is beyond
    the data soon fails.
    """
    indented = "".join(f"   {line}\n" for line in lines)
    source = (
        "def read(data, at):\n found = []\n count, at = long(data, at)\n while count:\n"
        "  if count < 0:\n   count = -count\n   _, at = length(data, at)\n"
        f"  for _ in range(count):\n{indented}   found.append({made})\n"
        "  count, at = long(data, at)\n return tuple(found), at\n"
    )
    return _compiled("read", name, source, {"long": _long, "length": read_length, **scope})


_strings = _compile_array("strings", _TEMPLATES["string"].format(f="f").splitlines(), {}, "f")
_longs = _compile_array("longs", _TEMPLATES["long"].format(f="f").splitlines(), {}, "f")


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


def _write_longs(numbers: Sequence[int]) -> bytes:
    return b"".join((_write_long(len(numbers)), *map(_write_long, numbers), b"\0"))


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
    "longs": ("", "longs({f}) if {f} else nothing"),
    "records": ("", "{f}_records({f}) if {f} else nothing"),
}


def compile_encoder(schema: Schema) -> Callable[[Sequence[Any]], bytes]:
    """A function that writes the values of one record, given in the order of its fields.

    The records of an array are msgspec structs, whose fields are those of their schema.
    """
    fields = fields_of(schema)
    names = [f"f{number}" for number in range(len(fields))]
    pieces = [
        tuple(text.format(f=name) for text in _PIECES[field.kind])
        for name, field in zip(names, fields, strict=True)
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
        "longs": _write_longs,
        "double": _DOUBLE.pack,
        "nothing": b"\0",
        "yes": b"\1",
    }
    for name, field in zip(names, fields, strict=True):
        if field.kind == "records":
            scope[f"{name}_records"] = _array_writer(compile_encoder(field.type))
    encoder: Callable[[Sequence[Any]], bytes] = _compiled("encode", schema["name"], source, scope)
    return encoder


def _array_writer(
    encode: Callable[[Sequence[Any]], bytes],
) -> Callable[[Sequence[msgspec.Struct]], bytes]:
    def write(records: Sequence[msgspec.Struct]) -> bytes:
        bodies = (encode(msgspec.structs.astuple(record)) for record in records)
        return b"".join((_write_long(len(records)), *bodies, b"\0"))

    return write
