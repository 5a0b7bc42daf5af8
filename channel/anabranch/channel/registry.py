"""Schemas by name, number and version, and the steps from an older version to the next.

A stored value is Avro's single-object encoding: the marker C3 01, the fingerprint of the schema
that wrote it, the body. Each record type has one file per version, `schemas/NAME.VERSION.avsc`; its
`number` is its identity and is never reused. The rest of the program sees only the newest version:
an older one is read as a dict and taken through one step per version.

A value says in its header `NAME/VERSION` the schema that wrote it. A reader stops at a value whose
schema only a newer release knows, because skipping the record would make this state differ from the
others'. Any other unreadable value is a stranger's, and every reader alike calls it unreadable.

To change a record, add the next file, change the class in `core`, and add the step from the version
before. The namespace carries the version, so every version has a fingerprint of its own. A step
gets nested records as dicts and leaves them so. A new member of an enum is a new version too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import cache
from importlib import resources
from typing import Any, Final, get_args, get_origin

import msgspec
from fastavro.schema import fingerprint, to_parsing_canonical_form

from anabranch.channel.avro import (
    Field,
    Schema,
    Shape,
    compile_decoder,
    compile_encoder,
    fields_of,
)
from anabranch.channel.errors import UnreadableError

MARKER: Final = b"\xc3\x01"
PREFIX_LENGTH: Final = 10  # marker and fingerprint
_NAMED: Final = re.compile(r"([a-z-]+)/([0-9]{1,9})")  # a header's name and version

Fields = dict[str, Any]
Step = Callable[[Fields], Fields]  # the fields of one version to those of the next


class SchemaFamily(msgspec.Struct, frozen=True):
    """All versions of one record type; `steps[n]` leads from version n to n + 1."""

    name: str
    newest: type[msgspec.Struct]
    schemas: Mapping[int, Schema]
    steps: Mapping[int, Step] = {}

    @property
    def version(self) -> int:
        """The newest version, the only one that is written."""
        return max(self.schemas)


def stored_family(
    name: str, newest: type[msgspec.Struct], steps: Mapping[int, Step] | None = None
) -> SchemaFamily:
    """A family whose schemas are the files of this package."""
    folder = resources.files("anabranch.channel") / "schemas"
    schemas: dict[int, Schema] = {}
    for file in folder.iterdir():
        stem, _, version = file.name.removesuffix(".avsc").rpartition(".")
        if stem == name:
            schemas[int(version)] = json.loads(file.read_text())
    return SchemaFamily(name, newest, schemas, steps or {})


def prefix_of(schema: Schema) -> bytes:
    """The first bytes of every value that this schema wrote."""
    canonical = to_parsing_canonical_form(dict(schema))
    return MARKER + bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))


class _Writer(msgspec.Struct, frozen=True):
    prefix: bytes
    body: Callable[[Sequence[Any]], bytes]
    header: bytes


class SchemaSet:
    """Encodes and decodes the newest form of every record of some families."""

    def __init__(self, families: Sequence[SchemaFamily]) -> None:
        self.families = tuple(families)
        self._writers: dict[type[Any], _Writer] = {}
        self._prefixes: dict[type[Any], set[bytes]] = {}
        self._readers: dict[bytes, Callable[[bytes, int], Any]] = {}
        self._versions: dict[str, int] = {}
        for family in families:
            self._add(family)

    def _add(self, family: SchemaFamily) -> None:
        if sorted(family.schemas) != list(range(1, family.version + 1)):
            raise ValueError(f"schema {family.name} must have every version from 1 on")
        if sorted(family.steps) != list(range(1, family.version)):
            raise ValueError(f"schema {family.name} needs one step from each older version")
        self._versions[family.name] = family.version
        for version, schema in family.schemas.items():
            prefix = prefix_of(schema)
            if prefix in self._readers:
                raise ValueError(f"schema {family.name}/{version} has the fingerprint of another")
            self._readers[prefix] = _reader(family, version)
            self._prefixes.setdefault(family.newest, set()).add(prefix)
        newest = family.schemas[family.version]
        said = f"{family.name}/{family.version}".encode()
        self._writers[family.newest] = _Writer(prefix_of(newest), compile_encoder(newest), said)

    def encode(self, record: msgspec.Struct) -> bytes:
        """The newest version's bytes."""
        writer = self._writers[type(record)]
        return writer.prefix + writer.body(msgspec.structs.astuple(record))

    def header(self, record: msgspec.Struct) -> bytes:
        """Names what `encode` writes: `name/version`."""
        return self._writers[type(record)].header

    def prefix(self, newest: type[msgspec.Struct]) -> bytes:
        """The first bytes of the newest version's values of this type."""
        return self._writers[newest].prefix

    def prefixes(self, newest: type[msgspec.Struct]) -> frozenset[bytes]:
        """The first bytes of all versions' values of this type."""
        return frozenset(self._prefixes[newest])

    def knows(self, value: bytes) -> bool:
        """Tells whether the value starts like a record of a known version."""
        return value[:PREFIX_LENGTH] in self._readers

    def decode(self, value: bytes) -> Any:
        """The newest form of a record of any known version. Raises UnreadableError."""
        reader = self._readers.get(value[:PREFIX_LENGTH])
        if reader is None:
            raise UnreadableError(f"{value[:PREFIX_LENGTH].hex()} starts no known schema")
        return reader(value, PREFIX_LENGTH)

    def is_newer(self, value: bytes, header: bytes | None) -> bool:
        """Tells whether the value says that its schema is one that a later release added.

        Both must say so: the value's marker with an unknown fingerprint, and the header with an
        unknown name or version. One alone is a damaged record, or a stranger's.
        """
        if header is None or not value.startswith(MARKER) or self.knows(value):
            return False
        named = _NAMED.fullmatch(header.decode(errors="replace"))
        return named is not None and int(named[2]) > self._versions.get(named[1], 0)


def _reader(family: SchemaFamily, version: int) -> Callable[[bytes, int], Any]:
    schema, newest, name = family.schemas[version], family.newest, f"{family.name}/{version}"
    if version == family.version:
        return compile_decoder(schema, _shape(schema, newest, name))
    steps = [family.steps[number] for number in range(version, family.version)]

    def stepped(**fields: Any) -> Any:
        for step in steps:
            fields = step(fields)
        return _built(newest, fields)

    return compile_decoder(schema, _shape(schema, newest, name, stepped))


def _built(struct: type[msgspec.Struct], fields: Fields) -> Any:
    """The struct of these fields, in which nested records are fields likewise, at any depth."""
    for name, inner in _nested(struct).items():
        fields[name] = tuple(_built(inner, one) for one in fields[name])
    return struct(**fields)


@cache
def _nested(struct: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    return {name: inner for name, hint in _hints(struct).items() if (inner := _record_in(hint))}


def _hints(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(struct)}


def _record_in(hint: Any) -> Any:
    """The struct that a field is a tuple of; None for any other field."""
    inner = get_args(hint)[0] if get_origin(hint) is tuple else None
    return inner if isinstance(inner, type) and issubclass(inner, msgspec.Struct) else None


def _shape(
    schema: Schema, struct: type[msgspec.Struct], name: str, make: Callable[..., Any] | None = None
) -> Shape:
    """Without `make` the newest version's: structs, whose fields and enums are the schema's.

    `make` gets an older version's fields by name, nested records as fields likewise.
    """
    fields, hints = fields_of(schema), _hints(struct)
    names = [field.name for field in fields]
    if make is None and names != list(hints):
        raise ValueError(f"schema {name} and {struct.__name__} differ")
    members: dict[str, tuple[IntEnum, ...]] = {}
    nested: dict[str, Shape] = {}
    for field in fields:
        if field.kind == "enum":
            members[field.name] = _members(field, hints[field.name], name, exact=make is None)
        elif field.kind == "records":
            inner, within = _record_in(hints[field.name]), f"{name}.{field.name}"
            nested[field.name] = _shape(field.type, inner, within, None if make is None else dict)
    if make is None:
        return Shape(struct, members, nested)
    return Shape(lambda *values: make(**dict(zip(names, values, strict=True))), members, nested)


def _members(field: Field, enum: type[IntEnum], name: str, *, exact: bool) -> tuple[IntEnum, ...]:
    """Returns what an enum field's indexes stand for; an old version may know fewer."""
    symbols = field.type["symbols"]
    members = tuple(enum)
    known = [member.name for member in members]
    agrees = symbols == known if exact else symbols == known[: len(symbols)]
    if not agrees or [int(member) for member in members] != list(range(len(members))):
        raise ValueError(f"{name}.{field.name}: schema and enum differ: {symbols}")
    return members[: len(symbols)]
