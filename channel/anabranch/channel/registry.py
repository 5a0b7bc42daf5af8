"""Schemas by name, number and version, and the steps from an older version to the next.

A stored value is Avro's single-object encoding: the marker C3 01, the fingerprint of the schema
that wrote it, the body. Each record type has one file per version, `schemas/NAME.VERSION.avsc`; its
`number` is its identity and is never reused. The rest of the program sees only the newest version:
an older one is read as a dict and taken through one step per version.

To change a record: add the next file (field `since` says which version added it; the namespace
carries the version, so every version has a fingerprint of its own), change the class in `core`, and
add the step from the version before. A new member of an enum is a new version too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from importlib import resources
from typing import Any, Final

import msgspec
from fastavro.schema import fingerprint, to_parsing_canonical_form

from anabranch.channel.avro import compile_decoder, compile_encoder, field_kind
from anabranch.channel.errors import UnreadableError

MARKER: Final = b"\xc3\x01"
PREFIX_LENGTH: Final = 10  # marker and fingerprint

Fields = dict[str, Any]
Step = Callable[[Fields], Fields]  # the fields of one version to those of the next
Schema = Mapping[str, Any]


class Family(msgspec.Struct, frozen=True):
    """All versions of one record type; `steps[n]` leads from version n to n + 1."""

    name: str
    newest: type[msgspec.Struct]
    schemas: Mapping[int, Schema]
    steps: Mapping[int, Step] = {}

    @property
    def version(self) -> int:
        """The newest version, the only one that is written."""
        return max(self.schemas)


def stored_family(name: str, newest: type[msgspec.Struct], steps: Mapping[int, Step]) -> Family:
    """A family whose schemas are the files of this package."""
    folder = resources.files("anabranch.channel") / "schemas"
    schemas: dict[int, Schema] = {}
    for file in folder.iterdir():
        stem, _, version = file.name.removesuffix(".avsc").rpartition(".")
        if stem == name:
            schemas[int(version)] = json.loads(file.read_text())
    return Family(name, newest, schemas, steps)


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

    def __init__(self, families: Sequence[Family]) -> None:
        self._writers: dict[type[Any], _Writer] = {}
        self._readers: dict[bytes, Callable[[bytes, int], Any]] = {}
        self._versions: dict[str, int] = {}
        for family in families:
            self._add(family)

    def _add(self, family: Family) -> None:
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
        schema = family.schemas[family.version]
        self._writers[family.newest] = _Writer(
            prefix_of(schema), compile_encoder(schema), f"{family.name}/{family.version}".encode()
        )

    def encode(self, record: msgspec.Struct) -> bytes:
        """The newest version's bytes."""
        writer = self._writers[type(record)]
        return writer.prefix + writer.body(msgspec.structs.astuple(record))

    def header(self, record: msgspec.Struct) -> bytes:
        """`name/version` of what `encode` writes."""
        return self._writers[type(record)].header

    def prefix(self, newest: type[msgspec.Struct]) -> bytes:
        """The first bytes of what `encode` writes for this type."""
        return self._writers[newest].prefix

    def knows(self, value: bytes) -> bool:
        """Whether the value starts like a record of a known version."""
        return value[:PREFIX_LENGTH] in self._readers

    def decode(self, value: bytes) -> Any:
        """The newest form of a record of any known version. Raises UnreadableError."""
        reader = self._readers.get(value[:PREFIX_LENGTH])
        if reader is None:
            raise UnreadableError(f"{value[:PREFIX_LENGTH].hex()} starts no known schema")
        return reader(value, PREFIX_LENGTH)

    def is_newer(self, value: bytes, header: bytes | None) -> bool:
        """Whether the value is by its own words of a schema that a later release added.

        Both must say so, the value's marker with an unknown fingerprint and the header with an
        unknown name or version; one alone is just a damaged record.
        """
        if header is None or not value.startswith(MARKER) or self.knows(value):
            return False
        name, slash, version = header.decode(errors="replace").partition("/")
        if not slash or not name or not version.isascii() or not version.isdecimal():
            return False
        return int(version) > self._versions.get(name, 0)


def _reader(family: Family, version: int) -> Callable[[bytes, int], Any]:
    schema = family.schemas[version]
    newest = family.newest
    enums = _enums(family, schema, exact=version == family.version)
    if version == family.version:
        names = [field["name"] for field in schema["fields"]]
        if names != list(newest.__struct_fields__):
            raise ValueError(f"schema {family.name}/{version} and {newest.__name__} differ")
        return compile_decoder(schema, enums, newest)
    names = [field["name"] for field in schema["fields"]]
    steps = [family.steps[number] for number in range(version, family.version)]

    def upcast(*values: Any) -> Any:
        fields = dict(zip(names, values, strict=True))
        for step in steps:
            fields = step(fields)
        return newest(**fields)

    return compile_decoder(schema, enums, upcast)


def _enums(family: Family, schema: Schema, *, exact: bool) -> dict[str, tuple[IntEnum, ...]]:
    """The members that each enum field's indexes stand for; an old version may know fewer."""
    hints = {field.name: field.type for field in msgspec.structs.fields(family.newest)}
    found: dict[str, tuple[IntEnum, ...]] = {}
    for field in schema["fields"]:
        if field_kind(field["type"]) != "enum":
            continue
        symbols = field["type"]["symbols"]
        members = tuple(hints[field["name"]])
        known = [member.name for member in members]
        agrees = symbols == known if exact else symbols == known[: len(symbols)]
        if not agrees or [int(member) for member in members] != list(range(len(members))):
            raise ValueError(f"{family.name}.{field['name']}: schema and enum differ: {symbols}")
        found[field["name"]] = members[: len(symbols)]
    return found
