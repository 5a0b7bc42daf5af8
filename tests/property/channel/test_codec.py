"""Our compiled codec is Avro: what it writes fastavro reads, and the other way round."""

from __future__ import annotations

import io
from enum import IntEnum
from typing import Any, get_args, get_origin

import fastavro
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.channel import codec
from anabranch.channel.errors import UnreadableError
from anabranch.channel.registry import PREFIX_LENGTH, SchemaFamily, SchemaSet
from anabranch.core.entities.session import Session
from anabranch.core.entities.unit import Unit


class Colour(IntEnum):
    """An enum that two records of one schema hold."""

    RED = 0
    GREEN = 1


class Slice(msgspec.Struct, frozen=True):
    """A record in an array."""

    name: str
    colour: Colour
    weight: float
    ripe: bool
    seeds: tuple[int, ...]
    words: tuple[str, ...]


class Basket(msgspec.Struct, frozen=True):
    """Everything that a record can hold; a type that was defined is named from there on."""

    slices: tuple[Slice, ...]
    colour: Colour
    more: tuple[Slice, ...]
    numbers: tuple[int, ...]


LONGS_SCHEMA = {"type": "array", "items": "long"}


def _record(record: str, /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": record,
        "namespace": "anabranch.v1",
        "fields": [{"name": field, "type": of} for field, of in fields.items()],
    }


SLICE_SCHEMA = _record(
    "Slice",
    name="string",
    colour={"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]},
    weight="double",
    ripe="boolean",
    seeds=LONGS_SCHEMA,
    words={"type": "array", "items": "string"},
)
BASKET_SCHEMA = _record(
    "Basket",
    slices={"type": "array", "items": SLICE_SCHEMA},
    colour="Colour",
    more={"type": "array", "items": "Slice"},
    numbers=LONGS_SCHEMA,
)
BASKETS = SchemaSet([SchemaFamily("basket", Basket, {1: BASKET_SCHEMA})])
FAMILIES: dict[Any, tuple[SchemaSet, Any]] = {
    family.newest: (schemas, family.schemas[family.version])
    for schemas in (*codec.STORED, BASKETS)
    for family in schemas.families
}
LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200)
TEXTS = st.text(max_size=20) | st.text("b", min_size=60, max_size=300)


BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    int: LONGS,
    str: TEXTS,
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
}


def _values(kind: Any) -> st.SearchStrategy[Any]:
    if kind in BY_TYPE:
        return BY_TYPE[kind]
    if get_origin(kind) is tuple:
        return st.lists(_values(get_args(kind)[0]), max_size=4).map(tuple)
    if issubclass(kind, msgspec.Struct):
        return st.builds(kind, *(_values(field.type) for field in msgspec.structs.fields(kind)))
    return st.sampled_from(list(kind))


VALUES = st.sampled_from(list(FAMILIES)).flatmap(_values)


def _plain(value: Any) -> Any:
    """As fastavro wants it: symbols for enums, lists for tuples, dicts for structs."""
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.name if isinstance(value, IntEnum) else value


@given(VALUES)
def test_fastavro_reads_what_we_write_and_we_read_what_it_writes(value: Any) -> None:
    schemas, schema = FAMILIES[type(value)]
    ours, plain = schemas.encode(value), _plain(value)
    assert fastavro.schemaless_reader(io.BytesIO(ours[PREFIX_LENGTH:]), schema, None) == plain
    theirs = io.BytesIO()
    fastavro.schemaless_writer(theirs, schema, plain)
    assert schemas.decode(ours[:PREFIX_LENGTH] + theirs.getvalue()) == value
    assert schemas.decode(ours) == value


@given(VALUES, st.data())
def test_damage_is_either_another_value_or_unreadable(value: Any, data: st.DataObject) -> None:
    schemas, _ = FAMILIES[type(value)]
    good = schemas.encode(value)
    at = data.draw(st.integers(PREFIX_LENGTH, len(good) - 1))
    cut = data.draw(st.booleans())
    bad = good[:at] + (b"" if cut else data.draw(st.binary(max_size=4)) + good[at + 1 :])
    try:
        again = schemas.decode(bad)
    except UnreadableError:
        return
    assert not cut
    assert type(again) is type(value)


@given(_values(Unit))
def test_peeking_into_a_unit_agrees_with_decoding_it(unit: Unit) -> None:
    assert codec.peek_unit(codec.encode_entity(unit)) == (unit.state, unit.broker, unit.source)


ONE_SLICE = Basket((Slice("fig", Colour.GREEN, 0.5, True, (7, -9), ("a",)),), Colour.RED, (), (3,))


def test_an_array_may_come_in_several_blocks_with_their_sizes_or_without() -> None:
    whole = BASKETS.encode(ONE_SLICE)
    one = whole[PREFIX_LENGTH + 1 : -6]  # between the count 1 and the array's end
    sized = b"\x01" + bytes([2 * len(one)]) + one  # count -1, size, then the record
    blocks = sized + b"\x04" + one + one + b"\0"  # and 2 more
    tail = b"\x02" + b"\0" + b"\x01\x02\x06" + b"\x02\x08" + b"\0"  # GREEN, (), (3,) and (4,)
    basket = BASKETS.decode(whole[:PREFIX_LENGTH] + blocks + tail)
    assert basket == Basket(ONE_SLICE.slices * 3, Colour.GREEN, (), (3, 4))


@pytest.mark.parametrize("count", [b"\xfe" * 8 + b"\x01", b"\xff" * 8 + b"\x01\x02"])
def test_a_count_beyond_the_data_is_unreadable_and_soon_found_out(count: bytes) -> None:
    whole = BASKETS.encode(ONE_SLICE)
    for bad in (
        whole[:PREFIX_LENGTH] + count + whole[PREFIX_LENGTH + 1 :],
        whole[:-3] + count + whole[-2:],
    ):
        with pytest.raises(UnreadableError):
            BASKETS.decode(bad)


@pytest.mark.parametrize("tail", [b"\xff" * 1_000_000, b"\xff" * 9 + b"\x03", b"\x80" * 10 + b"\0"])
def test_a_number_longer_than_64_bits_is_unreadable_and_soon_found_out(tail: bytes) -> None:
    session = codec.encode_entity(Session(0, False, 0, 0, ""))
    with pytest.raises(UnreadableError, match="64 bits"):
        codec.decode_entity(session[:PREFIX_LENGTH] + tail)
