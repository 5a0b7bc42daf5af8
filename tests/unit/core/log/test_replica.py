"""Replicas and digests: order, gaps, snapshots, indexes."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from anabranch.core.bundles.unit import Move, UnitState
from anabranch.core.log import digests
from anabranch.core.log.replica import MemoryReplica
from anabranch.core.log.state import live_bundles
from anabranch.core.tenants.tenant import Tenant
from anabranch.core.topics.layout import initial_segments
from anabranch.core.topics.topic import TopicMove
from support.there import there
from support.world import FIRST, HALVES, TOPIC, UNIT, A, B, World


def test_a_replica_refuses_to_go_back_and_accepts_gaps() -> None:
    world = World(A)
    with pytest.raises(ValueError, match="folded already"):
        world.replica.read(None, 0, 0)
    world.replica.read(None, 100, 0)
    assert world.replica.next_offset == 101


def test_a_replica_that_began_with_nothing_knows_no_snapshot() -> None:
    assert World(A).replica.horizon == -1


def test_a_replica_s_horizon_is_where_its_snapshot_ended() -> None:
    copy = MemoryReplica()
    copy.load(World(A).replica.entities.items(), 7)
    assert copy.horizon == copy.next_offset == 7


def test_a_units_brokers_find_it() -> None:
    world = World(A, B)
    world.owned(A)
    world.must(world.move(Move.RELEASE, A, broker=B))
    assert [name for name, _ in world.replica.units_of(A)] == [UNIT]
    assert [name for name, _ in world.replica.units_of(B)] == [UNIT]
    assert (world.replica.unit_count(A), world.replica.unit_count(B)) == (0, 1)
    world.must(world.move(Move.HAND_OVER, A))
    assert list(world.replica.units_of(A)) == []


def test_units_in_flight_or_deleted_are_unsettled() -> None:
    world = World(A)
    world.elect(A)
    assert list(world.replica.unsettled()) == []
    world.must(world.move(Move.ASSIGN, A, broker=A))
    assert [name for name, _ in world.replica.unsettled()] == [UNIT]
    world.must(world.move(Move.OWN, A))
    assert list(world.replica.unsettled()) == []
    world.must(world.move(Move.SPLIT, A, children=HALVES))
    world.must(world.move(Move.SPLIT_COMMIT, A))
    assert [unit.state for _, unit in world.replica.unsettled()] == [UnitState.DELETED]
    world.must(world.move(Move.TOMBSTONE, A))
    assert list(world.replica.unsettled()) == []


def test_a_look_up_finds_the_live_bundle_of_a_hash() -> None:
    world = World(A)
    world.owned(A)
    world.must(world.move(Move.SPLIT, A, children=HALVES))
    world.must(world.move(Move.SPLIT_COMMIT, A))
    for at, half in zip((5, 0x9000_0000), HALVES, strict=True):
        found = there(world.replica.bundle_at(FIRST, at))
        assert found[0] == f"{FIRST}/{half}", "behind the one that is deleted"
    assert world.replica.bundle_at("public/none", 5) is None
    assert len(live_bundles(world.replica, FIRST)) == 2


def test_a_topic_is_restless_until_it_is_open() -> None:
    world = World(A)
    world.owned(A)
    world.must(world.topic(TopicMove.CREATE, segments=initial_segments(1)))
    assert list(world.replica.restless_topics()) == [TOPIC]
    world.must(world.topic(TopicMove.OPEN))
    assert list(world.replica.restless_topics()) == []


def test_what_a_key_holds_counts_with_its_kind() -> None:
    fields = (3, ("admin",), ("standalone",), 5, "p")
    tenant = Tenant(*fields)
    kind = msgspec.defstruct(
        "Lookalike", [*Tenant.__annotations__.items()], frozen=True, array_like=True
    )
    lookalike = cast(Tenant, kind(*fields))
    assert msgspec.msgpack.encode(tenant) == msgspec.msgpack.encode(lookalike)
    assert digests.entity_hash("tenant:a", tenant) != digests.entity_hash("tenant:a", lookalike)
    assert digests.entity_hash("tenant:a", tenant) != digests.entity_hash("tenant:b", tenant)


def test_digests_are_the_same_in_every_release() -> None:
    tenant = Tenant(3, ("admin",), ("standalone",), 5, "p")
    told = digests.to_hex(digests.of_entities({"tenant:acme": tenant}))
    assert told == "2b7a127a03c66eaa1c14b7f43105ef6d"
