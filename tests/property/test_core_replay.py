"""Random logs: however they are cut, divided or begun from a snapshot, they fold alike."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.core import digest as digests
from anabranch.core.layout import initial_segments
from anabranch.core.names import namespace_of, tenant_of
from anabranch.core.outcome import Folded
from anabranch.core.records import (
    ClusterSettings,
    PolicyOp,
    Record,
    SessionChange,
    SessionOp,
    SubscriptionChange,
    TopicChange,
    UnitMove,
    scope_of,
)
from anabranch.core.replica import MemoryReplica
from anabranch.core.ring import FULL_RING, split_bundle_name, tiles
from anabranch.core.segments import tile
from anabranch.core.state import Entity, NamespaceInfo, Tenant, leader_of, live_bundles
from anabranch.core.subscriptions import Subscription, SubscriptionKind, SubscriptionOp
from anabranch.core.topic_guards import controller_of
from anabranch.core.topics import TOPIC_TABLE, Operation, ScalableTopic, TopicMove
from anabranch.core.units import LEADERSHIP, Move, Unit, UnitState
from anabranch.core.verdicts import Verdict
from support.world import A, B, C, World

TENANTS = ("public", "acme", "a/b")
NAMESPACES = ("public/default", "public/x", "acme/y", "acme/a b")
TOPICS = ("public/default/t", "public/x/t", "acme/y/t")
BROKERS = (A, B, C, "nobody")
Log = list[tuple[Record | None, int]]


def random_record(world: World, rng: random.Random) -> Record | None:
    """Often what would be accepted, sometimes anything."""
    broker, other = rng.choice((A, B, C)), rng.choice(BROKERS)
    what = rng.random()
    if what < 0.02:
        return None
    if what < 0.14:
        return world.session(broker, rng.choice(list(SessionOp)), rng.choice((broker, A, B)))
    if what < 0.2:
        return world.tenant(rng.choice(TENANTS), rng.choice(list(PolicyOp)), broker)
    if what < 0.3:
        bundles = rng.choice((0, 1, 2, 3))
        home, op = rng.choice(NAMESPACES), rng.choice(list(PolicyOp))
        return world.namespace(home, op, broker, bundles=bundles)
    if what < 0.6:
        return random_topic_record(world, rng)
    if what < 0.67:
        move = rng.choice((Move.ELECT, Move.ELECT, Move.SUCCEED, Move.RESIGN))
        return world.move(move, broker, LEADERSHIP)
    units = [name for name, e in world.replica.entities.items() if isinstance(e, Unit)]
    if what < 0.7 or not units:
        return world.log[rng.randrange(len(world.log))][0]  # delivered again
    return random_move(world, rng, rng.choice(units), other)


def random_topic_record(world: World, rng: random.Random) -> Record:
    """On a topic or one of its subscriptions, mostly by its controller."""
    name = rng.choice((TOPICS[0], TOPICS[0], *TOPICS))
    home = namespace_of(name)
    unit, actor = controller_of(world.replica, name)
    if rng.random() < 0.8:  # first what a topic needs
        if world.replica.namespace(home) is None and world.replica.tenant(tenant_of(home)):
            return world.namespace(home, PolicyOp.CREATE, A, bundles=2)
        if not world.actor(actor or A).session:
            return world.session(actor or A, SessionOp.OPEN)
        if unit and not actor:
            return random_move(world, rng, unit, A)
    if rng.random() < 0.07:
        actor = rng.choice((B, C))
    topic = world.replica.topic(name)
    if topic is not None and rng.random() < (0.4 if topic.is_open else 0.05):
        return random_subscription_record(world, rng, topic, name, actor)
    move = TopicMove(rng.choice((*likely_moves(topic), *list(TopicMove)[:: rng.choice((1, 11))])))
    if topic is None and rng.random() < 0.8:
        move = TopicMove.CREATE
    return world.topic(move, actor, name, **topic_fields(rng, topic, move))


def likely_moves(topic: ScalableTopic | None) -> list[TopicMove]:
    """What may be accepted now; what ends all, rarely."""
    if topic is None:
        return [TopicMove.CREATE]
    moves = [TopicMove(move) for (state, move) in TOPIC_TABLE if state is topic.state]
    idle = {TopicMove.CLEAR: not topic.garbage, TopicMove.PRUNE: not has_sealed_root(topic)}
    rare = (TopicMove.DELETE, TopicMove.UPDATE, TopicMove.ABORT)
    often = [move for move in moves if not idle.get(move) and move not in rare]
    return [*moves, *often * 4]


def has_sealed_root(topic: ScalableTopic) -> bool:
    return any(not part.is_active and not part.parent_ids for part in topic.segments)


def topic_fields(
    rng: random.Random, topic: ScalableTopic | None, move: TopicMove
) -> dict[str, Any]:
    """What would be accepted, now and then spoilt."""
    spoilt = rng.random() < 0.1
    if move is TopicMove.CREATE:
        return {"segments": initial_segments(rng.choice((1, 2, 3)))[spoilt:]}
    if topic is None:
        return {}
    layout = topic.layout
    sealed = [part.segment_id for part in topic.segments if not part.is_active]
    match move:
        case TopicMove.BEGIN if len(layout.active) > 1 and rng.random() < 0.4:
            pair = [part.segment_id for part in layout.active[:2]]
            made = layout.merge_children(*pair)
            operation = Operation.SPLIT if spoilt else Operation.MERGE
            return {"operation": operation, "parents": made[0].parent_ids, "segments": made}
        case TopicMove.BEGIN:
            made = layout.split_children(rng.choice(layout.active).segment_id)
            parents = made[0].parent_ids
            return {"operation": Operation.SPLIT, "parents": parents, "segments": made[spoilt:]}
        case TopicMove.COMMIT:
            count = sum(layout.segment(each).buckets for each in topic.parents) + spoilt
            return {"end_offsets": tuple(rng.randrange(9) for _ in range(count))}
        case TopicMove.PRUNE:
            return {"segment_ids": tuple(sealed[: rng.choice((1, 1, 2))])}
        case TopicMove.CLEAR:
            return {"segment_ids": tuple(p.segment_id for p in topic.garbage) or (9,) * spoilt}
        case TopicMove.UPDATE:
            return {"properties": ("a", str(rng.randrange(9)))[spoilt:]}
        case _:
            return {}


def random_subscription_record(
    world: World, rng: random.Random, topic: ScalableTopic, name: str, actor: str
) -> Record:
    subscription = rng.choice(("s", "t"))
    existing = world.replica.subscription(name, subscription)
    ops = (SubscriptionOp.JOIN, SubscriptionOp.LEAVE, SubscriptionOp.DRAINED)
    op = rng.choice((*ops, *ops, *ops, SubscriptionOp.RESET, SubscriptionOp.DELETE))
    if has_sealed_root(topic) and rng.random() < 0.6:
        op = SubscriptionOp.DRAINED
    if existing is None and rng.random() < 0.9:
        op = SubscriptionOp.CREATE
    fields: dict[str, Any] = {}
    if op in (SubscriptionOp.JOIN, SubscriptionOp.LEAVE):
        fields["consumer"] = rng.choice(("c1", "c2", "c1", "a b"))
    elif op is SubscriptionOp.DRAINED:
        drained = existing.drained if existing else ()
        spoilt = rng.random() < 0.1
        parts = [part for part in topic.segments if spoilt or not part.is_active]
        left = [part.segment_id for part in parts if part.segment_id not in drained]
        left = left[::-1] if spoilt else left
        fields["segment_ids"] = tuple(left[: rng.choice((1, 1, 2))])
    elif op is SubscriptionOp.CREATE:
        fields["kind"] = rng.choice(list(SubscriptionKind))
        if rng.random() < 0.1:
            subscription = "a b"
    if rng.random() < 0.05:
        fields["incarnation"] = 0
    return world.subscription(op, subscription, actor, name, **fields)


def random_move(world: World, rng: random.Random, name: str, other: str) -> Record:
    unit = world.unit(name)
    likely = {
        UnitState.FREE: (Move.ASSIGN,),
        UnitState.ASSIGNING: (Move.OWN, Move.OWN, Move.RECLAIM, Move.OVERRIDE),
        UnitState.OWNED: (Move.RELEASE, Move.SPLIT, Move.RECLAIM, Move.DISCARD),
        UnitState.RELEASING: (Move.HAND_OVER, Move.FREE, Move.OVERRIDE, Move.DISCARD),
        UnitState.SPLITTING: (Move.SPLIT_COMMIT, Move.SPLIT_COMMIT, Move.OVERRIDE),
        UnitState.DELETED: (Move.TOMBSTONE,),
    }
    move = rng.choice((*likely.get(unit.state, ()), *likely.get(unit.state, ()), Move.RELEASE))
    leader = leader_of(world.replica)[0]
    by_leader = move in (Move.RECLAIM, Move.DISCARD, Move.OVERRIDE, Move.TOMBSTONE)
    actor = leader if by_leader and leader else unit.source or unit.broker or A
    if rng.random() < 0.1:
        actor = other
    children: tuple[str, ...] = ()
    if move is Move.SPLIT and name != LEADERSHIP:
        whole = split_bundle_name(name)[1]
        cuttable = whole.splittable and rng.random() < 0.9
        children = tuple(str(part) for part in (whole.halves() if cuttable else (whole,)))
    evidence = rng.choice((0, len(world.log)))
    target = rng.choice((other, "")) if move is Move.RELEASE else other
    fields = {"broker": target, "children": children, "evidence": evidence}
    return world.move(move, actor, name, **fields)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A world after a random log of some length."""
    rng = random.Random(draw(st.integers(0, 1 << 32)))
    world = World(A, B)
    for _ in range(draw(st.integers(0, 120))):
        world.tell(random_record(world, rng))
    return world


def replay(log: Log, replica: MemoryReplica | None = None) -> tuple[MemoryReplica, list[Folded]]:
    replica = replica or MemoryReplica()
    start = replica.next_offset
    folded = [
        replica.read(record, offset, stamp)
        for offset, (record, stamp) in enumerate(log[start:], start=start)
    ]
    return replica, folded


def same(left: MemoryReplica, right: MemoryReplica) -> None:
    assert left.entities == right.entities
    assert left.digest == right.digest
    assert left.next_offset == right.next_offset
    for broker in BROKERS:
        assert list(left.units_of(broker)) == list(right.units_of(broker))
    assert list(left.unsettled()) == list(right.unsettled())
    for home in NAMESPACES:
        assert list(left.bundles(home)) == list(right.bundles(home))
        assert list(left.topics(home)) == list(right.topics(home))
    for topic in TOPICS:
        assert list(left.subscriptions(topic)) == list(right.subscriptions(topic))
    assert list(left.restless_topics()) == list(right.restless_topics())


@given(worlds(), st.floats(0, 1))
@settings(max_examples=60)
def test_a_snapshot_and_the_rest_of_the_log_give_the_whole(world: World, where: float) -> None:
    cut = round(where * len(world.log))
    prefix, _ = replay(world.log[:cut])
    resumed = MemoryReplica()
    resumed.load(prefix.entities.items(), prefix.next_offset)
    replay(world.log, resumed)
    same(resumed, world.replica)


@given(worlds(), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_every_way_of_cutting_a_log_into_batches_folds_alike(
    world: World, rng: random.Random
) -> None:
    replica, at = MemoryReplica(), 0
    while at < len(world.log):
        at += rng.choice((1, 1, 2, 5, 40))
        replay(world.log[:at], replica)
    same(replica, world.replica)


@given(worlds())
@settings(max_examples=60)
def test_a_log_divided_by_tenant_folds_to_the_same_verdicts_and_digests(world: World) -> None:
    """Each part replays what the whole cluster shares, and counts only its own."""
    _, whole = replay(world.log)
    scopes = sorted({scope_of(r.key) for r, _ in world.log if r is not None} | {"", "public"})
    total = digests.EMPTY
    for scope in scopes:
        part = MemoryReplica()
        for offset, (record, stamp) in enumerate(world.log):
            if record is None or scope_of(record.key) not in ("", scope):
                continue
            verdict = part.read(record, offset, stamp).outcome.verdict
            assert verdict is whole[offset].outcome.verdict
        mine = {key: e for key, e in part.entities.items() if scope_of(key) == scope}
        total = digests.combined(total, digests.of_entities(mine))
    assert total == world.replica.digest


@given(worlds())
@settings(max_examples=60)
def test_along_every_log_bundles_tile_and_versions_ascend_by_one(world: World) -> None:
    replica = MemoryReplica()
    for offset, (record, stamp) in enumerate(world.log):
        before = dict(replica.entities)
        outcome = replica.read(record, offset, stamp).outcome
        assert (outcome.verdict is Verdict.ACCEPTED) or outcome.changes == ()
        for key, entity in outcome.changes:
            continues(before.get(key), entity, offset)
        for tenant in replica.tenants():
            for home in replica.namespaces(tenant):
                parts = [split_bundle_name(n)[1] for n, _ in live_bundles(replica, home)]
                assert tiles(parts, FULL_RING)
        for key, entity in outcome.changes:
            if isinstance(entity, ScalableTopic):
                followed(before.get(key), entity)


def followed(before: Entity | None, after: ScalableTopic) -> None:
    """One record is one epoch; active segments tile; an operation's children exist before it."""
    assert tile(after.layout.active)
    assert {part.segment_id for part in after.garbage}.isdisjoint(after.layout.segments)
    if isinstance(before, ScalableTopic):
        assert before.incarnation == after.incarnation
        assert after.epoch == (before.epoch + 1 if before.opened else 0)
        born = after.layout.segments.keys() - before.layout.segments.keys()
        assert born <= {part.segment_id for part in before.children}
        assert before.next_segment_id <= after.next_segment_id


def continues(before: Entity | None, after: Entity | None, offset: int) -> None:
    unit_born = isinstance(after, Unit) and after.move is Move.CREATE
    named = Tenant | NamespaceInfo | ScalableTopic | Subscription
    if isinstance(before, Subscription) and isinstance(after, Subscription):
        # A prune takes back what was said of the pruned; it is not a change of the subscription.
        pruned = set(after.drained) < set(before.drained)
        assert after.version == before.version + (not pruned)
    elif before is None and (unit_born or isinstance(after, named)):
        assert after is not None
        assert after.version == offset + 1
    elif after is not None:
        assert after.version == (before.version if before else 0) + 1


@given(worlds())
@settings(max_examples=60)
def test_a_unit_has_at_most_one_holder_and_it_is_one_who_was_named(world: World) -> None:
    for entity in world.replica.entities.values():
        if not isinstance(entity, Unit):
            continue
        if entity.state in (UnitState.OWNED, UnitState.SPLITTING):
            assert entity.holder == entity.broker != ""
        elif entity.state is UnitState.RELEASING:
            assert entity.holder == entity.source != ""
        else:
            assert entity.holder == ""


@given(worlds(), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_the_digest_does_not_depend_on_order_and_notices_any_difference(
    world: World, rng: random.Random
) -> None:
    items = list(world.replica.entities.items())
    rng.shuffle(items)
    assert digests.of_entities(dict(items)) == world.replica.digest
    key, entity = items[0]
    fewer = dict(items[1:])
    assert digests.of_entities(fewer) != world.replica.digest
    renamed = fewer | {key + "x": entity}
    assert digests.of_entities(renamed) != world.replica.digest
    for other_key, other in items[1:]:
        if other != entity:
            swapped = dict(items) | {key: other, other_key: entity}
            assert digests.of_entities(swapped) != world.replica.digest
            break


@given(worlds())
@settings(max_examples=30)
def test_a_log_that_repeats_itself_moves_nothing_twice(world: World) -> None:
    """What was created and deleted since may be created again; a move or a session never may."""
    folded = replay(world.log + world.log)[1]
    won = [
        entry.record.proposal_id
        for entry in folded
        if isinstance(entry.record, UnitMove | SessionChange | ClusterSettings)
        and entry.outcome.verdict is Verdict.ACCEPTED
    ]
    assert len(won) == len(set(won))


def test_the_random_logs_contain_what_they_are_to_test() -> None:
    moves, topic_moves, ops, verdicts = set(), set(), set(), set()
    for seed in range(200):
        world, rng = World(A, B), random.Random(seed)
        for _ in range(120):
            folded = world.fold(random_record(world, rng))
            verdicts.add(folded.outcome.verdict)
            record = folded.record
            if folded.outcome.verdict is not Verdict.ACCEPTED:
                continue
            if isinstance(record, UnitMove):
                moves.add(record.move)
            elif isinstance(record, TopicChange):
                topic_moves.add(record.move)
            elif isinstance(record, SubscriptionChange):
                ops.add(record.op)
    assert moves == set(Move) - {Move.CREATE}
    assert topic_moves == set(TopicMove)
    assert ops == set(SubscriptionOp)
    assert set(Verdict) - verdicts <= {
        Verdict.NO_CLUSTER,
        Verdict.VERSION_GAP,
        Verdict.CHILD_EXISTS,
        Verdict.CLUSTER_EXISTS,
    }
