"""A node's decisions: joining, leases, serving, and repairs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.core.bundles import propose
from anabranch.core.effects import BrokerState, Halt, NodeSettings
from anabranch.core.entities.unit import LEADERSHIP, Move, UnitState
from anabranch.core.log.records import Cause, SessionChange, SessionOp, UnitMove
from support.stage import Actor, Stage, request, state_of, two_nodes
from support.there import there
from support.world import HALVES, UNIT, A, B, C


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
    assert LEADERSHIP not in node.opened, "there is nothing of it to serve"
    assert node.core.lease.holds(stage.now)


def test_a_node_with_other_settings_halts_and_says_which_and_what_to_do() -> None:
    stage = Stage()
    stage.start(A)
    other = stage.start(B, cluster="other", lease_s=3.0)
    assert not there(other.halted).clean
    for words in ("clusterName is 'test', not 'other'", "leaseMillis is 4000, not 3000"):
        assert words in there(other.halted).reason
    assert "topicPrefix" in there(other.halted).reason
    assert not any(isinstance(record, SessionChange) for record in other.proposed)
    assert other.core.mode is BrokerState.STOPPED


def test_the_first_nodes_settings_are_the_clusters_to_the_millisecond() -> None:
    stage = Stage()
    given = {"heartbeat_s": 1.0, "lease_s": 8.0, "liveness_timeout_s": 12.0}
    cluster = there(stage.start(A, **given).replica.cluster())
    found = (cluster.heartbeat_ms, cluster.lease_ms, cluster.liveness_timeout_ms)
    assert found == (1_000, 8_000, 12_000)
    assert stage.start(B, **given).halted is None
    other = stage.start(C, **{**given, "heartbeat_s": 2.0, "liveness_timeout_s": 13.0})
    assert "heartbeatIntervalMillis is 1000, not 2000" in there(other.halted).reason
    assert "livenessTimeoutMillis is 12000, not 13000" in there(other.halted).reason


def test_the_default_settings_leave_the_margin_that_the_fold_asks_for() -> None:
    settings = NodeSettings(broker=A, cluster="c", web_url="", service_url="")
    assert settings.heartbeat_s < settings.lease_s * 1.1 <= settings.liveness_timeout_s


def test_a_second_process_with_the_same_id_fences_the_first() -> None:
    stage = Stage()
    first = stage.start(A)
    stage.pass_time(0.5)
    second = stage.start(A)
    assert "fenced" in there(first.halted).reason
    assert not there(first.halted).clean
    assert not first.core.lease.holds(stage.now)
    assert second.core.session == 2


def test_sessions_say_why_they_begin_and_heartbeats_come_with_them_in_order() -> None:
    stage = Stage()
    node = stage.start(A)
    assert node.beats == [], "it has no session"
    stage.pass_time(2.0)
    node.connected = False
    stage.pass_time(10.0)
    node.connected = True
    stage.pass_time(2.0)
    opened = [r for r in node.proposed if isinstance(r, SessionChange)]
    assert {each.session for each in opened} == {0}
    assert opened[0].cause is Cause.START_UP
    assert {each.cause for each in opened[1:]} == {Cause.LEASE_LAPSED}
    assert [each.sequence for each in node.beats] == list(range(1, len(node.beats) + 1))


def test_an_entry_that_is_delivered_again_does_not_fence_the_node_that_wrote_it() -> None:
    stage = Stage()
    stage.start(A)
    stage.pass_time(0.5)
    node = Actor(stage, B)
    stage.nodes.append(node)
    node.read()
    node.do(node.core.joined(stage.now))
    folded = node.read()
    assert node.core.session == 1
    node.do(node.core.folded(folded, stage.now))
    assert node.halted is None


def test_a_session_says_so_at_once_also_if_another_ones_is_read_with_it() -> None:
    stage = Stage()
    stage.start(A)
    stage.pass_time(0.5)
    node, other = Actor(stage, B), Actor(stage, C)
    for each in (node, other):
        each.read()
        each.do(each.core.joined(stage.now))
        assert each.beats == [], "it has no session yet"
    node.read()
    assert node.replica.session(C) is not None
    assert [beat.session for beat in node.beats] == [1]


def test_what_is_new_counts_also_behind_what_is_delivered_again() -> None:
    stage, first, owner = two_nodes()
    request(stage, first, Move.RELEASE)
    assert owner.opened == [UNIT]
    record = propose.move(
        first.core.actor(),
        UNIT,
        first.replica.unit(UNIT),
        Move.ASSIGN,
        stage.new_id(),
        Cause.OPERATOR,
        broker=B,
    )
    again = Actor(stage, C).read()
    stage.log.append((record, stage.now_ms))
    new = owner.replica.read(record, len(stage.log) - 1, stage.now_ms)
    owner.proposed.clear()
    owner.do(owner.core.folded([*again, new], stage.now))
    assert [record.move for record in owner.proposed if isinstance(record, UnitMove)] == [Move.OWN]


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
    assert (state_of(first), owner.opened) == ((UnitState.OWNED, B, ""), [UNIT])


def test_after_the_log_was_away_for_all_whoever_is_back_first_waits_for_the_others() -> None:
    stage, leader, owner = two_nodes()
    unit = owner.replica.unit(UNIT)
    for node in (leader, owner):
        node.log_reads = node.log_appends = False
        actor, new_id = node.core.actor(), stage.new_id()
        missed = propose.move(actor, UNIT, unit, Move.OWN, new_id, Cause.RECONCILE)
        node.do(node.core._propose(missed, stage.now))
    stage.pass_time(20.0)
    assert owner.beats[-1].state == BrokerState.SAFE.value
    leader.log_reads = leader.log_appends = True
    stage.pass_time(3.0)
    assert leader.core.session == 2
    owner.log_reads = owner.log_appends = True
    stage.pass_time(8.0)
    assert owner.acts_on(UNIT)
    assert all(r.op is SessionOp.OPEN for r, _ in stage.log if isinstance(r, SessionChange))


def test_heartbeats_of_an_earlier_process_prove_nothing_to_the_next_one() -> None:
    stage, leader, _ = two_nodes()
    old = leader.beats[-1]
    stage.kill(leader)
    again = stage.start(A)
    again.core.heard(msgspec.structs.replace(old, sent_at=1e9), stage.now_ms, stage.now)
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
    unit = there(owner.replica.unit(UNIT))
    wrong = propose.move(owner.core.actor(), UNIT, unit, Move.OWN, stage.new_id(), Cause.RECONCILE)
    for _ in range(5):
        owner.do(owner.core._propose(wrong, stage.now))
        stage.settle()
    assert len(moves(owner, Move.OWN)) == 2  # the one that won before, and one of these


# --- leading --------------------------------------------------------------------------------


def test_only_brokers_that_serve_and_are_heard_get_units() -> None:
    stage, first, owner = two_nodes()
    assert set(first.core.candidates(stage.now)) == {A, B}
    owner.do(owner.core.drain(stage.now))
    assert set(owner.core.candidates(stage.now)) == {A}, "not itself, though it has its lease"
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


# --- how a node leaves: it gives everything away, ends its session, and stops ---------------------


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
