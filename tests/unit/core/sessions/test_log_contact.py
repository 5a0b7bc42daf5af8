"""A broker that has lost the log gives up its lease by itself, and no other broker does."""

from __future__ import annotations

import pytest

from anabranch.core.bundles import propose
from anabranch.core.effects import BrokerState
from anabranch.core.entities.unit import Move, UnitState
from anabranch.core.log.records import Cause, SessionChange
from anabranch.core.sessions.log_contact import LogContact
from support.stage import Stage, request, state_of, two_nodes
from support.there import there
from support.world import UNIT, A

PATIENCE_S = 4.0


# --- what is outstanding --------------------------------------------------------------------


def test_any_own_record_that_is_read_starts_the_count_afresh() -> None:
    contact = LogContact(PATIENCE_S)
    contact.proposed("lost", 10.0)
    contact.proposed("read", 13.0)
    contact.read_back()
    assert not contact.lost(20.0)
    contact.proposed("lost", 20.0)
    assert not contact.lost(23.9)
    assert contact.lost(24.0)


def test_what_others_settled_is_not_waited_for() -> None:
    contact = LogContact(PATIENCE_S)
    contact.proposed("settled", 10.0)
    contact.proposed("waited for", 12.0)
    contact.decided("settled")
    contact.decided("never proposed")
    assert not contact.lost(15.9)
    assert contact.lost(16.0)


def test_an_offset_that_others_have_folded_must_be_reached_in_time() -> None:
    contact = LogContact(PATIENCE_S)
    contact.heard(5, 5, 10.0)
    assert not contact.lost(99.0)
    contact.heard(7, 5, 100.0)
    contact.heard(9, 5, 103.0)
    contact.folded(6, 103.0)
    assert contact.lost(104.0)
    contact.folded(7, 104.0)  # what was heard at 103 counts from now on
    assert not contact.lost(107.9)
    assert contact.lost(108.0)
    contact.folded(9, 108.0)
    assert not contact.lost(999.0)


def test_another_session_starts_with_nothing_outstanding() -> None:
    contact = LogContact(PATIENCE_S)
    contact.proposed("x", 10.0)
    contact.heard(7, 5, 10.0)
    contact.sent_beat(10.0)
    assert contact.lost(14.0)
    assert contact.asks(14.0)
    contact.renewed()
    assert not contact.lost(99.0)
    assert not contact.asks(99.0)


def test_it_asks_after_half_the_time_whether_a_record_or_a_heartbeat_is_unread() -> None:
    contact = LogContact(PATIENCE_S)
    contact.sent_beat(10.0)
    contact.sent_beat(11.0)
    contact.proposed("x", 11.0)
    assert not contact.asks(11.9)
    assert contact.asks(12.0)
    contact.read_beat()
    assert not contact.asks(12.9)
    assert contact.asks(13.0)
    contact.read_back()
    assert not contact.asks(99.0)


# --- what a node does -----------------------------------------------------------------------


@pytest.mark.parametrize(("reads", "appends"), [(False, True), (True, False), (False, False)])
def test_a_node_that_reaches_the_heartbeats_but_not_the_log_loses_its_units(
    reads: bool, appends: bool
) -> None:
    stage, first, owner = two_nodes()
    owner.log_reads, owner.log_appends = reads, appends
    request(stage, first, Move.RELEASE)
    stage.pass_time(7.0)
    assert not owner.core.lease.holds(stage.now)
    assert owner.beats[-1].state == BrokerState.SAFE.value
    stage.pass_time(8.0)
    assert state_of(first)[:2] == (UnitState.FREE, "") or first.acts_on(UNIT)
    owner.log_reads = owner.log_appends = True
    stage.pass_time(3.0)
    assert owner.halted is None
    assert owner.core.mode is BrokerState.SERVING
    assert owner.core.session > 1


def test_a_node_that_reads_nothing_at_all_gives_up_though_its_heartbeats_arrive() -> None:
    stage, first, owner = two_nodes()
    stage.nodes.remove(owner)
    for _ in range(60):
        stage.now += 0.25
        owner.do(owner.core.tick(stage.now))
        first.do(first.core.tick(stage.now))
        stage.settle()
    assert not owner.core.lease.holds(stage.now)
    assert first.acts_on(UNIT)


def test_an_idle_log_costs_no_lease_and_not_a_record() -> None:
    stage, _, owner = two_nodes()
    length = len(stage.log)
    stage.pass_time(60.0)
    assert len(stage.log) == length
    assert owner.acts_on(UNIT)
    assert owner.core.session == 1


def test_lost_proposals_cost_no_lease_as_long_as_a_later_one_is_read_back() -> None:
    stage, first, owner = two_nodes()
    owner.log_appends = False
    request(stage, first, Move.RELEASE)
    stage.pass_time(2.5)
    owner.log_appends = True
    stage.pass_time(5.0)
    assert owner.core.session == 1
    assert state_of(first)[0] is UnitState.FREE


def test_a_lost_proposal_that_nobody_needs_any_more_costs_a_question_not_the_lease() -> None:
    stage, _, owner = two_nodes()
    length = len(stage.log)
    wanted = there(owner.replica.unit(UNIT))
    lost = propose.move(owner.core.actor(), UNIT, wanted, Move.OWN, "lost", Cause.RECONCILE)
    assert len(list(owner.core._propose(lost, stage.now))) == 1
    stage.pass_time(10.0)
    assert owner.core.session == 1
    assert [type(record).__name__ for record, _ in stage.log[length:]] == ["ClusterSettings"]


def test_a_session_proposed_early_in_a_long_outage_is_known_as_an_own_one_when_it_lands() -> None:
    stage = Stage()
    node = stage.start(A)
    stage.pass_time(0.5)
    node.connected = False
    stage.pass_time(600.0)
    attempts = [r for r in node.proposed if isinstance(r, SessionChange) and r.version == 2]
    assert len(attempts) > 500
    node.connected = True
    stage.write(attempts[0])
    assert node.halted is None
    assert not node.core.lease.holds(stage.now)
    stage.pass_time(2.0)
    assert node.core.session == 3
    assert node.core.mode is BrokerState.SERVING


def test_an_outage_of_any_length_fills_no_memory() -> None:
    stage = Stage()
    node = stage.start(A)
    stage.pass_time(0.5)
    node.connected = False
    stage.now += 1.0
    for _ in range(1_200):
        stage.now += 1.0
        node.do(node.core.tick(stage.now))
    assert len(node.core._membership._opening) == 1_000
