"""A version that goes on to be written where the fields that came later hold nothing: no byte more,
and the release before reads it. So are the records that somebody, but no proxy, asked for.
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
from anabranch.core.bundles.unit import Move
from anabranch.core.log.grounds import Grounds
from anabranch.core.log.records import Cause, Record, UnitMove

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


# --- who asked by a proxy -------------------------------------------------------------------------

MOVE: Final = UnitMove("id", "public/default/0x00000000_0x40000000", Move.ASSIGN, 1, "b1:80", 1)
GATE: Final = "gate"


class _MoveBefore(msgspec.Struct, frozen=True):
    """A unit's move as the release before there were proxies on the log has it."""

    proposal_id: str
    unit: str
    move: Move
    version: int
    actor: str
    session: int
    broker: str = ""
    epoch: int = 0
    evidence: int = 0
    children: tuple[str, ...] = ()
    cause: Cause = Cause.UNKNOWN
    choice: tuple[Grounds, ...] = ()
    principal: str = ""


def test_the_release_before_reads_on_until_somebody_asks_through_a_proxy() -> None:
    schemas = {v: json.loads((SCHEMAS / f"unit-move.{v}.avsc").read_text()) for v in (1, 2, 3)}
    steps = dict.fromkeys((1, 2), lambda fields: {**fields})
    before = SchemaSet([SchemaFamily("unit-move", _MoveBefore, schemas, steps)])
    asked = msgspec.structs.replace(MOVE, principal="ada")
    for record in (MOVE, asked):
        value, (_, header) = codec.encode_record(record), codec.schema_header(record)
        fields = msgspec.structs.asdict(record)
        assert fields.pop("proxied_by") == ""
        assert before.decode(value) == _MoveBefore(**fields)
        assert not before.is_newer(value, header)
    through = msgspec.structs.replace(asked, proxied_by=GATE)
    value, (_, header) = codec.encode_record(through), codec.schema_header(through)
    assert header == b"unit-move/4"
    assert before.is_newer(value, header), "to skip it would make that node's state differ"
    assert codec.read_entry(MOVE.key.encode(), value) == through


OF_PROXIES: Final = {
    name: codec.decode_record(bytes.fromhex(golden["bytes"]))
    for name, golden in GOLDEN.items()
    if golden["value"].get("proxied_by")
}
"""A record that names a proxy, by the schema that wrote it."""


def test_each_type_that_somebody_may_ask_for_has_a_version_that_names_a_proxy() -> None:
    kinds = {kind for kind in get_args(Record) if "principal" in kind.__struct_fields__}
    assert {type(record) for record in OF_PROXIES.values()} == kinds
    assert len(OF_PROXIES) == len(kinds) == 8


@pytest.mark.parametrize("name", OF_PROXIES)
def test_a_record_without_a_proxy_is_of_the_version_before_and_no_byte_longer(name: str) -> None:
    through: Any = OF_PROXIES[name]
    plain = msgspec.structs.replace(through, proxied_by="")
    newest, _, edition = codec.schema_header(through)[1].decode().partition(" ")
    known, _, same = codec.schema_header(plain)[1].decode().partition(" ")
    family, _, version = name.partition("/")
    assert (newest, known, same) == (name, f"{family}/{int(version) - 1}", edition)
    written, longer = codec.encode_record(plain), codec.encode_record(through)
    assert len(longer) == len(written) + 1 + len(GATE)
    assert codec.decode_record(written) == plain
    before = json.loads((SCHEMAS / f"{family}.{int(version) - 1}.avsc").read_text())
    assert written.startswith(prefix_of(before))
