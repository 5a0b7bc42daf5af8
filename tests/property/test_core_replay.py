"""Random logs: however they are cut, divided or begun from a snapshot, they fold alike."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.core import digest as digests
from anabranch.core.outcome import Folded
from anabranch.core.records import (
    ClusterSettings,
    PolicyOp,
    Record,
    SessionChange,
    SessionOp,
    UnitMove,
    scope_of,
)
from anabranch.core.replica import MemoryReplica
from anabranch.core.ring import FULL_RING, split_bundle_name, tiles
from anabranch.core.state import Entity, NamespaceInfo, Tenant, leader_of, live_bundles
from anabranch.core.units import LEADERSHIP, Move, Unit, UnitState
from anabranch.core.verdicts import Verdict
from support.world import A, B, C, World

TENANTS = ("public", "acme", "a/b")
NAMESPACES = ("public/default", "public/x", "acme/y", "acme/a b")
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
    if what < 0.38:
        move = rng.choice((Move.ELECT, Move.ELECT, Move.SUCCEED, Move.RESIGN))
        return world.move(move, broker, LEADERSHIP)
    units = [name for name, e in world.replica.entities.items() if isinstance(e, Unit)]
    if what < 0.42 or not units:
        return world.log[rng.randrange(len(world.log))][0]  # delivered again
    return random_move(world, rng, rng.choice(units), other)


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


def continues(before: Entity | None, after: Entity | None, offset: int) -> None:
    unit_born = isinstance(after, Unit) and after.move is Move.CREATE
    if before is None and (unit_born or isinstance(after, Tenant | NamespaceInfo)):
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
    moves, verdicts = set(), set()
    for seed in range(150):
        world, rng = World(A, B), random.Random(seed)
        for _ in range(100):
            folded = world.fold(random_record(world, rng))
            verdicts.add(folded.outcome.verdict)
            record = folded.record
            if isinstance(record, UnitMove) and folded.outcome.verdict is Verdict.ACCEPTED:
                moves.add(record.move)
    assert moves == set(Move) - {Move.CREATE}
    assert set(Verdict) - verdicts <= {
        Verdict.NO_CLUSTER,
        Verdict.VERSION_GAP,
        Verdict.CHILD_EXISTS,
        Verdict.CLUSTER_EXISTS,
    }
