"""One table, three readings: the `transitions` machine, the lookup table and the fold agree."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.fold import evolve
from anabranch.core.machines import build_machine, compile_arrows, machine_step
from anabranch.core.records import CLUSTER_KEY, UnitMove, session_key
from anabranch.core.state import Cluster, FoldedState, Session
from anabranch.core.units import (
    ARROWS,
    BUNDLE_TABLE,
    LEADERSHIP,
    LEADERSHIP_ARROWS,
    LEADERSHIP_TABLE,
    Arrow,
    Guard,
    Move,
    Unit,
    UnitState,
)
from anabranch.core.verdicts import Verdict
from support.world import HALVES, UNIT, A, B, C

KINDS = ((UNIT, ARROWS), (LEADERSHIP, LEADERSHIP_ARROWS))
MACHINES = {name: build_machine(arrows, UnitState) for name, arrows in KINDS}
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


def favourable(name: str, arrow: Arrow | None, state: UnitState) -> tuple[Unit, str]:
    """A unit in `state` and an actor for whom every guard of the arrow can hold."""
    guards = arrow.guards if arrow is not None else ()
    gone = Guard.HOLDER_GONE in guards
    holder = C if gone else A
    broker, source = holder, ""
    if state is UnitState.RELEASING:
        broker, source = ("" if Guard.NO_TARGET in guards else B), holder
    elif state in (UnitState.FREE, UnitState.INIT, UnitState.DELETED):
        broker = ""
    children = HALVES if state is UnitState.SPLITTING else ()
    return Unit(state, broker, source, 5, Move.CREATE, 0, 0, "before", children), A


@pytest.mark.parametrize(("name", "state", "move"), PAIRS)
def test_machine_table_and_fold_agree_on_every_state_and_move(
    name: str, state: UnitState, move: Move
) -> None:
    table = LEADERSHIP_TABLE if name == LEADERSHIP else BUNDLE_TABLE
    arrow = table.get((state, move))
    expected = arrow.end if arrow is not None else None
    assert machine_step(MACHINES[name], state, move) is expected
    unit, actor = favourable(name, arrow, state)
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
    outcome = evolve(state_with(name, unit), record, 9, 9)
    if expected is None:
        assert outcome.verdict is Verdict.ILLEGAL_MOVE
        assert outcome.changes == ()
    else:
        assert outcome.verdict is Verdict.ACCEPTED
        key, after = outcome.changes[0]
        assert key == name
        assert expected is (after.state if isinstance(after, Unit) else UnitState.INIT)


def test_the_table_has_one_arrow_for_each_pair_and_reaches_every_state() -> None:
    for arrows, table in ((ARROWS, BUNDLE_TABLE), (LEADERSHIP_ARROWS, LEADERSHIP_TABLE)):
        assert len(table) == sum(len(arrow.starts) for arrow in arrows)
        assert compile_arrows(arrows) == table
    ends = {arrow.end for arrow in ARROWS}
    assert ends | {UnitState.FREE} == set(UnitState)


@given(st.lists(st.tuples(st.sampled_from(Move), st.randoms(use_true_random=False)), max_size=30))
def test_they_agree_along_random_logs(steps: list[tuple[Move, random.Random]]) -> None:
    """The machine follows a unit through a log of which most proposals fail."""
    unit, _ = favourable(UNIT, None, UnitState.FREE)
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
        if outcome.verdict is Verdict.ACCEPTED:
            state.apply(outcome.changes)
            after = state.unit(UNIT)
            reached = after.state if after is not None else UnitState.INIT
            assert machine_step(MACHINES[UNIT], before.state, move) is reached
        else:
            assert outcome.changes == ()
            if outcome.verdict is Verdict.ILLEGAL_MOVE:
                assert machine_step(MACHINES[UNIT], before.state, move) is None
