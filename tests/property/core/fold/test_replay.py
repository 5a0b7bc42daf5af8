"""Random logs: they fold alike however they are divided, and as the machines say."""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import IntEnum
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from anabranch.core.archives.machine import ARCHIVES
from anabranch.core.bundles.machine import BUNDLES, LEADING
from anabranch.core.cluster.machine import CLUSTERS
from anabranch.core.entities.archive import Archive
from anabranch.core.entities.override import SettingOverride
from anabranch.core.entities.permission import Permission
from anabranch.core.entities.placement_policy import PlacementPolicy, PolicyKind
from anabranch.core.entities.segment import tile
from anabranch.core.entities.subscription import Subscription
from anabranch.core.entities.tenant import NamespaceInfo, Tenant
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.entities.unit import LEADERSHIP, Move, Unit
from anabranch.core.fold import digests
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log import records
from anabranch.core.log.outcome import Folded
from anabranch.core.log.state import Entity, live_bundles
from anabranch.core.log.state_machine import Existence, StateMachine
from anabranch.core.log.verdicts import Verdict
from anabranch.core.policies.machine import PLACEMENTS
from anabranch.core.ring import FULL_RING, split_bundle_name, tiles
from anabranch.core.security.machine import PERMISSIONS
from anabranch.core.sessions.machine import SESSIONS
from anabranch.core.settings.machine import OVERRIDES
from anabranch.core.subscriptions.machine import SUBSCRIPTIONS
from anabranch.core.tenants.machine import NAMESPACES as NAMESPACE_MOVES
from anabranch.core.tenants.machine import TENANTS
from anabranch.core.topics.machine import LAYOUTS
from support.random_log import BROKERS, NAMESPACES, TOPICS, random_record, worlds
from support.state_machines import lead_elsewhere
from support.world import SETTINGS, A, B, World

Log = list[tuple[records.Record | None, int]]


def replay(log: Log, replica: MemoryReplica | None = None) -> tuple[MemoryReplica, list[Folded]]:
    replica = replica or MemoryReplica()
    start = replica.next_offset
    folded = [
        replica.read(record, offset, stamp)
        for offset, (record, stamp) in enumerate(log[start:], start=start)
    ]
    return replica, folded


def same(left: MemoryReplica, right: MemoryReplica) -> None:
    assert (left.entities, left.digest) == (right.entities, right.digest)
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
def test_a_snapshot_and_the_rest_of_the_log_give_the_whole(world: World, where: float) -> None:
    prefix, _ = replay(world.log[: round(where * len(world.log))])
    resumed = MemoryReplica()
    resumed.load(prefix.entities.items(), prefix.next_offset)
    replay(world.log, resumed)
    same(resumed, world.replica)


@given(worlds())
def test_a_log_divided_by_tenant_folds_to_the_same_verdicts_and_digests(world: World) -> None:
    """Each part replays what the whole cluster shares, and counts only its own."""
    _, whole = replay(world.log)
    scopes = sorted(
        {records.scope_of(r.key) for r, _ in world.log if r is not None} | {"", "public"}
    )
    total = digests.EMPTY
    for scope in scopes:
        part = MemoryReplica()
        for offset, (record, stamp) in enumerate(world.log):
            if record is None or records.scope_of(record.key) not in ("", scope):
                continue
            assert part.read(record, offset, stamp).outcome.verdict is whole[offset].outcome.verdict
        mine = {key: e for key, e in part.entities.items() if records.scope_of(key) == scope}
        total = digests.combined(total, digests.of_entities(mine))
    assert total == world.replica.digest


@given(worlds())
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


def followed(before: Entity | None, record: records.Record | None, after: ScalableTopic) -> None:
    """A change is an epoch; active segments tile; an operation's children exist before it."""
    assert tile(after.layout.active)
    assert {part.segment_id for part in after.garbage}.isdisjoint(after.layout.segments)
    if isinstance(before, ScalableTopic):
        assert before.incarnation == after.incarnation
        changed = before.segments != after.segments
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
        begins_anew = after.created_offset != before.created_offset
        pruned = set(after.drained) < set(before.drained) and not begins_anew
        assert after.version == before.version + (not pruned)
    elif before is None and (unit_born or isinstance(after, named)):
        assert after is not None
        assert after.version == offset + 1
    elif after is not None:
        assert after.version == (before.version if before else 0) + 1


@given(worlds(), st.randoms(use_true_random=False))
def test_the_digest_does_not_depend_on_order_and_notices_any_difference(
    world: World, rng: random.Random
) -> None:
    items = list(world.replica.entities.items())
    rng.shuffle(items)
    assert digests.of_entities(dict(items)) == world.replica.digest
    key, entity = items[0]
    fewer = dict(items[1:])
    assert digests.of_entities(fewer) != world.replica.digest
    assert digests.of_entities(fewer | {key + "x": entity}) != world.replica.digest
    for other_key, other in items[1:]:
        if other != entity:
            swapped = dict(items) | {key: other, other_key: entity}
            assert digests.of_entities(swapped) != world.replica.digest
            break


@given(worlds())
def test_a_log_that_repeats_itself_moves_nothing_twice(world: World) -> None:
    """What was created and deleted since may be created again; a move or a session never may."""
    won = [
        entry.record.proposal_id
        for entry in replay(world.log + world.log)[1]
        if isinstance(
            entry.record, records.UnitMove | records.SessionChange | records.ClusterSettings
        )
        and entry.outcome.verdict is Verdict.ACCEPTED
    ]
    assert len(won) == len(set(won))


# --- one table, two readings: of every noun the `transitions` machine, guards included, and the fo


# What is wrong with a proposal before any machine looks at it.
BEFORE = (
    Verdict.REPEATED,
    Verdict.STALE_VERSION,
    Verdict.VERSION_GAP,
    Verdict.NO_CLUSTER,
    Verdict.UNKNOWN_UNIT,
    Verdict.UNKNOWN_TENANT,
    Verdict.UNKNOWN_NAMESPACE,
    Verdict.UNKNOWN_TOPIC,
    Verdict.UNKNOWN_SUBSCRIPTION,
    Verdict.OTHER_INCARNATION,
    Verdict.UNKNOWN_POLICY,
    Verdict.UNKNOWN_OVERRIDE,
    Verdict.UNKNOWN_PERMISSION,
    Verdict.UNKNOWN_ARCHIVE,
    Verdict.CLUSTER_EXISTS,
)
MACHINES: dict[type[Any], tuple[StateMachine[Any, Any], ...]] = {
    records.SessionChange: (SESSIONS,),
    records.UnitMove: (BUNDLES, LEADING),
    records.TenantChange: (TENANTS,),
    records.NamespaceChange: (NAMESPACE_MOVES,),
    records.TopicChange: (LAYOUTS,),
    records.SubscriptionChange: (SUBSCRIPTIONS,),
    records.PlacementPolicyChange: (PLACEMENTS,),
    records.SettingChange: (OVERRIDES,),
    records.PermissionChange: (PERMISSIONS,),
    records.ArchiveChange: (ARCHIVES,),
    records.ClusterSettings: (CLUSTERS,),
}
# What no machine is asked about a record of this kind, though of others it is.
ALSO_BEFORE = {
    (records.UnitMove, Verdict.SESSION_OVER),
    (records.TopicChange, Verdict.SESSION_OVER),
    (records.TopicChange, Verdict.INVALID_VALUE),
}

# What a log of some hundred records cannot come to, or hardly ever: a unit test has it.
TOO_RARE = {
    (records.SettingChange, Verdict.TOO_MANY_OVERRIDES),
    (records.PermissionChange, Verdict.TOO_MANY_PERMISSIONS),
    (records.UnitMove, Verdict.CHILD_EXISTS),
}


def machine_of(record: Any) -> StateMachine[Any, Any]:
    first, *others = MACHINES[type(record)]
    return others[0] if others and record.key == LEADERSHIP else first


def reached(entity: Any, machine: StateMachine[Any, Any]) -> IntEnum:
    """The state that the log says; what is not there is in the first one of its machine."""
    states: type[IntEnum] = machine.states
    if entity is None:
        return states(0)
    found: IntEnum = Existence.PRESENT if states is Existence else entity.state
    return found


def checked(world: World, record: Any) -> Folded:
    """The record folded, after the machine was asked."""
    kind, machine, before = type(record), machine_of(record), world.replica.entities.get(record.key)
    start, end = reached(before, machine), None
    # The guards of a subscription may count on its topic, those of a bundle on the bundle.
    if kind is records.SubscriptionChange:
        is_asked = world.replica.topic(record.topic) is not None
    else:
        is_asked = kind is not records.UnitMove or before is not None or machine is LEADING
    if is_asked:
        end = machine.step(start, move_of(record), world.replica, before, record)
    folded = world.fold(record)
    verdict = folded.outcome.verdict
    if verdict is Verdict.ACCEPTED:
        assert end is reached(world.replica.entities.get(record.key), machine)
    elif verdict is Verdict.NOT_PERMITTED:
        assert end is not None  # no machine asks who wants it
        assert record.principal
    elif verdict not in BEFORE and (kind, verdict) not in ALSO_BEFORE:
        assert end is None
        case = machine.table.get((start, move_of(record)))
        refusals = [reason for _, reason in case.checks] if case else [Verdict.ILLEGAL_MOVE]
        assert verdict in refusals
    return folded


def move_of(record: Any) -> IntEnum:
    if type(record) is records.ClusterSettings:
        return records.PolicyOp.CREATE
    found: IntEnum = (
        record.move if type(record) in (records.UnitMove, records.TopicChange) else record.op
    )
    return found


@given(st.randoms(use_true_random=False), st.integers(1, 120))
def test_machine_and_fold_agree_along_random_logs(rng: random.Random, length: int) -> None:
    agree_along_a_random_log(rng, length)


def agree_along_a_random_log(rng: random.Random, length: int) -> None:
    world = World(A, B)
    for _ in range(length):
        record = random_record(world, rng)
        if type(record) in MACHINES:
            checked(world, record)
        else:
            world.tell(record)


ELSEWHERE = [
    (machine, machine.states(start), case.row.move, end)
    for machine in chain(*MACHINES.values())
    for (start, _), case in machine.table.items()
    for end in machine.states
    if end is not case.end and machine.fits(case.row.move, end)
]


@given(st.sampled_from(ELSEWHERE), st.randoms(use_true_random=False), st.integers(1, 120))
def test_the_fold_goes_wherever_the_machine_s_arrow_leads(
    astray: tuple[StateMachine[Any, Any], IntEnum, IntEnum, IntEnum],
    rng: random.Random,
    length: int,
) -> None:
    with pytest.MonkeyPatch.context() as until_then:
        lead_elsewhere(*astray, until_then)
        agree_along_a_random_log(rng, length)


@pytest.mark.parametrize("machine", tuple(chain(*MACHINES.values())))
def test_a_machine_comes_from_its_rows_alone_and_has_one_arrow_for_each_pair(
    machine: StateMachine[Any, Any],
) -> None:
    states: type[IntEnum] = machine.states
    again = StateMachine(machine.rows, states, machine.fits)
    assert (again.table, again.states) == (machine.table, machine.states)
    assert len(machine.table) == sum(len(row.starts) for row in machine.rows)
    assert {state for state, _ in machine.table} <= set(states)


@pytest.mark.parametrize("machine", [*MACHINES[records.UnitMove], *MACHINES[records.TopicChange]])
def test_each_row_has_its_guards_in_the_order_of_precedence(
    machine: StateMachine[Any, Any],
) -> None:
    for row in machine.rows:
        reasons = [guard.refusal for guard in row.guards]
        assert reasons == sorted(reasons), row.move


def from_the_first(world: World, rng: random.Random) -> Iterator[Any]:
    """Settings that no cluster can have, then a cluster, two brokers and a random log."""
    yield replace(SETTINGS, default_bundles=0)
    yield SETTINGS
    for broker in (A, B):
        yield world.session(broker, records.SessionOp.OPEN)
    for _ in range(400):
        yield random_record(world, rng)


def test_the_random_logs_take_every_row_and_meet_every_guard() -> None:
    missing: set[tuple[type[Any], IntEnum]] = {
        (kind, Verdict.ILLEGAL_MOVE)
        for kind in (records.SessionChange, records.UnitMove, records.TopicChange)
    }
    for kind, machines in MACHINES.items():
        for row in (row for machine in machines for row in machine.rows):
            missing.add((kind, row.move))
            missing |= {(kind, guard.refusal) for guard in row.guards} - TOO_RARE
    for seed in range(400):
        rng, world = random.Random(seed), World(settings=None)
        for record in from_the_first(world, rng):
            if type(record) not in MACHINES:
                world.tell(record)
                continue
            verdict = checked(world, record).outcome.verdict
            is_taken = verdict is Verdict.ACCEPTED
            missing.discard((type(record), move_of(record) if is_taken else verdict))
        if not missing:
            break
    assert missing == set()


def test_a_picture_of_a_machine_has_a_line_for_each_arrow() -> None:
    assert LEADING.mermaid() == (
        "stateDiagram-v2\n"
        "    INIT --> OWNED: ELECT\n"
        "    FREE --> OWNED: ELECT\n"
        "    OWNED --> OWNED: SUCCEED\n"
        "    OWNED --> FREE: RESIGN\n"
    )
