"""Schemas by name, number and version, and the steps from an older version to the next.

A stored value is Avro's single-object encoding: the marker C3 01, the fingerprint of the schema
that wrote it, the body. Each record type has one file per version, `schemas/NAME.VERSION.avsc`; its
`number` is its identity and is never reused. The rest of the program sees only the newest version:
an older one is read as a dict and taken through one step per version.

A reader stops at a value that says of itself, in its header, that a newer version of a schema it
knows wrote it: to skip the record would make this state differ from the others'. Whatever else it
cannot read is a stranger's, and every reader alike calls it unreadable. A type of record that a
release adds would be such a stranger's to the release before. So the header of a type that came
with a later *edition* of the log than the first (`SchemaFamily.edition`) names that edition beside
the schema, `NAME/VERSION log/EDITION`, and `log` is a name that every reader knows.

To change a record: add the next file (field `since` says which version added it; the namespace
carries the version, so every version has a fingerprint of its own), change the class in `core`, and
add the step from the version before; a step gets nested records as dicts and leaves them so. A new
member of an enum is a new version too. Where a field at the end will mostly hold nothing, the
version without it goes on to be written and read as it is (`SchemaFamily.plain`): such records grow
by no byte, and a release before stops only where the field says something.
"""

from __future__ import annotations

import json
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
EDITION: Final = 4  # of the log: raised by a release that adds a type of record
_THE_LOG: Final = "log"  # in the place of a schema's name
_DIGITS_MAX: Final = 9  # of a version

Fields = dict[str, Any]
Step = Callable[[Fields], Fields]  # the fields of one version to those of the next


class SchemaFamily(msgspec.Struct, frozen=True):
    """All versions of one record type; `steps[n]` leads from version n to n + 1.

    `edition`: of the log, with which the type came. `plain`: the version that is written where the
    fields hold nothing that later ones have added at the end; no step leads on from it. 0 for none.
    """

    name: str
    newest: type[msgspec.Struct]
    schemas: Mapping[int, Schema]
    steps: Mapping[int, Step] = {}
    edition: int = 1
    plain: int = 0

    @property
    def version(self) -> int:
        """The newest version, the only one that is written, but for the plain one."""
        return max(self.schemas)

    @property
    def stepped(self) -> int:
        """The version up to which steps lead; from there on fields are added that hold nothing."""
        return self.plain or self.version


def stored_family(
    name: str,
    newest: type[msgspec.Struct],
    steps: Mapping[int, Step],
    edition: int = 1,
    plain: int = 0,
) -> SchemaFamily:
    """A family whose schemas are the files of this package."""
    folder = resources.files("anabranch.channel") / "schemas"
    schemas: dict[int, Schema] = {}
    for file in folder.iterdir():
        stem, _, version = file.name.removesuffix(".avsc").rpartition(".")
        if stem == name:
            schemas[int(version)] = json.loads(file.read_text())
    return SchemaFamily(name, newest, schemas, steps, edition, plain)


def prefix_of(schema: Schema) -> bytes:
    """The first bytes of every value that this schema wrote."""
    canonical = to_parsing_canonical_form(dict(schema))
    return MARKER + bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))


class _Writer(msgspec.Struct, frozen=True):
    prefix: bytes
    body: Callable[[Sequence[Any]], bytes]
    header: bytes
    count: int  # of fields
    plain: _Writer | None = None  # what writes a record without anything in the fields `added`
    added: tuple[str, ...] = ()


class SchemaSet:
    """Encodes and decodes the newest form of every record of some families."""

    def __init__(self, families: Sequence[SchemaFamily], edition: int = EDITION) -> None:
        self._writers: dict[type[Any], _Writer] = {}
        self._prefixes: dict[type[Any], set[bytes]] = {}
        self._readers: dict[bytes, Callable[[bytes, int], Any]] = {}
        self._versions: dict[str, int] = {_THE_LOG: edition}
        self._families = {family.newest: family for family in families}
        for family in families:
            self._add(family)

    def _add(self, family: SchemaFamily) -> None:
        if not 1 <= family.edition <= self._versions[_THE_LOG] or family.name == _THE_LOG:
            raise ValueError(f"schema {family.name} is of edition {family.edition} of the log")
        if sorted(family.schemas) != list(range(1, family.version + 1)):
            raise ValueError(f"schema {family.name} must have every version from 1 on")
        if sorted(family.steps) != list(range(1, family.stepped)):
            raise ValueError(f"schema {family.name} needs one step from each older version")
        self._versions[family.name] = family.version
        for version, schema in family.schemas.items():
            prefix = prefix_of(schema)
            if prefix in self._readers:
                raise ValueError(f"schema {family.name}/{version} has the fingerprint of another")
            self._readers[prefix] = _reader(family, version)
            self._prefixes.setdefault(family.newest, set()).add(prefix)
        plain = _writer(family, family.plain) if family.plain else None
        self._writers[family.newest] = _writer(family, family.version, plain)

    def encode(self, record: msgspec.Struct) -> bytes:
        """The newest version's bytes, or the plain one's."""
        writer = self._writer_of(record)
        return writer.prefix + writer.body(msgspec.structs.astuple(record)[: writer.count])

    def header(self, record: msgspec.Struct) -> bytes:
        """Names what `encode` writes: `name/version`, and the log's edition if later."""
        return self._writer_of(record).header

    def _writer_of(self, record: msgspec.Struct) -> _Writer:
        writer = self._writers[type(record)]
        if writer.plain is None:
            return writer
        for name in writer.added:
            if getattr(record, name):
                return writer
        return writer.plain

    def prefix(self, newest: type[msgspec.Struct]) -> bytes:
        """The first bytes of what the newest version writes for this type."""
        return self._writers[newest].prefix

    def prefixes(self, newest: type[msgspec.Struct]) -> frozenset[bytes]:
        """The first bytes of what any version of this type wrote."""
        return frozenset(self._prefixes[newest])

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

        Both must say so, the value's marker with an unknown fingerprint and the header with a newer
        version of what is known; one alone is a damaged record, or a stranger's.
        """
        if header is None or not value.startswith(MARKER) or self.knows(value):
            return False
        words = header.decode(errors="replace").split(" ", 2)
        return any(self._is_beyond(*word.partition("/")) for word in words[:2])

    def _is_beyond(self, name: str, _: str, version: str) -> bool:
        if not (version.isascii() and version.isdecimal() and len(version) <= _DIGITS_MAX):
            return False
        known = self._versions.get(name)
        return known is not None and int(version) > known


def _writer(family: SchemaFamily, version: int, plain: _Writer | None = None) -> _Writer:
    schema = family.schemas[version]
    said = f"{family.name}/{version}"
    if family.edition > 1:
        said += f" {_THE_LOG}/{family.edition}"
    count = len(fields_of(schema))
    added = family.newest.__struct_fields__[plain.count :] if plain is not None else ()
    return _Writer(prefix_of(schema), compile_encoder(schema), said.encode(), count, plain, added)


def _reader(family: SchemaFamily, version: int) -> Callable[[bytes, int], Any]:
    schema = family.schemas[version]
    newest = family.newest
    if version >= family.stepped:
        _must_begin(family, version)
        whole = family.schemas[family.version]
        return compile_decoder(schema, _shape(whole, newest, f"{family.name}/{family.version}"))
    steps = [family.steps[number] for number in range(version, family.stepped)]

    def upcast(**fields: Any) -> Any:
        for step in steps:
            fields = step(fields)
        return _built(newest, fields)

    return compile_decoder(schema, _old_shape(schema, newest, upcast, family.name))


def _built(struct: type[msgspec.Struct], fields: Fields) -> Any:
    """The struct of these fields, in which nested records are fields likewise, at any depth."""
    for name, inner in _nested(struct).items():
        fields[name] = tuple(_built(inner, one) for one in fields[name])
    return struct(**fields)


def _must_begin(family: SchemaFamily, version: int) -> None:
    """Raises ValueError unless the newest version begins with all fields of this one, and what it
    has more holds nothing unless it is given.
    """
    fields, newest = (fields_of(family.schemas[each]) for each in (version, family.version))
    if fields != newest[: len(fields)]:
        raise ValueError(f"schema {family.name}/{version} is no beginning of the newest")
    for added in msgspec.structs.fields(family.newest)[len(fields) :]:
        if added.default is msgspec.NODEFAULT or added.default:
            raise ValueError(f"{added.name} of {family.newest.__name__} is not empty by itself")


@cache
def _nested(struct: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    return {name: inner for name, hint in _hints(struct).items() if (inner := _record_in(hint))}


def _hints(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(struct)}


def _record_in(hint: Any) -> Any:
    """The struct that a field is a tuple of; None for any other field."""
    inner = get_args(hint)[0] if get_origin(hint) is tuple else None
    return inner if isinstance(inner, type) and issubclass(inner, msgspec.Struct) else None


def _shape(schema: Schema, newest: type[msgspec.Struct], name: str) -> Shape:
    """The newest version's: structs, whose fields and enums are those of the schema."""
    fields = fields_of(schema)
    hints = _hints(newest)
    if [field.name for field in fields] != list(hints):
        raise ValueError(f"schema {name} and {newest.__name__} differ")
    members: dict[str, tuple[IntEnum, ...]] = {}
    nested: dict[str, Shape] = {}
    for field in fields:
        if field.kind == "enum":
            members[field.name] = _members(field, hints[field.name], name, exact=True)
        elif field.kind == "records":
            nested[field.name] = _shape(
                field.type, _record_in(hints[field.name]), f"{name}.{field.name}"
            )
    return Shape(newest, members, nested)


def _old_shape(
    schema: Schema, newest: type[msgspec.Struct], make: Callable[..., Any], name: str
) -> Shape:
    """An older version's: `make` gets the fields by name, nested records as fields likewise."""
    fields = fields_of(schema)
    hints = _hints(newest)
    names = [field.name for field in fields]
    members = {
        field.name: _members(field, hints[field.name], name, exact=False)
        for field in fields
        if field.kind == "enum"
    }
    nested = {
        field.name: _old_shape(
            field.type, _record_in(hints[field.name]), dict, f"{name}.{field.name}"
        )
        for field in fields
        if field.kind == "records"
    }
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
