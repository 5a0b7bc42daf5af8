"""A replay that begins with a snapshot knows what one from the beginning would know there."""

from __future__ import annotations

from typing import Final

import pytest

from anabranch.core.entities.cluster import Cluster
from anabranch.core.entities.session import Session
from anabranch.core.entities.unit import LEADERSHIP, Move, Unit, UnitState
from anabranch.core.log.records import SessionChange, SessionOp, UnitMove
from anabranch.spark_replay.audit.checks.bundles.leases import Leases
from anabranch.spark_replay.audit.checks.bundles.ownership import Ownership
from anabranch.spark_replay.audit.checks.cluster.leadership import Leadership
from anabranch.spark_replay.audit.checks.log.versions import Versions
from support.history import BROKERS, LEASE_MS, LIVENESS_MS
from support.local_audit import told

TOLERANCE_MS: Final = 250
BUNDLE: Final = "public/default/0x00000000_0x40000000"
HOLDER, HEIR, THIRD = BROKERS
OPENED_MS: Final = 100_000
CLUSTER: Final = Cluster(1, "c", 500, LEASE_MS, LIVENESS_MS, 4, "p")


def session(*, is_open: bool = True, version: int = 1, offset: int = 1) -> Session:
    return Session(version, is_open, OPENED_MS, offset, "p")


def unit(state: UnitState, broker: str = "", source: str = "", version: int = 5) -> Unit:
    return Unit(state, broker, source, version, Move.OWN, 0, 8, "p")


def move(
    what: Move, name: str = BUNDLE, actor: str = HEIR, epoch: int = 5, evidence: int = 0
) -> UnitMove:
    return UnitMove("p", name, what, 6, actor, 1, HEIR, epoch, evidence)


def expiry(broker: str, actor: str = HEIR, epoch: int = 5, evidence_ms: int = 0) -> SessionChange:
    return SessionChange("p", broker, SessionOp.EXPIRE, 2, actor, 1, epoch, evidence_ms)


# --- leases ---------------------------------------------------------------------------------


def leases(*states: tuple[str, Cluster | Session | Unit]) -> Leases:
    check = Leases({}, TOLERANCE_MS, primary=True)
    for key, entity in (("cluster", CLUSTER), *states):
        check.start(key, entity)
    return check


def test_an_open_session_of_the_snapshot_may_not_be_expired_before_its_time() -> None:
    check = leases((f"session:{HOLDER}", session()))
    check.shared(9, OPENED_MS + LIVENESS_MS - TOLERANCE_MS - 1, expiry(HOLDER))
    said = (
        f"session:{HOLDER}: expired {LIVENESS_MS - TOLERANCE_MS - 1} ms after its last "
        f"sign of life, before the liveness time-out of {LIVENESS_MS} ms was over"
    )
    assert told(check.tally) == [(9, said)]


def test_a_session_that_was_over_in_the_snapshot_holds_no_lease() -> None:
    check = leases((f"session:{HOLDER}", session(is_open=False)))
    check.shared(9, OPENED_MS, expiry(HOLDER))
    assert told(check.tally) == []


def test_a_holder_that_the_snapshot_says_was_overridden_is_waited_for() -> None:
    assigned = unit(UnitState.ASSIGNING, HEIR, source=HOLDER)
    check = leases((f"session:{HOLDER}", session()), (BUNDLE, assigned))
    check.owned(12, OPENED_MS, move(Move.OWN, evidence=8))
    said = (
        f"{BUNDLE}: {HEIR} owned it before {HOLDER} had seen the override at offset 8 "
        "(it had reported 8)"
    )
    assert told(check.tally) == [(12, said)]
    knowing = leases((f"session:{HOLDER}", session()), (BUNDLE, assigned))
    knowing.owned(12, OPENED_MS, move(Move.OWN, evidence=9))
    assert told(knowing.tally) == []


def test_a_unit_that_is_merely_on_its_way_in_the_snapshot_waits_for_nobody() -> None:
    releasing = unit(UnitState.RELEASING, HEIR, source=HOLDER)
    check = leases((f"session:{HOLDER}", session()), (BUNDLE, releasing))
    check.owned(12, OPENED_MS, move(Move.OWN, evidence=0))
    assert (told(check.tally), check.tally.examined) == ([], 0)


@pytest.mark.parametrize(("state", "led"), [(UnitState.OWNED, True), (UnitState.FREE, False)])
def test_the_leader_of_the_snapshot_is_followed_a_lease_later(state: UnitState, led: bool) -> None:
    check = leases((f"session:{HOLDER}", session()), (LEADERSHIP, unit(state, HOLDER)))
    check.shared(9, OPENED_MS + LIVENESS_MS, expiry(HOLDER))
    check.shared(10, OPENED_MS + LEASE_MS - TOLERANCE_MS - 1, move(Move.SUCCEED, LEADERSHIP))
    assert check.tally.violated == int(led)


# --- ownership --------------------------------------------------------------------------------


def test_nothing_is_taken_from_a_broker_that_has_a_session_in_the_snapshot() -> None:
    check = Ownership()
    check.start(BUNDLE, unit(UnitState.OWNED, HOLDER))
    check.start(f"session:{HOLDER}", session())
    check.used(8, "topic:t", BUNDLE, HOLDER)
    check.moved(9, move(Move.DISCARD), ((BUNDLE, unit(UnitState.FREE)),))
    text = f"{BUNDLE}: taken from {HOLDER}, whose session is open (DISCARD)"
    assert (told(check.tally), check.tally.examined) == ([(9, text)], 2)


# --- leadership -------------------------------------------------------------------------------


def leadership(*states: tuple[str, Session | Unit]) -> Leadership:
    check = Leadership(primary=True)
    for key, entity in states:
        check.start(key, entity)
    return check


def test_only_the_leader_of_the_snapshot_repairs_in_its_epoch() -> None:
    for actor, epoch in ((HOLDER, 5), (HOLDER, 4), (HEIR, 5)):
        check = leadership((LEADERSHIP, unit(UnitState.OWNED, HOLDER)))
        check.used(9, move(Move.RECLAIM, actor=actor, epoch=epoch))
        assert check.tally.examined == 1
        expected = [
            (9, f"{BUNDLE}: RECLAIM by {actor} in epoch {epoch}, but {HOLDER} in epoch 5 led")
        ]
        assert told(check.tally) == ([] if (actor, epoch) == (HOLDER, 5) else expected)


def test_a_leader_of_the_snapshot_is_succeeded_once_its_session_is_over() -> None:
    led = unit(UnitState.OWNED, HOLDER)
    check = leadership((LEADERSHIP, led), (f"session:{HOLDER}", session()))
    check.used(8, move(Move.RECLAIM, actor=HOLDER))
    check.shared(9, expiry(HOLDER))
    check.shared(10, move(Move.SUCCEED, LEADERSHIP))
    check.used(11, move(Move.RECLAIM, epoch=6))
    assert (told(check.tally), check.tally.examined) == ([], 4)


def test_where_the_snapshot_has_no_leader_nobody_repairs() -> None:
    check = leadership((LEADERSHIP, unit(UnitState.FREE, HOLDER)))
    check.used(9, move(Move.DISCARD, actor=HOLDER))
    assert told(check.tally) == [(9, f"{BUNDLE}: DISCARD by {HOLDER} in epoch 5, but nobody led")]


def elected(what: Move, version: int, actor: str = HEIR) -> UnitMove:
    return UnitMove("p", LEADERSHIP, what, version, actor, 1)


def test_after_a_resignation_another_may_be_elected() -> None:
    check = leadership((LEADERSHIP, unit(UnitState.OWNED, HOLDER)))
    check.shared(9, elected(Move.RESIGN, 6, HOLDER))
    check.shared(10, elected(Move.ELECT, 7, HEIR))
    assert (told(check.tally), check.tally.examined) == ([], 2)


FREE, LED, LEFT = (UnitState.FREE, True), (UnitState.OWNED, True), (UnitState.OWNED, False)


@pytest.mark.parametrize(
    ("before", "record", "said"),
    [
        (FREE, elected(Move.ELECT, 6), ""),
        (FREE, elected(Move.ELECT, 5), f"epoch 5 of {HEIR} follows epoch 5 of no leader"),
        (LED, elected(Move.ELECT, 6), f"{HEIR} became leader while {HOLDER} led"),
        (LED, elected(Move.SUCCEED, 6), f"{HEIR} became leader while {HOLDER} led"),
        (LED, elected(Move.RESIGN, 6), f"{HEIR} resigned, but {HOLDER} led"),
        (LED, elected(Move.RESIGN, 6, HOLDER), ""),
        (FREE, elected(Move.RESIGN, 6), f"{HEIR} resigned, but nobody led"),
        (LEFT, elected(Move.SUCCEED, 6), ""),
    ],
)
def test_leadership_passes_from_the_snapshot(
    before: tuple[UnitState, bool], record: UnitMove, said: str
) -> None:
    """`before`: of the leadership, and whether its last holder's session is open."""
    state, is_open = before
    known = session(is_open=is_open)
    check = leadership((LEADERSHIP, unit(state, HOLDER)), (f"session:{HOLDER}", known))
    check.shared(9, record)
    assert told(check.tally) == ([(9, f"leadership: {said}")] if said else [])
    assert check.tally.examined == 1


def test_a_session_is_ended_by_the_leader_or_is_the_leaders_own() -> None:
    states = ((LEADERSHIP, unit(UnitState.OWNED, HOLDER)), (f"session:{HOLDER}", session()))
    check = leadership(*states)
    check.shared(9, expiry(THIRD, actor=HEIR, epoch=0))
    said = f"session:{THIRD}: EXPIRE by {HEIR} in epoch 0, but {HOLDER} in epoch 5 led"
    assert told(check.tally) == [(9, said)]
    for record in (expiry(THIRD, actor=HOLDER), expiry(HOLDER, actor=HEIR, epoch=0)):
        fine = leadership(*states)
        fine.shared(9, record)
        assert (told(fine.tally), fine.tally.examined) == ([], 1)


def test_a_part_that_is_not_the_primary_one_leaves_counting_to_it() -> None:
    check = Leadership(primary=False)
    check.start(LEADERSHIP, unit(UnitState.OWNED, HOLDER))
    check.shared(9, elected(Move.ELECT, 5))
    check.shared(10, expiry(THIRD, actor=HEIR, epoch=0))
    assert (told(check.tally), check.tally.examined) == ([], 0)
    check.used(11, move(Move.RECLAIM, actor=HOLDER, epoch=4))
    assert check.tally.violated == 1  # of its own tenants' units it counts


# --- ownership and versions ---------------------------------------------------------------------


def test_versions_go_on_from_the_snapshot() -> None:
    for version, fine in ((6, True), (5, False), (7, False)):
        check = Versions()
        check.start(BUNDLE, unit(UnitState.OWNED, HOLDER, version=5))
        record = UnitMove("p", BUNDLE, Move.RELEASE, version, HOLDER, 1)
        check.accepted(9, record, ((BUNDLE, unit(UnitState.RELEASING, version=version)),))
        wrong = (9, f"{BUNDLE}: version {version} was accepted where version 6 comes next")
        assert told(check.tally) == ([] if fine else [wrong, wrong])
