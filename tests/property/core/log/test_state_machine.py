"""One table, two readings: of every noun the `transitions` machine, guards included, and the fold
agree along random logs.
"""

from __future__ import annotations

import random
from enum import IntEnum
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.bundles.machine import BUNDLES, LEADING
from anabranch.core.bundles.unit import LEADERSHIP
from anabranch.core.log import records
from anabranch.core.log.outcome import Folded
from anabranch.core.log.state_machine import Existence, StateMachine
from anabranch.core.log.verdicts import Verdict
from anabranch.core.policies.machine import PLACEMENTS
from anabranch.core.security.machine import PERMISSIONS
from anabranch.core.sessions.machine import SESSIONS
from anabranch.core.settings.machine import OVERRIDES
from anabranch.core.subscriptions.machine import SUBSCRIPTIONS
from anabranch.core.tenants.machine import NAMESPACES, TENANTS
from anabranch.core.topics.machine import LAYOUTS
from support.random_log import random_record
from support.world import A, B, World

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
)
MACHINES: dict[type[Any], tuple[StateMachine[Any], ...]] = {
    records.SessionChange: (SESSIONS,),
    records.UnitMove: (BUNDLES, LEADING),
    records.TenantChange: (TENANTS,),
    records.NamespaceChange: (NAMESPACES,),
    records.TopicChange: (LAYOUTS,),
    records.SubscriptionChange: (SUBSCRIPTIONS,),
    records.PlacementPolicyChange: (PLACEMENTS,),
    records.SettingChange: (OVERRIDES,),
    records.PermissionChange: (PERMISSIONS,),
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


def machine_of(record: Any) -> StateMachine[Any]:
    first, *others = MACHINES[type(record)]
    return others[0] if others and record.key == LEADERSHIP else first


def reached(entity: Any, machine: StateMachine[Any]) -> IntEnum:
    """The state that the log says; what is not there is in the first one of its machine."""
    if entity is None:
        return machine.states(0)
    return Existence.PRESENT if machine.states is Existence else entity.state


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
    found: IntEnum = (
        record.move if type(record) in (records.UnitMove, records.TopicChange) else record.op
    )
    return found


@given(st.randoms(use_true_random=False), st.integers(1, 120))
def test_machine_and_fold_agree_along_random_logs(rng: random.Random, length: int) -> None:
    world = World(A, B)
    for _ in range(length):
        record = random_record(world, rng)
        if type(record) in MACHINES:
            checked(world, record)
        else:
            world.tell(record)


@pytest.mark.parametrize("machine", tuple(chain(*MACHINES.values())))
def test_a_machine_comes_from_its_rows_alone_and_has_one_arrow_for_each_pair(
    machine: StateMachine[Any],
) -> None:
    again = StateMachine(machine.rows, machine.states)
    assert (again.table, again.states) == (machine.table, machine.states)
    assert len(machine.table) == sum(len(row.starts) for row in machine.rows)
    assert {state for state, _ in machine.table} <= set(machine.states)


@pytest.mark.parametrize("machine", [*MACHINES[records.UnitMove], *MACHINES[records.TopicChange]])
def test_each_row_has_its_guards_in_the_order_of_precedence(machine: StateMachine[Any]) -> None:
    for row in machine.rows:
        reasons = [guard.refusal for guard in row.guards]
        assert reasons == sorted(reasons), row.move


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
        rng, world = random.Random(seed), World(A, B)
        for _ in range(400):
            record: Any = random_record(world, rng)
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
