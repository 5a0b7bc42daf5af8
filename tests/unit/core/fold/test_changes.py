"""What the fold makes of accepted records: every key that they change, to the letter."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from anabranch.core.entities.cluster import Cluster
from anabranch.core.entities.layout import initial_segments
from anabranch.core.entities.segment import SegmentInfo, SegmentState
from anabranch.core.entities.session import Session
from anabranch.core.entities.subscription import (
    NOBODY,
    SegmentPositions,
    Subscription,
    SubscriptionKind,
    SubscriptionOp,
)
from anabranch.core.entities.tenant import NamespaceInfo, Tenant
from anabranch.core.entities.topic import Operation, ScalableTopic, TopicMove, TopicState
from anabranch.core.entities.unit import Move, Unit, UnitState
from anabranch.core.fold import digests
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.records import PolicyOp, SessionOp
from anabranch.core.log.state import Change, live_bundles
from anabranch.core.log.verdicts import Verdict
from support.there import there
from support.topics import opened, owned, split
from support.world import FIRST, HALVES, SETTINGS, TOPIC, UNIT, A, B, World


def free(version: int, stamp: int, offset: int, proposal_id: str) -> Unit:
    return Unit(UnitState.FREE, "", "", version, Move.CREATE, stamp, offset, proposal_id)


@pytest.fixture
def world() -> World:
    return opened()


def test_the_settings_make_a_cluster_a_tenant_a_namespace_and_its_bundles() -> None:
    world = World(settings=None)
    world.tell(None)
    assert world.must(SETTINGS).changes == (
        ("cluster", Cluster(1, "test", 500, 4000, 6000, 1, "settings")),
        ("tenant:public", Tenant(2, (), ("test",), 1000, "settings")),
        (f"namespace:{FIRST}", NamespaceInfo(2, 1, 1000, "settings")),
        (UNIT, free(2, 1000, 1, "settings")),
    )


def test_a_session_is_what_its_last_record_says() -> None:
    world = World()
    for version, op in enumerate((SessionOp.OPEN, SessionOp.CLOSE, SessionOp.OPEN), 1):
        place, record = len(world.log), world.session(A, op)
        after = Session(version, op is SessionOp.OPEN, 1000 * place, place, record.proposal_id)
        assert world.must(record).changes == ((f"session:{A}", after),)


def test_a_tenant_is_what_its_last_record_says() -> None:
    world = World(A)
    version = 0
    for op in (PolicyOp.CREATE, PolicyOp.UPDATE, PolicyOp.UPDATE):
        world.tell(None)  # the offset goes on, what has a version does not
        version = version + 1 if version else len(world.log) + 1
        stamp, roles = world.now_ms, (f"role-{version}",)
        record = world.tenant("acme", op, admin_roles=roles, allowed_clusters=("here",))
        after = Tenant(version, roles, ("here",), stamp, record.proposal_id)
        assert world.must(record).changes == (("tenant:acme", after),)
    assert world.must(world.tenant("acme", PolicyOp.DELETE)).changes == (("tenant:acme", None),)


def test_a_namespace_is_what_its_last_record_says_and_its_bundles_come_and_go_with_it() -> None:
    world = World(A)
    place, home = len(world.log), "public/orders"
    bundles = [f"{home}/{half}" for half in ("0x00000000_0x80000000", "0x80000000_0xffffffff")]
    record = world.namespace(home, PolicyOp.CREATE, bundles=2)
    born = free(place + 1, 1000 * place, place, record.proposal_id)
    assert world.must(record).changes == (
        (f"namespace:{home}", NamespaceInfo(place + 1, 2, 1000 * place, record.proposal_id)),
        *((name, born) for name in bundles),
    )
    scale = ("scaleDownEnabled", "false")
    record = world.namespace(home, PolicyOp.UPDATE, auto_scale=scale)
    after = NamespaceInfo(place + 2, 2, 1000 * (place + 1), record.proposal_id, scale)
    assert world.must(record).changes == ((f"namespace:{home}", after),)
    odd = world.namespace(home, PolicyOp.UPDATE, auto_scale=("scaleDownEnabled",))
    assert world.tell(odd) is Verdict.INVALID_VALUE
    assert world.must(world.namespace(home, PolicyOp.DELETE)).changes == (
        (f"namespace:{home}", None),
        *((name, None) for name in bundles),
    )


def test_a_bundle_that_is_split_leaves_its_children_with_its_owner() -> None:
    world = World(A)
    world.owned(A)
    before = world.unit()
    place, record = len(world.log), world.move(Move.SPLIT, A, children=HALVES)
    made = (1000 * place, place, record.proposal_id)
    splitting = Unit(UnitState.SPLITTING, A, "", before.version + 1, Move.SPLIT, *made, HALVES)
    assert world.must(record).changes == ((UNIT, splitting),)
    place, record = len(world.log), world.move(Move.SPLIT_COMMIT, A)
    made = (1000 * place, place, record.proposal_id)
    parent = Unit(UnitState.DELETED, "", "", before.version + 2, Move.SPLIT_COMMIT, *made, HALVES)
    child = Unit(UnitState.OWNED, A, "", place + 1, Move.CREATE, *made)
    assert world.must(record).changes == (
        (UNIT, parent),
        *((f"{FIRST}/{half}", child) for half in HALVES),
    )


# --- scalable topics ------------------------------------------------------------------------


def becomes(world: World, record: Any, before: Any, *others: Change, **fields: Any) -> Any:
    """An accepted record changes nothing but `others`, these fields of what was before, and what
    every record leaves of itself; returns what became of it.
    """
    own: dict[str, Any] = {"version": record.version, "proposal_id": record.proposal_id}
    own |= {"since_ms": world.now_ms, "since_offset": len(world.log)}
    if isinstance(before, ScalableTopic):
        own["move"] = record.move
    after = replace(before, **{**own, **fields})
    assert world.must(record).changes == ((record.key, after), *others)
    return after


def test_a_topic_begins_with_the_segments_and_properties_of_its_record() -> None:
    world = owned()
    place, stamp = len(world.log), world.now_ms
    first = initial_segments(2)
    record = world.topic(TopicMove.CREATE, segments=first, properties=("team", "blue"))
    parts = tuple(replace(part, created_at_ms=stamp) for part in first)
    topic = ScalableTopic(
        TopicState.CREATING, place + 1, 0, place, 2, parts, Operation.NONE, (), (), (),
        ("team", "blue"), TopicMove.CREATE, stamp, place, stamp, record.proposal_id,
    )  # fmt: skip
    assert world.must(record).changes == ((record.key, topic),)
    record = world.topic(TopicMove.OPEN)
    becomes(world, record, topic, state=TopicState.STABLE, opened=record.version)


@pytest.mark.parametrize(
    ("move", "fields"),
    [
        (TopicMove.UPDATE, {"properties": ("a", "b")}),
        (TopicMove.POLICY, {"auto_scale": ("enabled", "false")}),
        (TopicMove.DELETE, {}),
    ],
)
def test_a_move_that_leaves_the_segments_alone_changes_nothing_but_what_it_names(
    world: World, move: TopicMove, fields: dict[str, Any]
) -> None:
    before, record = world.scalable(), world.topic(move, **fields)
    state = TopicState.DELETING if move is TopicMove.DELETE else before.state
    becomes(world, record, before, state=state, opened=before.opened + 1, **fields)


def test_an_operation_goes_through_its_states_and_ends_with_its_children(world: World) -> None:
    before, children = world.scalable(), split(world)
    record = world.begin(Operation.SPLIT, children)
    preparing = becomes(
        world,
        record,
        before,
        state=TopicState.PREPARING,
        opened=before.opened + 1,
        operation=Operation.SPLIT,
        parents=(0,),
        children=children,
        next_segment_id=4,
    )
    record = world.topic(TopicMove.SEALING)
    becomes(world, record, preparing, state=TopicState.SEALING, opened=before.opened + 2)
    record, stamp = world.topic(TopicMove.COMMIT, end_offsets=(17, 0)), world.now_ms
    parent = replace(
        before.segments[0],
        state=SegmentState.SEALED,
        child_ids=(2, 3),
        end_offsets=(17, 0),
        sealed_at_epoch=1,
        sealed_at_ms=stamp,
    )
    born = tuple(replace(part, created_at_epoch=1, created_at_ms=stamp) for part in children)
    becomes(
        world,
        record,
        before,
        opened=before.opened + 2,
        segments=(parent, before.segments[1], *born),
        next_segment_id=4,
        split_ms=stamp,
    )


def test_each_operation_notes_when_it_took_over_last() -> None:
    world, stamps = opened(), []

    def commit(operation: Operation, children: tuple[SegmentInfo, ...]) -> None:
        world.committed(operation, children)
        stamps.append(world.scalable().since_ms)

    commit(Operation.MERGE, world.scalable().layout.merge_children(0, 1))
    commit(Operation.REBUCKET, world.scalable().layout.rebucket_children(2, 8))
    commit(Operation.SPLIT, split(world, 3))
    topic = world.scalable()
    assert [topic.merge_ms, topic.rebucket_ms, topic.split_ms] == stamps


def begun_in_vain(world: World) -> tuple[SegmentInfo, ...]:
    children = split(world, 1)
    world.must(world.begin(Operation.SPLIT, children))
    world.must(world.topic(TopicMove.ABORT))
    return children


def test_what_is_aborted_and_what_is_pruned_waits_with_what_waited_before_it(world: World) -> None:
    world.committed(Operation.SPLIT, split(world))
    sealed = world.scalable().segments[0]
    aborted = [*begun_in_vain(world), *begun_in_vain(world)]
    assert world.scalable().is_restless
    for name in ("one", "two"):
        world.must(world.subscription(SubscriptionOp.CREATE, name))
        world.must(world.subscription(SubscriptionOp.DRAINED, name, segment_ids=(0,)))
    before, record = world.scalable(), world.topic(TopicMove.PRUNE, segment_ids=(0,))
    unmarked = tuple(
        (f"subscription:{TOPIC}/{name}", replace(world.subscribed(name), drained=()))
        for name in ("one", "two")
    )
    garbage = (*aborted, sealed)
    left = tuple(replace(part, parent_ids=()) for part in before.segments[1:])
    pruned = becomes(world, record, before, *unmarked, segments=left, garbage=garbage)
    record = world.topic(TopicMove.CLEAR, segment_ids=(4, 0))
    cleared = tuple(aborted[1:])
    becomes(world, record, pruned, opened=pruned.opened + 1, garbage=cleared)


def test_a_topic_leaves_with_all_its_subscriptions(world: World) -> None:
    for name in ("one", "two"):
        world.must(world.subscription(SubscriptionOp.CREATE, name))
    world.must(world.topic(TopicMove.DELETE))
    gone = [f"topic:{TOPIC}", *(f"subscription:{TOPIC}/{name}" for name in ("one", "two"))]
    assert world.must(world.topic(TopicMove.REMOVE)).changes == tuple((key, None) for key in gone)


# --- subscriptions --------------------------------------------------------------------------


def test_a_subscription_begins_as_its_record_says(world: World) -> None:
    place, stamp = len(world.log), world.now_ms
    at = (SegmentPositions(0, (3, 4)),)
    where: dict[str, Any] = {"dead_letter": f"{FIRST}/aside", "deliveries_max": 1}
    record = world.subscription(
        SubscriptionOp.CREATE, kind=SubscriptionKind.QUEUE, positions=at, **where
    )
    made = Subscription(
        place + 1, SubscriptionKind.QUEUE, place, (), (), (), stamp, place, record.proposal_id,
        at, f"{FIRST}/aside", 1,
    )  # fmt: skip
    assert world.must(record).changes == ((record.key, made),)


@pytest.mark.parametrize(
    ("op", "given", "fields"),
    [
        (
            SubscriptionOp.JOIN,
            {"consumer": "d", "instance": 4},
            {"consumers": ("c", "d"), "instances": (3, 4)},
        ),
        (
            SubscriptionOp.JOIN,
            {"consumer": "c", "instance": 4},
            {"consumers": ("c",), "instances": (4,)},
        ),
        (SubscriptionOp.LEAVE, {"consumer": "c"}, {"consumers": (), "instances": ()}),
        (SubscriptionOp.LAPSED, {"consumer": "c", "instance": 3}, {"instances": (NOBODY,)}),
        (SubscriptionOp.DRAINED, {"segment_ids": (0,)}, {"drained": (0,), "positions": ()}),
        (
            SubscriptionOp.POSITIONS,
            {"positions": (SegmentPositions(1, (5, 6)),)},
            {"positions": (SegmentPositions(1, (5, 6)),)},
        ),
        (
            SubscriptionOp.DEAD_LETTER,
            {"dead_letter": f"{FIRST}/aside", "deliveries_max": 2},
            {"dead_letter": f"{FIRST}/aside", "deliveries_max": 2},
        ),
    ],
)
def test_a_change_of_a_subscription_changes_nothing_but_what_it_names(
    world: World, op: SubscriptionOp, given: dict[str, Any], fields: dict[str, Any]
) -> None:
    at = (SegmentPositions(0, (3, 4)),)
    world.must(world.subscription(SubscriptionOp.CREATE, kind=SubscriptionKind.QUEUE, positions=at))
    world.must(world.subscription(SubscriptionOp.JOIN, consumer="c", instance=3))
    world.committed(Operation.SPLIT, split(world), end_offsets=(3, 4))
    becomes(world, world.subscription(op, **given), world.subscribed(), **fields)


def test_a_reset_keeps_the_consumers_and_where_dead_letters_go(world: World) -> None:
    where: dict[str, Any] = {"dead_letter": f"{FIRST}/aside", "deliveries_max": 1}
    world.must(world.subscription(SubscriptionOp.CREATE, kind=SubscriptionKind.QUEUE, **where))
    world.must(world.subscription(SubscriptionOp.JOIN, consumer="c", instance=3))
    world.committed(Operation.SPLIT, split(world), end_offsets=(3, 4))
    world.must(world.subscription(SubscriptionOp.DRAINED, segment_ids=(0,)))
    at = (SegmentPositions(0, (3, 0)),)
    becomes(
        world,
        world.subscription(SubscriptionOp.RESET, positions=at),
        world.subscribed(),
        created_offset=len(world.log),
        drained=(),
        positions=at,
    )


# --- replicas and digests: order, gaps, snapshots, indexes ----------------------------------------


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
