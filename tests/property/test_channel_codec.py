"""Our compiled codec is Avro: what it writes fastavro reads, and the other way round."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.channel import codec
from anabranch.channel.codec import Horizon
from anabranch.channel.errors import UnreadableError
from anabranch.channel.registry import PREFIX_LENGTH
from anabranch.core.leases import Heartbeat
from anabranch.core.records import (
    ClusterSettings,
    NamespaceChange,
    SessionChange,
    TenantChange,
    UnitMove,
)
from anabranch.core.state import Cluster, NamespaceInfo, Session, Tenant
from anabranch.core.units import Unit

SCHEMAS = Path(codec.__file__).parent / "schemas"
NEWEST: dict[type[Any], str] = {
    UnitMove: "unit-move.1",
    SessionChange: "session-change.1",
    ClusterSettings: "cluster-settings.1",
    TenantChange: "tenant-change.1",
    NamespaceChange: "namespace-change.1",
    Unit: "unit.1",
    Session: "session.1",
    Cluster: "cluster.1",
    Tenant: "tenant.1",
    NamespaceInfo: "namespace-info.1",
    Horizon: "horizon.1",
    Heartbeat: "heartbeat.1",
}
CODECS: dict[type[Any], tuple[Any, Any]] = {
    **dict.fromkeys(list(NEWEST)[:5], (codec.encode_record, codec.decode_record)),
    **dict.fromkeys(list(NEWEST)[5:10], (codec.encode_entity, codec.decode_entity)),
    Horizon: (codec.encode_horizon, codec.decode_horizon),
    Heartbeat: (codec.encode_heartbeat, codec.decode_heartbeat),
}
LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200)
TEXTS = st.text(max_size=20) | st.text("b", min_size=60, max_size=300)


def _values(kind: type[Any]) -> st.SearchStrategy[Any]:
    by_type = {
        int: LONGS,
        str: TEXTS,
        float: st.floats(allow_nan=False),
        bool: st.booleans(),
        tuple[str, ...]: st.lists(TEXTS, max_size=5).map(tuple),
    }
    fields = [
        by_type[f.type] if f.type in by_type else st.sampled_from(list(f.type))
        for f in msgspec.structs.fields(kind)
    ]
    return st.builds(kind, *fields)


VALUES = st.sampled_from(list(NEWEST)).flatmap(_values)


def _plain(value: Any) -> dict[str, Any]:
    """As fastavro wants it: symbols for enums, lists for tuples."""
    fields = zip(value.__struct_fields__, msgspec.structs.astuple(value), strict=True)
    return {
        name: field.name
        if hasattr(field, "name")
        else list(field)
        if isinstance(field, tuple)
        else field
        for name, field in fields
    }


@given(VALUES)
def test_fastavro_reads_what_we_write_and_we_read_what_it_writes(value: Any) -> None:
    schema = json.loads((SCHEMAS / f"{NEWEST[type(value)]}.avsc").read_text())
    encode, decode = CODECS[type(value)]
    ours = encode(value)
    assert fastavro.schemaless_reader(io.BytesIO(ours[PREFIX_LENGTH:]), schema, None) == _plain(
        value
    )
    theirs = io.BytesIO()
    fastavro.schemaless_writer(theirs, schema, _plain(value))
    assert decode(ours[:PREFIX_LENGTH] + theirs.getvalue()) == value
    assert decode(ours) == value


@given(VALUES, st.data())
def test_damage_is_either_another_value_or_unreadable(value: Any, data: st.DataObject) -> None:
    encode, decode = CODECS[type(value)]
    good = encode(value)
    at = data.draw(st.integers(PREFIX_LENGTH, len(good) - 1))
    cut = data.draw(st.booleans())
    bad = good[:at] + (b"" if cut else data.draw(st.binary(max_size=4)) + good[at + 1 :])
    try:
        again = decode(bad)
    except UnreadableError:
        return
    assert not cut
    assert type(again) is type(value)


@given(_values(Unit))
def test_peeking_into_a_unit_agrees_with_decoding_it(unit: Unit) -> None:
    assert codec.peek_unit(codec.encode_entity(unit)) == (unit.state, unit.broker, unit.source)


@pytest.mark.parametrize("tail", [b"\xff" * 1_000_000, b"\xff" * 9 + b"\x03", b"\x80" * 10 + b"\0"])
def test_a_number_longer_than_64_bits_is_unreadable_and_soon_found_out(tail: bytes) -> None:
    session = codec.encode_entity(Session(0, False, 0, 0, ""))
    with pytest.raises(UnreadableError, match="64 bits"):
        codec.decode_entity(session[:PREFIX_LENGTH] + tail)
