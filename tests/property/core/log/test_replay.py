"""Random logs: however they are cut, divided or begun from a snapshot, they fold alike."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.core.archives.archive import Archive
from anabranch.core.bundles.unit import Move, Unit, UnitState
from anabranch.core.log import digests
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import (
    ClusterSettings,
    Record,
    SessionChange,
    SubscriptionChange,
    TopicChange,
    UnitMove,
    scope_of,
)
from anabranch.core.log.replica import MemoryReplica
from anabranch.core.log.state import Entity, live_bundles
from anabranch.core.log.verdicts import Verdict
from anabranch.core.policies.policy import PlacementPolicy, PolicyKind
from anabranch.core.ring import FULL_RING, split_bundle_name, tiles
from anabranch.core.security.permission import Permission
from anabranch.core.settings.override import SettingOverride
from anabranch.core.subscriptions.subscription import Subscription, SubscriptionOp
from anabranch.core.tenants.tenant import NamespaceInfo, Tenant
from anabranch.core.topics.segment import tile
from anabranch.core.topics.topic import ScalableTopic, TopicMove
from support.random_log import BROKERS, NAMESPACES, TOPICS, random_record, worlds
from support.world import A, B, World

Log = list[tuple[Record | None, int]]


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
    for kind in PolicyKind:
        assert list(left.placements(kind)) == list(right.placements(kind))
    assert list(left.overrides()) == list(right.overrides())
    for scope in (*NAMESPACES, *TOPICS):
        assert list(left.permissions(scope)) == list(right.permissions(scope))
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
                followed(before.get(key), record, entity)


def followed(before: Entity | None, record: Record | None, after: ScalableTopic) -> None:
    """A change is an epoch; active segments tile; an operation's children exist before it."""
    assert tile(after.layout.active)
    assert {part.segment_id for part in after.garbage}.isdisjoint(after.layout.segments)
    if isinstance(before, ScalableTopic):
        assert before.incarnation == after.incarnation
        changed = before.segments != after.segments
        if isinstance(record, TopicChange) and not record.counts_changes:
            changed = before.is_open  # an older release's: each record counts
        assert after.epoch == before.epoch + changed
        born = after.layout.segments.keys() - before.layout.segments.keys()
        assert born <= {part.segment_id for part in before.children}
        assert before.next_segment_id <= after.next_segment_id


def continues(before: Entity | None, after: Entity | None, offset: int) -> None:
    unit_born = isinstance(after, Unit) and after.move is Move.CREATE
    named = Tenant | NamespaceInfo | ScalableTopic | Subscription | Archive | PlacementPolicy
    named |= SettingOverride | Permission
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
    rare = {Verdict.NO_CLUSTER, Verdict.VERSION_GAP, Verdict.CHILD_EXISTS, Verdict.CLUSTER_EXISTS}
    too_long = {Verdict.TOO_MANY_OVERRIDES, Verdict.TOO_MANY_PERMISSIONS}  # after a thousand
    assert set(Verdict) - verdicts <= rare | too_long
