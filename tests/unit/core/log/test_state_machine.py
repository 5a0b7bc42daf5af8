"""The fold goes where the arrows of a `transitions` machine lead, or nothing starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pytest

from anabranch.core.archives.machine import ARCHIVES
from anabranch.core.bundles.machine import BUNDLES, LEADING
from anabranch.core.cluster.machine import CLUSTERS
from anabranch.core.entities.archive import ArchiveOp
from anabranch.core.entities.session import SessionState
from anabranch.core.entities.subscription import SubscriptionOp
from anabranch.core.entities.topic import TopicMove, TopicState
from anabranch.core.entities.unit import LEADERSHIP, Move, UnitState
from anabranch.core.log.records import PolicyOp, Record, SessionOp
from anabranch.core.log.state_machine import Arrow, Existence, StateMachine
from anabranch.core.sessions.machine import SESSIONS
from anabranch.core.subscriptions.machine import SUBSCRIPTIONS
from anabranch.core.tenants.machine import NAMESPACES, TENANTS
from anabranch.core.topics.machine import LAYOUTS
from support.state_machines import lead_elsewhere
from support.topics import opened
from support.world import HALVES, TOPIC, UNIT, A, B, C, World

ABSENT, PRESENT = Existence.ABSENT, Existence.PRESENT
HOME = "public/x"
FREE = f"{HOME}/0x00000000_0xffffffff"
Machine = StateMachine[Any, Any]


@dataclass(frozen=True, slots=True)
class Astray:
    """An arrow that is made to lead to `end`; `makes`: each key of the changes of a record of its
    move, and the state of what it is then: ABSENT, where it is gone.
    """

    machine: Machine
    start: IntEnum
    move: IntEnum
    end: IntEnum
    record: Callable[[World], Record]
    makes: dict[str, IntEnum]


def ready() -> World:
    """Something of each noun is there, and the first bundle is about to be split."""
    world = opened()
    change = PolicyOp.CREATE
    world.must(world.tenant("acme", change))
    world.must(world.namespace(HOME, change))
    world.must(world.subscription(SubscriptionOp.CREATE))
    world.must(world.move(Move.SPLIT, A, children=HALVES))
    return world


CHANGE = PolicyOp.UPDATE
# What brokers create, change and delete has one fold for all kinds: tenants stand for them.
ASTRAY = (
    Astray(
        BUNDLES,
        UnitState.FREE,
        Move.ASSIGN,
        UnitState.OWNED,
        lambda world: world.move(Move.ASSIGN, A, FREE, broker=A),
        {FREE: UnitState.OWNED},
    ),
    Astray(
        BUNDLES,
        UnitState.SPLITTING,
        Move.SPLIT_COMMIT,
        UnitState.FREE,
        lambda world: world.move(Move.SPLIT_COMMIT, A),
        {UNIT: UnitState.FREE},
    ),
    Astray(
        LEADING,
        UnitState.INIT,
        Move.ELECT,
        UnitState.FREE,
        lambda world: world.move(Move.ELECT, A, LEADERSHIP),
        {LEADERSHIP: UnitState.FREE},
    ),
    Astray(
        SESSIONS,
        SessionState.NONE,
        SessionOp.OPEN,
        SessionState.OVER,
        lambda world: world.session(C, SessionOp.OPEN),
        {f"session:{C}": SessionState.OVER},
    ),
    Astray(
        SESSIONS,
        SessionState.OPEN,
        SessionOp.CLOSE,
        SessionState.OPEN,
        lambda world: world.session(B, SessionOp.CLOSE),
        {f"session:{B}": SessionState.OPEN},
    ),
    Astray(
        TENANTS,
        PRESENT,
        CHANGE,
        ABSENT,
        lambda world: world.tenant("acme", CHANGE),
        {"tenant:acme": ABSENT},
    ),
    Astray(
        NAMESPACES,
        PRESENT,
        CHANGE,
        ABSENT,
        lambda world: world.namespace(HOME, CHANGE),
        {f"namespace:{HOME}": ABSENT, FREE: ABSENT},
    ),
    Astray(
        LAYOUTS,
        TopicState.STABLE,
        TopicMove.UPDATE,
        TopicState.SEALING,
        lambda world: world.topic(TopicMove.UPDATE),
        {f"topic:{TOPIC}": TopicState.SEALING},
    ),
    Astray(
        LAYOUTS,
        TopicState.STABLE,
        TopicMove.DELETE,
        TopicState.INIT,
        lambda world: world.topic(TopicMove.DELETE),
        {f"topic:{TOPIC}": ABSENT, f"subscription:{TOPIC}/sub": ABSENT},
    ),
    Astray(
        SUBSCRIPTIONS,
        PRESENT,
        SubscriptionOp.JOIN,
        ABSENT,
        lambda world: world.subscription(SubscriptionOp.JOIN, consumer="c", instance=1),
        {f"subscription:{TOPIC}/sub": ABSENT},
    ),
)


@pytest.mark.parametrize("astray", ASTRAY, ids=lambda each: f"{each.move.name}-{each.end.name}")
def test_the_fold_makes_the_state_that_the_arrow_leads_to(
    astray: Astray, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ready()
    sound = made_of(ready(), astray)
    lead_elsewhere(astray.machine, astray.start, astray.move, astray.end, monkeypatch)
    assert made_of(world, astray) == astray.makes != sound


def made_of(world: World, astray: Astray) -> dict[str, IntEnum]:
    changes = world.must(astray.record(world)).changes
    return {
        key: ABSENT if found is None else getattr(found, "state", PRESENT) for key, found in changes
    }


@pytest.mark.parametrize(
    ("machine", "start", "move", "end", "said"),
    [
        (BUNDLES, UnitState.OWNED, Move.SPLIT, UnitState.DELETED, "SPLIT cannot make DELETED"),
        (BUNDLES, UnitState.OWNED, Move.RELEASE, UnitState.SPLITTING, "RELEASE cannot make SPL"),
        (LEADING, UnitState.OWNED, Move.RESIGN, UnitState.INIT, "OWNED --> INIT: RESIGN: a record"),
        (SESSIONS, SessionState.OPEN, SessionOp.CLOSE, SessionState.NONE, "cannot make NONE"),
        (TENANTS, PRESENT, PolicyOp.DELETE, PRESENT, "DELETE cannot make PRESENT"),
        (SUBSCRIPTIONS, PRESENT, SubscriptionOp.DELETE, PRESENT, "DELETE cannot make PRESENT"),
        (ARCHIVES, PRESENT, ArchiveOp.RETIRE, PRESENT, "RETIRE cannot make PRESENT"),
        (CLUSTERS, ABSENT, PolicyOp.CREATE, ABSENT, "CREATE cannot make ABSENT"),
    ],
)
def test_a_machine_that_leads_where_no_record_of_the_move_fits_is_refused(
    machine: Machine,
    start: IntEnum,
    move: IntEnum,
    end: IntEnum,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ValueError, match=said):
        lead_elsewhere(machine, start, move, end, monkeypatch)


def test_a_table_with_two_rows_for_a_state_and_a_move_is_refused() -> None:
    row = Arrow(PolicyOp.UPDATE, (PRESENT,), PRESENT, ())
    with pytest.raises(ValueError, match="PRESENT --> ABSENT: UPDATE: UPDATE leads from PRESENT"):
        StateMachine((row, Arrow(PolicyOp.UPDATE, (PRESENT,), ABSENT, ())), Existence)


def test_a_table_that_leads_to_a_state_of_another_machine_is_refused() -> None:
    row = Arrow(PolicyOp.CREATE, (ABSENT,), TopicState.STABLE, ())
    with pytest.raises(ValueError, match="ABSENT --> STABLE: CREATE: no state of Existence"):
        StateMachine((row,), Existence)
