"""One table, two readings: the `transitions` machine, guards included, and the fold agree."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.bundles.guards import HOLDER_GONE, NO_TARGET
from anabranch.core.bundles.machine import BUNDLES, LEADING, UnitArrow
from anabranch.core.bundles.unit import LEADERSHIP, Move, Unit, UnitState
from anabranch.core.cluster.settings import Cluster
from anabranch.core.log.fold import evolve
from anabranch.core.log.records import CLUSTER_KEY, UnitMove, session_key
from anabranch.core.log.state import FoldedState
from anabranch.core.log.state_machine import StateMachine
from anabranch.core.log.verdicts import Verdict
from anabranch.core.sessions.session import Session
from anabranch.core.topics.machine import LAYOUTS
from support.world import HALVES, UNIT, A, B, C

MACHINES = {UNIT: BUNDLES, LEADERSHIP: LEADING}
NO_MATTER = (Verdict.STALE_VERSION, Verdict.VERSION_GAP, Verdict.REPEATED, Verdict.SESSION_OVER)
PAIRS = tuple(product((UNIT, LEADERSHIP), UnitState, Move))


def state_with(name: str, unit: Unit) -> FoldedState:
    """A state in which A leads and C's session is over."""
    state = FoldedState()
    state.apply([(CLUSTER_KEY, Cluster(1, "test", 500, 4000, 6000, 1, ""))])
    for broker in (A, B, C):
        state.apply([(session_key(broker), Session(1, broker != C, 0, 0, ""))])
    if name != LEADERSHIP:
        lead = Unit(UnitState.OWNED, A, "", 1, Move.ELECT, 0, 0, "")
        state.apply([(LEADERSHIP, lead)])
    state.apply([(name, unit)])
    return state


def favourable(arrow: UnitArrow | None, state: UnitState) -> tuple[Unit, str]:
    """A unit in `state` and an actor for whom every guard of the arrow can hold."""
    guards = arrow.guards if arrow is not None else ()
    gone = HOLDER_GONE in guards
    holder = C if gone else A
    broker, source = holder, ""
    if state is UnitState.RELEASING:
        broker, source = ("" if NO_TARGET in guards else B), holder
    elif state in (UnitState.FREE, UnitState.INIT, UnitState.DELETED):
        broker = ""
    children = HALVES if state is UnitState.SPLITTING else ()
    return Unit(state, broker, source, 5, Move.CREATE, 0, 0, "before", children), A


@pytest.mark.parametrize(("name", "state", "move"), PAIRS)
def test_machine_and_fold_agree_on_every_state_and_move(
    name: str, state: UnitState, move: Move
) -> None:
    case = MACHINES[name].table.get((state, move))
    arrow = case.row if case is not None else None
    expected = arrow.end if arrow is not None else None
    unit, actor = favourable(arrow, state)
    record = UnitMove(
        proposal_id="p",
        unit=name,
        move=move,
        version=6,
        actor=actor,
        session=1,
        broker=B,
        epoch=1,
        children=HALVES,
    )
    world = state_with(name, unit)
    assert MACHINES[name].step(state, move, world, unit, record) is expected
    outcome = evolve(world, record, 9, 9)
    if expected is None:
        assert outcome.verdict is Verdict.ILLEGAL_MOVE
        assert outcome.changes == ()
    else:
        assert outcome.verdict is Verdict.ACCEPTED
        key, after = outcome.changes[0]
        assert key == name
        assert expected is (after.state if isinstance(after, Unit) else UnitState.INIT)


def test_the_machine_has_one_arrow_for_each_pair_and_reaches_every_state() -> None:
    for machine in MACHINES.values():
        assert len(machine.table) == sum(len(arrow.starts) for arrow in machine.rows)
    ends = {arrow.end for arrow in BUNDLES.rows}
    assert ends | {UnitState.FREE} == set(UnitState)


@pytest.mark.parametrize("machine", [BUNDLES, LEADING, LAYOUTS])
def test_a_machine_comes_from_its_rows_alone(machine: StateMachine[Any]) -> None:
    assert StateMachine(machine.rows, machine.states).table == machine.table


@given(st.lists(st.tuples(st.sampled_from(Move), st.randoms(use_true_random=False)), max_size=30))
def test_they_agree_along_random_logs(steps: list[tuple[Move, random.Random]]) -> None:
    """The machine follows a unit through a log of which most proposals fail."""
    unit, _ = favourable(None, UnitState.FREE)
    state = state_with(UNIT, unit)
    for offset, (move, rng) in enumerate(steps, start=1):
        before = state.unit(UNIT)
        if before is None:
            return
        record = UnitMove(
            proposal_id=f"p{offset}",
            unit=UNIT,
            move=move,
            version=before.version + rng.choice((1, 1, 1, 1, 0, 2)),
            actor=rng.choice((A, before.broker or A, before.source or A, C)),
            session=1,
            broker=rng.choice((A, B, "")),
            epoch=rng.choice((0, 1, 1)),
            children=rng.choice((HALVES, ())),
        )
        outcome = evolve(state, record, offset, offset)
        stepped = BUNDLES.step(before.state, move, state, before, record)
        if outcome.verdict is Verdict.ACCEPTED:
            state.apply(outcome.changes)
            after = state.unit(UNIT)
            assert stepped is (after.state if after is not None else UnitState.INIT)
        else:
            assert outcome.changes == ()
            # What is wrong with the proposal itself is no matter of the machine's.
            assert stepped is None or outcome.verdict in NO_MATTER


def test_a_picture_of_a_machine_has_a_line_for_each_arrow() -> None:
    assert LEADING.mermaid() == (
        "stateDiagram-v2\n"
        "    INIT --> OWNED: ELECT\n"
        "    FREE --> OWNED: ELECT\n"
        "    OWNED --> OWNED: SUCCEED\n"
        "    OWNED --> FREE: RESIGN\n"
    )
