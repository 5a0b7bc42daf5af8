"""One table, two readings: of every noun the `transitions` machine, guards included, and the fold
agree along random logs.
"""

from __future__ import annotations

import random
from collections import Counter
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import (
    NamespaceChange,
    PermissionChange,
    PlacementPolicyChange,
    SessionChange,
    SettingChange,
    SubscriptionChange,
    TenantChange,
)
from anabranch.core.log.state_machine import Existence, StateMachine
from anabranch.core.log.verdicts import Verdict
from anabranch.core.policies.machine import PLACEMENTS
from anabranch.core.security.machine import PERMISSIONS
from anabranch.core.sessions.machine import SESSIONS
from anabranch.core.sessions.session import Session, SessionState
from anabranch.core.settings.machine import OVERRIDES
from anabranch.core.subscriptions.machine import SUBSCRIPTIONS
from anabranch.core.tenants.machine import NAMESPACES, TENANTS
from support.random_log import random_record
from support.world import A, B, World

# What is wrong with a proposal before any machine looks at it.
BEFORE = (
    Verdict.REPEATED,
    Verdict.STALE_VERSION,
    Verdict.VERSION_GAP,
    Verdict.NO_CLUSTER,
    Verdict.UNKNOWN_TENANT,
    Verdict.UNKNOWN_NAMESPACE,
    Verdict.UNKNOWN_TOPIC,
    Verdict.UNKNOWN_SUBSCRIPTION,
    Verdict.OTHER_INCARNATION,
    Verdict.UNKNOWN_POLICY,
    Verdict.UNKNOWN_OVERRIDE,
    Verdict.UNKNOWN_PERMISSION,
)
MACHINES: dict[type[Any], StateMachine[Any]] = {
    SessionChange: SESSIONS,
    TenantChange: TENANTS,
    NamespaceChange: NAMESPACES,
    SubscriptionChange: SUBSCRIPTIONS,
    PlacementPolicyChange: PLACEMENTS,
    SettingChange: OVERRIDES,
    PermissionChange: PERMISSIONS,
}

# What a log of some hundred records cannot come to: a unit test has it.
TOO_LONG = {Verdict.TOO_MANY_OVERRIDES, Verdict.TOO_MANY_PERMISSIONS}


def reached(entity: object) -> IntEnum:
    if isinstance(entity, Session):
        return entity.state
    return Existence.ABSENT if entity is None else Existence.PRESENT


def stepped(world: World, record: Any) -> tuple[IntEnum, IntEnum | None]:
    """The state before a record, and where the machine goes."""
    machine, before = MACHINES[type(record)], world.replica.entities.get(record.key)
    start = reached(before)
    if before is None and type(record) is SessionChange:
        start = SessionState.NONE
    return start, machine.step(start, record.op, world.replica, before, record)


def checked(world: World, record: Any) -> Folded:
    """The record folded, after the machine was asked."""
    machine = MACHINES[type(record)]
    # The guards of a subscription may count on its topic.
    is_asked = type(record) is not SubscriptionChange or world.replica.topic(record.topic)
    start, end = stepped(world, record) if is_asked else (Existence.ABSENT, None)
    folded = world.fold(record)
    verdict = folded.outcome.verdict
    if verdict is Verdict.ACCEPTED:
        assert end is reached(world.replica.entities.get(record.key))
    elif verdict is Verdict.NOT_PERMITTED:
        assert end is not None  # no machine asks who wants it
        assert record.principal
    elif verdict not in BEFORE:
        assert end is None
        case = machine.table.get((start, record.op))
        refusals = [reason for _, reason in case.checks] if case else [Verdict.ILLEGAL_MOVE]
        assert verdict in refusals
    return folded


@given(st.randoms(use_true_random=False), st.integers(1, 120))
def test_machine_and_fold_agree_along_random_logs(rng: random.Random, length: int) -> None:
    world = World(A, B)
    for _ in range(length):
        record = random_record(world, rng)
        if type(record) in MACHINES:
            checked(world, record)
        else:
            world.tell(record)


@pytest.mark.parametrize("machine", MACHINES.values())
def test_a_machine_comes_from_its_rows_alone_and_has_one_arrow_for_each_pair(
    machine: StateMachine[Any],
) -> None:
    assert StateMachine(machine.rows, machine.states).table == machine.table
    assert len(machine.table) == sum(len(row.starts) for row in machine.rows)


def test_the_random_logs_take_every_row_and_meet_every_guard() -> None:
    taken: Counter[tuple[type[Any], int]] = Counter()
    refused: Counter[tuple[type[Any], Verdict]] = Counter()
    for seed in range(200):
        rng, world = random.Random(seed), World(A, B)
        for _ in range(400):
            record: Any = random_record(world, rng)
            if type(record) not in MACHINES:
                world.tell(record)
                continue
            verdict = checked(world, record).outcome.verdict
            if verdict is Verdict.ACCEPTED:
                taken[type(record), record.op] += 1
            else:
                refused[type(record), verdict] += 1
    for kind, machine in MACHINES.items():
        assert {row.move for row in machine.rows} == {move for of, move in taken if of is kind}
        reasons = {guard.refusal for row in machine.rows for guard in row.guards} - TOO_LONG
        assert reasons - {reason for of, reason in refused if of is kind} == set(), kind
