"""A version that goes on to be written where the fields that came later hold nothing: no byte more,
and the release before reads it. So are the records that no proxy asked for and no limit bounds.
"""

from __future__ import annotations

import json
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import pytest

from anabranch.channel import codec
from anabranch.channel.avro import compile_encoder
from anabranch.channel.registry import SchemaFamily, SchemaSet, prefix_of
from anabranch.core.log.records import Record

SCHEMAS: Final = Path(codec.__file__).parent / "schemas"
GOLDEN: Final = json.loads((Path(__file__).parents[3] / "data" / "golden_values.json").read_text())


class Taste(IntEnum):
    SOUR = 0
    SWEET = 1
    BITTER = 2


def _schema(version: int, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Pie",
        "namespace": f"anabranch.v{version}",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


ALL: Final = {"type": "enum", "name": "Taste", "symbols": ["SOUR", "SWEET", "BITTER"]}
REGIONS: Final = {"type": "array", "items": "string"}


class Pie(msgspec.Struct, frozen=True):
    name: str
    taste: Taste
    regions: tuple[str, ...] = ()
    spice: str = ""


PIES = {
    1: _schema(1, name="string", kilos="long"),
    2: _schema(2, name="string", taste=ALL),
    3: _schema(3, name="string", taste=ALL, regions=REGIONS),
    4: _schema(4, name="string", taste=ALL, regions=REGIONS, spice="string"),
}


def _to_sweet(fields: dict[str, Any]) -> dict[str, Any]:
    return {"name": fields["name"], "taste": Taste.SWEET}


PIE = SchemaFamily("pie", Pie, PIES, {1: _to_sweet}, edition=2, plain=2)


def test_a_field_that_holds_nothing_costs_no_byte_and_needs_no_newer_reader() -> None:
    pies = SchemaSet([PIE], edition=2)
    for pie, version, values in (
        (Pie("plum", Taste.BITTER), 2, ("plum", 2)),
        (Pie("plum", Taste.BITTER, ("north",)), 4, ("plum", 2, ("north",), "")),
        (Pie("plum", Taste.BITTER, spice="clove"), 4, ("plum", 2, (), "clove")),
    ):
        written = prefix_of(PIES[version]) + compile_encoder(PIES[version])(values)
        assert pies.encode(pie) == written
        assert pies.header(pie) == f"pie/{version} log/2".encode()
        assert pies.decode(written) == pie


def test_every_version_from_the_plain_one_on_is_read_and_steps_lead_up_to_it() -> None:
    pies = SchemaSet([PIE], edition=2)
    old = prefix_of(PIES[1]) + compile_encoder(PIES[1])(("plum", 3))
    assert pies.decode(old) == Pie("plum", Taste.SWEET)
    between = prefix_of(PIES[3]) + compile_encoder(PIES[3])(("plum", 0, ("north",)))
    assert pies.decode(between) == Pie("plum", Taste.SOUR, ("north",))


class Cake(msgspec.Struct, frozen=True):
    name: str
    taste: Taste
    regions: tuple[str, ...] = ()
    spice: str = "salt"


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (SchemaFamily("pie", Pie, PIES, {1: _to_sweet, 2: _to_sweet}, plain=2), "one step"),
        (SchemaFamily("pie", Pie, PIES, {}, plain=1), "pie/1 is no beginning of the newest"),
        (SchemaFamily("pie", Cake, PIES, {1: _to_sweet}, plain=2), "spice of Cake is not empty"),
    ],
)
def test_what_is_no_plain_version_is_refused_at_the_start(
    family: SchemaFamily, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        SchemaSet([family])


def test_each_type_that_somebody_may_ask_for_has_a_version_that_names_a_proxy() -> None:
    kinds = {kind for kind in get_args(Record) if "principal" in kind.__struct_fields__}
    assert {type(record) for record in OF_PROXIES.values()} == kinds
    assert len(OF_PROXIES) == len(kinds) == 8


# --- who asked by a proxy, and limits -------------------------------------------------------------

ADDED: Final = {"proxied_by", "limit", "limits"}
_NEWEST: Final = {
    name.partition("/")[0]: name
    for name, golden in GOLDEN.items()
    if golden["value"].get("proxied_by")
}
OF_PROXIES: Final = {
    name: codec.decode_record(bytes.fromhex(GOLDEN[name]["bytes"])) for name in _NEWEST.values()
}
"""A record that names a proxy, by the schema that wrote it."""


@pytest.mark.parametrize("name", OF_PROXIES)
def test_a_record_without_a_proxy_and_a_limit_is_of_a_version_that_has_neither(name: str) -> None:
    through: Any = OF_PROXIES[name]
    fields = msgspec.structs.fields(through)
    plain = msgspec.structs.replace(
        through, **{each.name: each.default for each in fields if each.name in ADDED}
    )
    newest, _, edition = codec.schema_header(through)[1].decode().partition(" ")
    known, _, same = codec.schema_header(plain)[1].decode().partition(" ")
    assert (newest, edition) == (name, same)
    before = json.loads((SCHEMAS / f"{known.replace('/', '.')}.avsc").read_text())
    kept = [each["name"] for each in before["fields"]]
    assert [*kept, *(each.name for each in fields if each.name in ADDED)] == [
        each.name for each in fields
    ]
    values = msgspec.structs.astuple(plain)[: len(kept)]
    written = prefix_of(before) + compile_encoder(before)(values)
    assert codec.encode_record(plain) == written
    assert codec.decode_record(written) == plain
