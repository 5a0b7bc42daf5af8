"""A node's decisions: joining, leases, serving, repairs, and the ways it ends."""

from __future__ import annotations

from typing import Any

import msgspec

from anabranch.core import ownership
from anabranch.core.effects import BrokerState, NodeSettings
from anabranch.core.records import Cause, SessionChange, SessionOp, UnitMove
from anabranch.core.state import leader_of
from anabranch.core.units import LEADERSHIP, Move, UnitState
from support.stage import Actor, Stage, request, settings_for, state_of, two_nodes
from support.world import FIRST, HALVES, UNIT, A, B, C


def moves(node: Actor, what: Move) -> list[UnitMove]:
    return [r for r in node.proposed if isinstance(r, UnitMove) and r.move is what]


# --- joining --------------------------------------------------------------------------------


def test_the_first_node_writes_the_settings_opens_a_session_and_leads() -> None:
    stage = Stage()
    node = stage.start(A)
    assert node.core.session == 0
    stage.pass_time(0.25)
    assert node.core.mode is BrokerState.SERVING
    assert node.core.is_leader()
    assert node.core.lease.holds(stage.now)
    assert [type(r).__name__ for r in node.proposed] == [
        "ClusterSettings",
        "SessionChange",
        "UnitMove",
    ]


def test_a_node_with_other_settings_halts_and_says_which_and_what_to_do() -> None:
    stage = Stage()
    stage.start(A)
    other = stage.start(B, cluster="other", lease_s=3.0)
    assert other.halted is not None
    assert not other.halted.clean
    for words in ("clusterName is 'test', not 'other'", "leaseMillis is 4000, not 3000"):
        assert words in other.halted.reason
    assert "topicPrefix" in other.halted.reason
    assert not any(isinstance(record, SessionChange) for record in other.proposed)
    assert other.core.mode is BrokerState.STOPPED


def test_the_default_settings_leave_the_margin_that_the_fold_asks_for() -> None:
    settings = NodeSettings(broker=A, cluster="c", web_url="", service_url="")
    assert settings.heartbeat_s < settings.lease_s * 1.1 <= settings.liveness_timeout_s


def test_a_second_process_with_the_same_id_fences_the_first() -> None:
    stage = Stage()
    first = stage.start(A)
    stage.pass_time(0.5)
    second = stage.start(A)
    assert first.halted is not None
    assert "fenced" in first.halted.reason
    assert not first.core.lease.holds(stage.now)
    assert second.core.session == 2


# --- leases ---------------------------------------------------------------------------------


def test_a_node_without_acknowledgements_stops_to_act_and_says_so() -> None:
    stage, _, owner = two_nodes()
    owner.connected = False
    stage.pass_time(3.5)
    assert owner.acts_on(UNIT)
    stage.pass_time(1.0)
    assert not owner.acts_on(UNIT)
    assert owner.core.mode is BrokerState.SAFE
    assert owner.beats[-1].state == BrokerState.SAFE.value


def test_a_node_that_comes_back_in_time_opens_another_session_and_keeps_its_units() -> None:
    stage, first, owner = two_nodes()
    owner.connected = False
    stage.pass_time(5.0)
    owner.connected = True
    stage.pass_time(2.0)
    assert owner.core.session == 2
    assert owner.acts_on(UNIT)
    assert state_of(first) == (UnitState.OWNED, B, "")
    assert owner.opened == [UNIT]


def test_a_silent_nodes_units_go_to_another_after_the_time_out() -> None:
    stage, first, owner = two_nodes()
    stage.kill(owner)
    stage.pass_time(5.5)
    assert state_of(first) == (UnitState.OWNED, B, "")
    stage.pass_time(1.0)
    assert first.acts_on(UNIT)


def test_when_the_leader_falls_silent_anyone_expires_and_succeeds_it() -> None:
    stage, leader, other = two_nodes()
    third = stage.start(C)
    stage.pass_time(0.5)
    stage.kill(leader)
    stage.pass_time(7.0)
    assert leader_of(other.replica)[0] in (B, C)
    assert other.core.is_leader() != third.core.is_leader()


def test_after_a_lapse_of_its_own_a_leader_waits_for_the_others() -> None:
    stage, leader, owner = two_nodes()
    leader.connected = owner.connected = False
    stage.pass_time(20.0)
    leader.connected = True
    stage.pass_time(4.0)
    owner.connected = True
    stage.pass_time(8.0)
    assert owner.acts_on(UNIT)
    expired = [r for r, _ in stage.log if isinstance(r, SessionChange) and r.op is SessionOp.EXPIRE]
    assert expired == []


def test_heartbeats_of_an_earlier_process_prove_nothing_to_the_next_one() -> None:
    stage, leader, _ = two_nodes()
    old = leader.beats[-1]
    stage.kill(leader)
    again = stage.start(A)
    future = msgspec.structs.replace(old, sent_at=1e9)
    again.core.heard(future, stage.now_ms, stage.now)
    assert again.core.liveness.silence_s(B, 1) == 0.0


# --- serving --------------------------------------------------------------------------------


def test_a_transfer_is_logged_only_after_the_owner_has_closed_the_unit() -> None:
    stage, first, owner = two_nodes()
    owner.closes = False
    request(stage, first, Move.RELEASE, broker=A)
    assert owner.closing == [UNIT]
    assert not owner.acts_on(UNIT)
    stage.pass_time(2.0)
    assert state_of(first) == (UnitState.RELEASING, A, B)
    assert moves(owner, Move.HAND_OVER) == []
    owner.close(UNIT)
    stage.settle()
    assert first.acts_on(UNIT)


def test_a_unit_that_comes_back_while_it_is_closing_is_opened_after_that() -> None:
    stage, first, owner = two_nodes()
    owner.closes = False
    request(stage, first, Move.RELEASE)
    request(stage, first, Move.OVERRIDE, broker=B)
    assert state_of(first)[:2] == (UnitState.ASSIGNING, B)
    owner.close(UNIT)
    stage.pass_time(2.0)
    assert owner.acts_on(UNIT)
    assert owner.opened == [UNIT, UNIT]


def test_a_split_makes_its_owner_serve_the_children() -> None:
    stage, first, owner = two_nodes()
    request(stage, first, Move.SPLIT, children=HALVES)
    assert not owner.acts_on(UNIT)
    assert all(owner.acts_on(f"{FIRST}/{half}") for half in HALVES)


def test_a_restarted_owner_finishes_what_it_had_begun() -> None:
    cases: tuple[tuple[Move, dict[str, Any], UnitState], ...] = (
        (Move.RELEASE, {}, UnitState.FREE),
        (Move.SPLIT, {"children": HALVES}, UnitState.DELETED),
    )
    for what, fields, end in cases:
        stage, first, owner = two_nodes()
        stage.kill(owner)
        request(stage, first, what, **fields)
        stage.start(B)
        stage.pass_time(1.0)
        assert state_of(first)[0] is end


def test_entries_and_heartbeats_that_are_delivered_again_change_nothing() -> None:
    stage, _, owner = two_nodes()
    twin = Actor(stage, C)
    folded = twin.read()
    assert owner.core.folded(folded, stage.now) == []
    for beat, stamp in stage.beats:
        owner.core.heard(beat, stamp, stage.now)
    assert owner.core.tick(stage.now) == []
    assert owner.acts_on(UNIT)
    assert owner.halted is None


def test_a_proposal_without_an_answer_is_made_again_but_not_at_once() -> None:
    stage, first, owner = two_nodes()
    owner.closes = False
    request(stage, first, Move.RELEASE)
    owner.connected = False
    owner.close(UNIT)
    assert len(moves(owner, Move.FREE)) == 1
    stage.pass_time(0.75)
    assert len(moves(owner, Move.FREE)) == 1
    owner.connected = True
    stage.pass_time(0.5)
    assert len(moves(owner, Move.FREE)) == 2
    assert state_of(first)[0] is UnitState.FREE


def test_a_rejected_proposal_is_not_repeated_at_once() -> None:
    stage, _, owner = two_nodes()
    unit = owner.replica.unit(UNIT)
    assert unit is not None
    wrong = ownership.move(
        owner.core.actor(), UNIT, unit, Move.OWN, stage.new_id(), Cause.RECONCILE
    )
    for _ in range(5):
        owner.do(owner.core._propose(wrong, stage.now))
        stage.settle()
    assert len(moves(owner, Move.OWN)) == 2  # the one that won before, and one of these


# --- leading --------------------------------------------------------------------------------


def test_only_brokers_that_serve_and_are_heard_get_units() -> None:
    stage, first, owner = two_nodes()
    assert set(first.core.candidates(stage.now)) == {A, B}
    owner.do(owner.core.drain(stage.now))
    owner.read()
    first.read()
    assert set(first.core.candidates(stage.now)) == {A}


def test_a_stuck_unit_is_taken_away_and_its_holder_is_waited_for() -> None:
    stage, first, owner = two_nodes()
    owner.closes = False
    request(stage, first, Move.RELEASE, broker=B)
    request(stage, first, Move.RELEASE)
    stage.pass_time(20.0)
    assert len(moves(first, Move.OVERRIDE)) == 1
    assert first.acts_on(UNIT)
    assert not owner.acts_on(UNIT)


def test_deleted_units_are_tombstoned_after_the_delay() -> None:
    stage, first, _ = two_nodes()
    request(stage, first, Move.SPLIT, children=HALVES)
    stage.pass_time(15.0)
    assert state_of(first)[0] is UnitState.DELETED
    stage.pass_time(12.0)
    assert first.replica.unit(UNIT) is None


def test_a_unit_handed_to_a_broker_that_has_gone_is_reclaimed_at_once() -> None:
    stage, first, owner = two_nodes()
    third = stage.start(C)
    stage.pass_time(0.5)
    owner.closes = False
    request(stage, first, Move.RELEASE, broker=C)
    stage.kill(third)
    stage.pass_time(6.75)
    assert state_of(first) == (UnitState.RELEASING, C, B)
    owner.close(UNIT)
    stage.settle()
    assert state_of(first)[0] is UnitState.OWNED


# --- leaving --------------------------------------------------------------------------------


def test_a_drain_gives_everything_away_and_ends_cleanly() -> None:
    stage, first, owner = two_nodes()
    owner.do(owner.core.drain(stage.now))
    stage.settle()
    stage.pass_time(0.5)
    assert owner.halted is not None
    assert owner.halted.clean
    assert first.acts_on(UNIT)
    session = first.replica.session(B)
    assert session is not None
    assert not session.open


def test_a_draining_leader_resigns_first() -> None:
    stage, leader, owner = two_nodes()
    leader.do(leader.core.drain(stage.now))
    stage.settle()
    stage.pass_time(1.0)
    assert leader.halted is not None
    assert leader.halted.clean
    assert owner.core.is_leader()


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
    stage.pass_time(1.5)
    assert owner.halted is not None
    assert owner.halted.clean
    assert first.acts_on(UNIT)


def test_a_node_that_never_joined_stops_at_once() -> None:
    stage = Stage()
    node = Actor(stage, A)
    node.do(node.core.drain(stage.now))
    assert node.halted is not None
    assert node.halted.clean
    assert settings_for(A).broker == A
