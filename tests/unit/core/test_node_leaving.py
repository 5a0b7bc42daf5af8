"""How a node leaves: it gives everything away, ends its session, and stops."""

from __future__ import annotations

import pytest

from anabranch.core.bundles.unit import LEADERSHIP, Move, UnitState
from anabranch.core.effects import BrokerState, Halt
from anabranch.core.log.records import SessionChange, SessionOp, UnitMove
from support.stage import Actor, Stage, request, state_of, two_nodes
from support.there import there
from support.world import HALVES, UNIT, A, B, C


def test_a_drain_gives_everything_away_and_ends_cleanly() -> None:
    stage, first, owner = two_nodes()
    owner.do(owner.core.drain(stage.now))
    stage.settle()
    stage.pass_time(0.5)
    assert there(owner.halted).clean
    assert first.acts_on(UNIT)
    assert not there(first.replica.session(B)).open


def test_the_last_node_to_drain_frees_its_units() -> None:
    stage, first, owner = two_nodes()
    for node in (first, owner):
        node.do(node.core.drain(stage.now))
        stage.settle()
        stage.pass_time(1.0)
        assert node.halted is not None
    late = Actor(stage, C)
    late.read()
    assert state_of(late) == (UnitState.FREE, "", "")
    assert state_of(late, LEADERSHIP)[0] is UnitState.FREE


def test_a_node_that_has_proposed_its_leave_acts_no_more_whatever_it_is_given() -> None:
    stage, first, owner = two_nodes()
    request(stage, first, Move.RELEASE)
    owner.connected = False
    owner.do(owner.core.drain(stage.now))
    assert isinstance(owner.proposed[-1], SessionChange)
    leave = owner.proposed[-1]
    assert leave.op is SessionOp.CLOSE
    request(stage, first, Move.ASSIGN, broker=B)
    owner.connected = True
    owner.read()
    stage.settle()
    assert not owner.acts_on(UNIT)
    stage.write(leave)
    assert owner.halted == Halt("drained", clean=True)
    stage.pass_time(1.5)
    assert first.acts_on(UNIT)


def test_a_node_that_drains_gives_away_a_burst_at_a_time() -> None:
    stage = Stage()
    first = stage.start(A)
    stage.pass_time(0.5)
    owner = stage.start(B, burst=1)
    stage.pass_time(0.5)
    request(stage, first, Move.ASSIGN, broker=B)
    request(stage, first, Move.SPLIT, children=HALVES)
    assert len(owner.opened) == 3
    owner.proposed.clear()
    owner.do(owner.core.drain(stage.now))
    assert len([record for record in owner.proposed if isinstance(record, UnitMove)]) == 1


def leaving_in_vain() -> tuple[Stage, Actor, Actor]:
    """B has nothing left and has proposed its leave, which was lost."""
    stage, first, owner = two_nodes()
    request(stage, first, Move.RELEASE)
    owner.log_appends = False
    owner.do(owner.core.drain(stage.now))
    return stage, first, owner


def test_a_leave_that_was_lost_is_proposed_again() -> None:
    stage, first, owner = leaving_in_vain()
    lost = owner.proposed[-1]
    stage.pass_time(1.0)
    assert owner.beats[-1].state == BrokerState.SAFE.value, "it acts no more"
    assert B not in owner.core.candidates(stage.now)
    owner.log_appends = True
    stage.pass_time(3.0)
    again = owner.proposed[-1]
    assert isinstance(lost, SessionChange)
    assert isinstance(again, SessionChange)
    assert (again.op, again.version) == (SessionOp.CLOSE, lost.version)
    assert again.proposal_id != lost.proposal_id
    assert there(owner.halted).clean
    assert not there(first.replica.session(B)).open


@pytest.mark.parametrize("is_taken", [False, True])
def test_who_finds_that_it_has_left_as_its_view_is_built_anew_stops(is_taken: bool) -> None:
    stage, first, owner = leaving_in_vain()
    owner.connected = False
    if is_taken:
        stage.start(B)  # another process of that name
    else:
        stage.pass_time(15.0)
        assert B not in first.core.candidates(stage.now)
    assert owner.halted is None
    for offset, (record, stamp) in enumerate(stage.log):
        if offset >= owner.replica.next_offset:
            owner.replica.read(record, offset, stamp)
    owner.do(owner.core.joined(stage.now))
    assert owner.halted == Halt("drained", clean=True)


def test_that_a_unit_is_closed_may_be_told_twice() -> None:
    stage, _, owner = two_nodes()
    assert owner.core.closed("public/default/another", stage.now) == []


def test_a_node_that_never_joined_stops_at_once() -> None:
    stage = Stage()
    node = Actor(stage, A)
    node.do(node.core.drain(stage.now))
    assert there(node.halted).clean
