"""What was tagged once can be read for ever; a change of schema is always a new version."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from structlog.testing import capture_logs

from anabranch.channel import codec
from anabranch.channel.errors import NewerSchemaError, UnreadableError
from anabranch.channel.passed_over import PassedOver
from anabranch.channel.registry import SchemaFamily, SchemaSet
from anabranch.core.entities.unit import Move
from anabranch.core.log.records import Record, UnitMove
from support import golden

SCHEMAS = Path(codec.__file__).parent / "schemas"


def test_every_format_that_was_tagged_is_written_and_read_as_it_was() -> None:
    kept: dict[str, str] = json.loads(golden.GOLDEN.read_text())
    assert golden.changed(kept) == []
    other = kept["unit/1"].replace("c3a4", "c3b6")
    assert golden.changed({**kept, "unit/1": other, "nut/1": "c301"}) == ["unit/1", "nut/1"]


def test_every_schema_has_a_number_of_its_own_and_a_sentence_per_field() -> None:
    numbers: dict[int, str] = {}
    for file in sorted(SCHEMAS.glob("*.avsc")):
        schema = json.loads(file.read_text())
        name, _, version = file.name.removesuffix(".avsc").rpartition(".")
        assert schema["version"] == int(version)
        assert schema["namespace"] == f"anabranch.v{version}"
        assert numbers.setdefault(schema["number"], name) == name
        for field in _all_fields(schema):
            assert field["doc"].endswith("."), (file.name, field["name"])
    kinds = {kind.__struct_config__.tag: kind for kind in get_args(Record)}
    for number, kind in kinds.items():
        assert numbers[number].replace("-", "") == kind.__name__.lower()


def _all_fields(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for field in schema["fields"]:
        yield field
        items = field["type"].get("items") if isinstance(field["type"], dict) else None
        if isinstance(items, dict):
            yield from _all_fields(items)


# --- the machinery, on a record type with an invented version 2 -----------------------------------


class Taste(IntEnum):
    SOUR = 0
    SWEET = 1


class NewTaste(IntEnum):
    SOUR = 0
    SWEET = 1
    BITTER = 2


class OldSeed(msgspec.Struct, frozen=True):
    taste: Taste
    size: int


class Seed(msgspec.Struct, frozen=True):
    taste: NewTaste
    sizes: tuple[int, ...]


class OldFruit(msgspec.Struct, frozen=True):
    name: str
    kilos: int
    seeds: tuple[OldSeed, ...]


class Fruit(msgspec.Struct, frozen=True):
    name: str
    grams: int
    seeds: tuple[Seed, ...]


def _record(version: int, record: str, /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": record,
        "namespace": f"anabranch.v{version}",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def _fruit(version: int, kinds: type[IntEnum], sizes: dict[str, Any], **weight: str) -> Any:
    taste = {"type": "enum", "name": "Taste", "symbols": [kind.name for kind in kinds]}
    seeds = {"type": "array", "items": _record(version, "Seed", taste=taste, **sizes)}
    return _record(version, "Fruit", name="string", **weight, seeds=seeds)


LONGS = {"type": "array", "items": "long"}
FIRST = _fruit(1, Taste, {"size": "long"}, kilos="long")
SECOND = _fruit(2, NewTaste, {"sizes": LONGS}, grams="long")


def _to_grams(fields: dict[str, Any]) -> dict[str, Any]:
    seeds = [{"taste": one["taste"], "sizes": (one["size"],)} for one in fields["seeds"]]
    return {"name": fields["name"], "grams": fields["kilos"] * 1000, "seeds": seeds}


BEFORE = SchemaSet([SchemaFamily("fruit", OldFruit, {1: FIRST})])
AFTER = SchemaSet([SchemaFamily("fruit", Fruit, {1: FIRST, 2: SECOND}, {1: _to_grams})])


def test_a_version_is_taken_by_a_step_to_the_next_which_alone_is_written() -> None:
    old = BEFORE.encode(OldFruit("plum", 2, (OldSeed(Taste.SWEET, 7), OldSeed(Taste.SOUR, 3))))
    plum = Fruit("plum", 2000, (Seed(NewTaste.SWEET, (7,)), Seed(NewTaste.SOUR, (3,))))
    assert AFTER.decode(old) == plum
    written, header = AFTER.encode(plum), AFTER.header(plum)
    assert (AFTER.decode(written), header) == (plum, b"fruit/2")
    assert AFTER.prefixes(Fruit) == {old[:10], written[:10]}
    with pytest.raises(UnreadableError, match="starts no known schema"):
        BEFORE.decode(written)
    assert BEFORE.is_newer(written, header)
    assert BEFORE.is_newer(written, b"nut/1"), "a type of record that was added"
    assert not BEFORE.is_newer(written, b"fruit/1")
    assert not AFTER.is_newer(written, b"fruit/3")
    bitter = BEFORE.encode(OldFruit("plum", 2, (OldSeed(NewTaste.BITTER, 7),)))  # type: ignore[arg-type]
    with pytest.raises(UnreadableError, match="Fruit"):
        AFTER.decode(bitter)


NO_SEEDS = _record(2, "Fruit", name="string", grams="long")
BLOBS = {"sizes": {"type": "array", "items": "bytes"}}


@pytest.mark.parametrize(
    ("schemas", "steps", "message"),
    [
        ({2: SECOND}, {1: _to_grams}, "every version"),
        ({1: FIRST, 2: SECOND}, {}, "one step"),
        ({1: SECOND, 2: SECOND}, {1: _to_grams}, "fingerprint of another"),
        ({1: NO_SEEDS}, {}, "fruit/1 and Fruit differ"),
        ({1: _fruit(1, Taste, {"sizes": LONGS}, grams="long")}, {}, "schema and enum differ"),
        ({1: _fruit(1, NewTaste, {"size": "long"}, grams="long")}, {}, "1.seeds and Seed differ"),
        ({1: _fruit(1, NewTaste, BLOBS, grams="long")}, {}, "is not one of"),
        ({1: _record(1, "Fruit")}, {}, "no fields"),
    ],
)
def test_schemas_that_do_not_fit_together_are_refused_at_the_start(
    schemas: dict[int, Any], steps: dict[int, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        SchemaSet([SchemaFamily("fruit", Fruit, schemas, steps)])


# --- what a reader makes of bytes it does not know ------------------------------------------------

MOVE = UnitMove("id", "public/default/0x00000000_0x40000000", Move.ASSIGN, 1, "b1:80", 1)
KEY = MOVE.key.encode()
NEWER = b"\xc3\x01" + b"\x07" * 8 + b"whatever"


def _headers(value: bytes) -> Callable[[], list[tuple[str, bytes | None]]]:
    return lambda: [("trace", None), ("anabranch-schema", value)]


@pytest.mark.parametrize("header", [b"unit-move/2", b"no-such-type/1"])
def test_a_newer_schema_stops_the_reader_and_says_to_upgrade(header: bytes) -> None:
    with pytest.raises(NewerSchemaError, match=f"'{header.decode()}'.*upgrade"):
        codec.read_entry(KEY, NEWER, _headers(header))


@pytest.mark.parametrize(
    ("key", "value", "header"),
    [
        (KEY, None, b"unit-move/1"),
        (KEY, b"\xc3\x01", b"unit-move/1"),
        (KEY, NEWER, b"unit-move/1"),  # a version that we know, damaged
        (KEY, NEWER, b"unit-move/\xb2"),
        (KEY, NEWER, b"no-such-type"),  # a stranger's
        (KEY, NEWER, b"unit-move/1 unit-move/2"),
        (KEY, NEWER, b"unit-move/" + b"9" * 10_000),
        (KEY, codec.encode_record(MOVE) + b"\0", b"unit-move/2"),  # damaged, not newer
        (KEY, codec.encode_record(MOVE)[:-1], b"unit-move/2"),
        (b"another/key/0x00000000_0x40000000", codec.encode_record(MOVE), b"unit-move/1"),
    ],
)
def test_bytes_of_no_known_schema_are_unreadable_and_stop_nobody(
    key: bytes | None, value: bytes | None, header: bytes
) -> None:
    assert codec.read_entry(key, value, _headers(header)) is None
    assert codec.read_entry(key, value, None) is None


def test_nodes_look_at_as_many_headers_as_spark_does() -> None:
    others = [("a", b"")] * (codec.HEADERS_MAX - 1)
    ours = (codec.SCHEMA_HEADER, b"unit-move/2")
    assert codec.header_of([*others, ours]) == b"unit-move/2"
    assert codec.header_of([*others, ("a", b""), ours]) is None
    assert codec.header_of([(codec.SCHEMA_HEADER, None), ours]) == b"unit-move/2"


def test_an_entry_is_read_without_asking_for_its_headers() -> None:
    def asked() -> None:
        raise AssertionError("headers cost time and are for strangers only")

    assert codec.read_entry(KEY, codec.encode_record(MOVE), asked) == MOVE
    assert codec.schema_header(MOVE) == ("anabranch-schema", b"unit-move/1")


def test_a_snapshot_of_a_newer_release_stops_the_reader() -> None:
    with pytest.raises(NewerSchemaError, match="upgrade"):
        codec.decode_entity(NEWER)
    with pytest.raises(UnreadableError):
        codec.decode_entity(b"junk")


# --- what is passed over is counted, and told of when a newer release wrote it --------------------


def test_all_that_is_passed_over_counts_and_each_newer_schema_is_told_of_once() -> None:
    passed_over = PassedOver("load.newer")
    with capture_logs() as lines:
        passed_over.note(None, b"strange")
        passed_over.note(UnreadableError("damaged"), b"a")
        for schema in ("Load2", "Load2", "Load3"):
            passed_over.note(NewerSchemaError(schema, "the load of a segment"), b"a")
    assert passed_over.count == 5
    assert [(line["event"], line["schema"], line["key"]) for line in lines] == [
        ("load.newer", "Load2", b"a"),
        ("load.newer", "Load3", b"a"),
    ]
