"""What was written once can be read for ever; a change of schema is always a new version."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from anabranch.channel import codec
from anabranch.channel.avro import compile_encoder
from anabranch.channel.errors import NewerSchemaError, UnreadableError
from anabranch.channel.passed_over import PassedOver
from anabranch.channel.registry import SchemaFamily, SchemaSet, prefix_of
from anabranch.core.bundles.unit import Move
from anabranch.core.log.records import UnitMove

GOLDEN = json.loads((Path(__file__).parents[2] / "data" / "golden_values.json").read_text())
SCHEMAS = Path(codec.__file__).parent / "schemas"
DECODERS: dict[str, Callable[[bytes], Any]] = {
    "record": codec.decode_record,
    "entity": codec.decode_entity,
    "horizon": codec.decode_horizon,
    "heartbeat": codec.decode_heartbeat,
    "load": codec.decode_load,
    "broker_load": codec.decode_broker_load,
    "top_bundles": codec.decode_top_bundles,
}


@pytest.mark.parametrize("schema", GOLDEN)
def test_every_version_ever_written_still_decodes_to_the_same_value(schema: str) -> None:
    golden = GOLDEN[schema]
    decoded = DECODERS[golden["kind"]](bytes.fromhex(golden["bytes"]))
    names = decoded.__struct_fields__
    values = json.loads(msgspec.json.encode(msgspec.structs.astuple(decoded)))
    assert dict(zip(names, values, strict=True)) == golden["value"]


def test_every_schema_has_golden_bytes_a_number_of_its_own_and_a_sentence_per_field() -> None:
    numbers: dict[int, str] = {}
    for file in sorted(SCHEMAS.glob("*.avsc")):
        schema = json.loads(file.read_text())
        name, _, version = file.name.removesuffix(".avsc").rpartition(".")
        assert f"{name}/{version}" in GOLDEN
        assert schema["version"] == int(version)
        assert schema["namespace"] == f"anabranch.v{version}"
        assert numbers.setdefault(schema["number"], name) == name
        for field in _all_fields(schema):
            assert field["doc"].endswith("."), (file.name, field["name"])
            assert 1 <= field["since"] <= int(version)


def _all_fields(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for field in schema["fields"]:
        yield field
        items = field["type"].get("items") if isinstance(field["type"], dict) else None
        if isinstance(items, dict):
            yield from _all_fields(items)


# --- the machinery, on a record type that has had three versions ---------------------------------


class Taste(IntEnum):
    SOUR = 0
    SWEET = 1
    BITTER = 2


class Fruit(msgspec.Struct, frozen=True):
    name: str
    taste: Taste
    grams: int
    regions: tuple[str, ...] = ()


def _schema(version: int, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Fruit",
        "namespace": f"anabranch.v{version}",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def _taste(*symbols: str) -> dict[str, Any]:
    return {"type": "enum", "name": "Taste", "symbols": list(symbols)}


SOUR_SWEET = _taste("SOUR", "SWEET")
ALL = _taste("SOUR", "SWEET", "BITTER")
REGIONS = {"type": "array", "items": "string"}
VERSIONS = {
    1: _schema(1, name="string", taste=SOUR_SWEET, kilos="long"),
    2: _schema(2, name="string", taste=SOUR_SWEET, grams="long"),
    3: _schema(3, name="string", taste=ALL, grams="long", regions=REGIONS),
}


def _to_grams(fields: dict[str, Any]) -> dict[str, Any]:
    return {**{k: v for k, v in fields.items() if k != "kilos"}, "grams": fields["kilos"] * 1000}


STEPS = {1: _to_grams, 2: lambda fields: {**fields, "regions": ("everywhere",)}}
FRUITS = SchemaSet([SchemaFamily("fruit", Fruit, VERSIONS, STEPS)])


def _written(version: int, *values: Any) -> bytes:
    return prefix_of(VERSIONS[version]) + compile_encoder(VERSIONS[version])(values)


@pytest.mark.parametrize(
    ("value", "newest"),
    [
        (_written(1, "plum", 1, 2), Fruit("plum", Taste.SWEET, 2000, ("everywhere",))),
        (_written(2, "plum", 0, 70), Fruit("plum", Taste.SOUR, 70, ("everywhere",))),
        (_written(3, "plum", 2, 70, ("north",)), Fruit("plum", Taste.BITTER, 70, ("north",))),
    ],
)
def test_an_older_version_is_taken_step_by_step_to_the_newest(value: bytes, newest: Fruit) -> None:
    assert FRUITS.decode(value) == newest


def test_only_the_newest_version_is_written() -> None:
    fruit = Fruit("fig", Taste.SWEET, 40)
    assert FRUITS.encode(fruit) == _written(3, "fig", 1, 40, ())
    assert FRUITS.header(fruit) == b"fruit/3"


def test_an_old_version_cannot_hold_an_enum_member_that_came_later() -> None:
    with pytest.raises(UnreadableError, match="Fruit"):
        FRUITS.decode(_written(1, "plum", 2, 2))


@pytest.mark.parametrize(
    ("schemas", "steps", "message"),
    [
        ({1: VERSIONS[1], 3: VERSIONS[3]}, STEPS, "every version"),
        (VERSIONS, {1: _to_grams}, "one step"),
        ({**VERSIONS, 3: _schema(3, name="string", taste=ALL, grams="long")}, STEPS, "differ"),
        ({**VERSIONS, 2: VERSIONS[1]}, STEPS, "fingerprint of another"),
    ],
)
def test_schemas_that_do_not_fit_together_are_refused_at_the_start(
    schemas: dict[int, Any], steps: dict[int, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        SchemaSet([SchemaFamily("fruit", Fruit, schemas, steps)])


class Seed(msgspec.Struct, frozen=True):
    taste: Taste
    sizes: tuple[int, ...]


class Bowl(msgspec.Struct, frozen=True):
    seeds: tuple[Seed, ...]


def _bowl(version: int, taste: Any, **fields: Any) -> dict[str, Any]:
    seed = _schema(version, taste=taste, **fields) | {"name": "Seed"}
    return _schema(version, seeds={"type": "array", "items": seed}) | {"name": "Bowl"}


class _OldSeed(msgspec.Struct):
    taste: int
    size: int


BOWLS = {
    1: _bowl(1, SOUR_SWEET, size="long"),
    2: _bowl(2, ALL, sizes={"type": "array", "items": "long"}),
}


def _to_sizes(fields: dict[str, Any]) -> dict[str, Any]:
    return {"seeds": [{"taste": one["taste"], "sizes": (one["size"],)} for one in fields["seeds"]]}


def test_the_records_in_an_array_are_taken_to_their_newest_form_too() -> None:
    bowls = SchemaSet([SchemaFamily("bowl", Bowl, BOWLS, {1: _to_sizes})])
    old = prefix_of(BOWLS[1]) + compile_encoder(BOWLS[1])([(_OldSeed(1, 7), _OldSeed(0, 300))])
    newest = Bowl((Seed(Taste.SWEET, (7,)), Seed(Taste.SOUR, (300,))))
    assert bowls.decode(old) == newest
    assert bowls.decode(bowls.encode(newest)) == newest
    with pytest.raises(UnreadableError, match="Bowl"):
        bowls.decode(prefix_of(BOWLS[1]) + compile_encoder(BOWLS[1])([(_OldSeed(2, 7),)]))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (_bowl(1, SOUR_SWEET, sizes={"type": "array", "items": "long"}), "schema and enum differ"),
        (_bowl(1, ALL, size="long"), "bowl/1.seeds and Seed differ"),
        (_bowl(1, ALL, sizes={"type": "array", "items": "bytes"}), "is not one of"),
        (_schema(1, seeds={"type": "array", "items": _schema(1) | {"name": "Seed"}}), "no fields"),
    ],
)
def test_the_records_in_an_array_must_fit_their_class(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SchemaSet([SchemaFamily("bowl", Bowl, {1: schema})])


# --- what a reader makes of bytes it does not know ------------------------------------------------

MOVE = UnitMove("id", "public/default/0x00000000_0x40000000", Move.ASSIGN, 1, "b1:80", 1)
KEY = MOVE.key.encode()
NEWER = b"\xc3\x01" + b"\x07" * 8 + b"whatever"


def _headers(value: bytes) -> Callable[[], list[tuple[str, bytes | None]]]:
    return lambda: [("trace", None), ("anabranch-schema", value)]


@pytest.mark.parametrize("header", [b"unit-move/5", b"log/5", b"layout-change/12 log/5"])
def test_a_newer_schema_stops_the_reader_and_says_to_upgrade(header: bytes) -> None:
    with pytest.raises(NewerSchemaError, match=f"'{header.decode()}'.*upgrade"):
        codec.read_entry(KEY, NEWER, _headers(header))


@pytest.mark.parametrize(
    ("key", "value", "header"),
    [
        (KEY, None, b"unit-move/3"),
        (KEY, b"\xc3\x01", b"unit-move/3"),
        (KEY, NEWER, b"unit-move/3"),  # a version that we know, damaged
        (KEY, NEWER, b"unit-move/\xb2"),
        (KEY, NEWER, b"no-such-type/1"),  # no release announces its types so
        (KEY, NEWER, b"unit-move/3 x unit-move/5"),
        (KEY, NEWER, b"unit-move/" + b"9" * 10_000),
        (KEY, codec.encode_record(MOVE) + b"\0", b"unit-move/5"),  # damaged, not newer
        (KEY, codec.encode_record(MOVE)[:-1], b"unit-move/5"),
        (b"another/key/0x00000000_0x40000000", codec.encode_record(MOVE), b"unit-move/3"),
    ],
)
def test_bytes_of_no_known_schema_are_unreadable_and_stop_nobody(
    key: bytes | None, value: bytes | None, header: bytes
) -> None:
    assert codec.read_entry(key, value, _headers(header)) is None
    assert codec.read_entry(key, value, None) is None


def test_a_type_that_a_later_edition_brings_stops_readers_of_every_edition_before() -> None:
    bowl = SchemaFamily("bowl", Bowl, BOWLS, {1: _to_sizes}, edition=5)
    writer = SchemaSet([bowl], edition=5)
    value, header = writer.encode(Bowl(())), writer.header(Bowl(()))
    assert header == b"bowl/2 log/5"
    one = _schema(1, name="string", taste=ALL, grams="long", regions=REGIONS)
    before = SchemaSet([SchemaFamily("bowl", Fruit, {1: one}, edition=5)], edition=5)
    for reader in (before, SchemaSet([], edition=4), SchemaSet([])):
        assert reader.is_newer(value, header)
    assert not writer.is_newer(value, header)
    assert not SchemaSet([], edition=5).is_newer(value, b"bowl/2")
    with pytest.raises(ValueError, match="edition 5"):
        SchemaSet([bowl], edition=4)


def test_nodes_look_at_as_many_headers_as_spark_does() -> None:
    others = [("a", b"")] * (codec.HEADERS_MAX - 1)
    ours = (codec.SCHEMA_HEADER, b"unit-move/5")
    assert codec.header_of([*others, ours]) == b"unit-move/5"
    assert codec.header_of([*others, ("a", b""), ours]) is None
    assert codec.header_of([(codec.SCHEMA_HEADER, None), ours]) == b"unit-move/5"


def test_an_entry_is_read_without_asking_for_its_headers() -> None:
    def asked() -> None:
        raise AssertionError("headers cost time and are for strangers only")

    assert codec.read_entry(KEY, codec.encode_record(MOVE), asked) == MOVE
    assert codec.schema_header(MOVE) == ("anabranch-schema", b"unit-move/3")


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
