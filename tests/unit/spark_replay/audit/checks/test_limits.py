"""Each limit of the audit counts to the millisecond and offset: on it all is well, beyond not."""

from __future__ import annotations

from typing import Final

import pytest

from anabranch.core.entities.cluster import Cluster
from anabranch.core.entities.session import Session
from anabranch.core.entities.unit import LEADERSHIP, Move, UnitState
from anabranch.core.log.records import ClusterSettings, SessionChange, SessionOp, UnitMove
from anabranch.spark_replay.audit.checks.bundles.leases import BeatTimes, Leases
from anabranch.spark_replay.audit.checks.log.digests import Claim, check_digests
from anabranch.spark_replay.audit.checks.topics.topic_checks import TopicsLeft
from anabranch.spark_replay.audit.checks.unfinished import (
    Unfinished,
    UnfinishedUnit,
    check_orphans,
    check_stuck,
)
from support.history import LEASE_MS, LIVENESS_MS

TOLERANCE_MS: Final = 250
BUNDLE: Final = "public/default/0x00000000_0x40000000"
HOLDER, HEIR = "b1:8080", "b2:8080"
OPENED_MS: Final = 100_000


def leases(beats: BeatTimes | None = None, *, primary: bool = True) -> Leases:
    """A check that has seen the settings and a session of each broker open at `OPENED_MS`."""
    check = Leases(beats or {}, TOLERANCE_MS, primary=primary)
    check.shared(0, OPENED_MS, ClusterSettings("p", "c", 1, HOLDER, 500, LEASE_MS, LIVENESS_MS, 4))
    for broker in (HOLDER, HEIR):
        check.shared(1, OPENED_MS, session(broker, SessionOp.OPEN))
    return check


def session(broker: str, op: SessionOp, evidence_ms: int = 0, version: int = 1) -> SessionChange:
    return SessionChange("p", broker, op, version, HEIR, 1, 1, evidence_ms)


def move(what: Move, unit: str = BUNDLE, evidence: int = 0, actor: str = HEIR) -> UnitMove:
    return UnitMove("p", unit, what, 2, actor, 1, HEIR, 1, evidence)


# --- when a session may be expired ------------------------------------------------------------


@pytest.mark.parametrize(("early_ms", "violations"), [(0, 0), (1, 1)])
def test_a_session_may_be_expired_a_time_out_after_its_sign_or_opening(
    early_ms: int, violations: int
) -> None:
    for evidence_ms, since_ms in ((OPENED_MS + 40, OPENED_MS + 40), (0, OPENED_MS)):
        check = leases()
        at_ms = since_ms + LIVENESS_MS - TOLERANCE_MS - early_ms
        check.shared(9, at_ms, session(HOLDER, SessionOp.EXPIRE, evidence_ms))
        assert (check.tally.examined, check.tally.violated) == (1, violations)


@pytest.mark.parametrize(
    ("beat_ms", "counts"), [(1, True), (LEASE_MS - 1, True), (LEASE_MS, False)]
)
def test_a_later_heartbeat_counts_while_the_lease_could_hold(beat_ms: int, counts: bool) -> None:
    check = leases({(HOLDER, 1): (OPENED_MS, OPENED_MS + beat_ms)})
    due_ms = OPENED_MS + LIVENESS_MS - TOLERANCE_MS + (beat_ms if counts else 0)
    check.shared(9, due_ms, session(HOLDER, SessionOp.EXPIRE))
    assert check.tally.violated == 0
    again = leases({(HOLDER, 1): (OPENED_MS, OPENED_MS + beat_ms)})
    again.shared(9, due_ms - 1, session(HOLDER, SessionOp.EXPIRE))
    assert again.tally.violated == 1


def test_a_heartbeat_of_another_session_says_nothing_of_this_one() -> None:
    check = leases({(HOLDER, 2): (OPENED_MS + 10,), (HEIR, 1): (OPENED_MS + 10,)})
    check.shared(9, OPENED_MS + LIVENESS_MS - TOLERANCE_MS, session(HOLDER, SessionOp.EXPIRE))
    check.shared(9, OPENED_MS + 10 + LIVENESS_MS, session(HEIR, SessionOp.EXPIRE))
    assert (check.tally.examined, check.tally.violated) == (2, 0)


# --- when another may own ----------------------------------------------------------------------


@pytest.mark.parametrize("taking", [Move.RECLAIM, Move.DISCARD])
@pytest.mark.parametrize(("early_ms", "violations"), [(0, 0), (1, 1)])
def test_a_unit_may_be_owned_a_lease_after_its_former_holders_last_sign_less_the_tolerance(
    taking: Move, early_ms: int, violations: int
) -> None:
    check = leases(primary=False)
    sign_ms = OPENED_MS + 40
    check.shared(9, sign_ms + LIVENESS_MS, session(HOLDER, SessionOp.EXPIRE, sign_ms))
    check.taken(10, move(taking), HOLDER)
    check.owned(11, sign_ms + LEASE_MS - TOLERANCE_MS - early_ms, move(Move.OWN))
    assert check.tally.examined == 1
    assert [found.offset for found in check.tally.witnesses] == [11] * violations


def test_the_former_holder_itself_may_own_again_at_any_time() -> None:
    check = leases()
    check.shared(9, OPENED_MS + LIVENESS_MS, session(HOLDER, SessionOp.EXPIRE))
    check.taken(10, move(Move.DISCARD), HOLDER)
    check.owned(11, OPENED_MS, move(Move.OWN, actor=HOLDER))
    assert check.tally.violated == 0


@pytest.mark.parametrize(("early_ms", "violations"), [(0, 0), (1, 1)])
def test_leadership_may_be_taken_a_lease_after_a_sign(early_ms: int, violations: int) -> None:
    check = leases()
    check.shared(2, OPENED_MS, move(Move.ELECT, LEADERSHIP, actor=HOLDER))
    sign_ms = OPENED_MS + LIVENESS_MS  # so late that expiring it is early: one violation more
    check.shared(9, sign_ms, session(HOLDER, SessionOp.EXPIRE, sign_ms))
    check.shared(10, sign_ms + LEASE_MS - TOLERANCE_MS - early_ms, move(Move.SUCCEED, LEADERSHIP))
    assert check.tally.violated == 1 + violations


def test_after_a_resignation_nobodys_lease_is_waited_for() -> None:
    check = leases()
    check.shared(2, OPENED_MS, move(Move.ELECT, LEADERSHIP, actor=HOLDER))
    check.shared(3, OPENED_MS, move(Move.RESIGN, LEADERSHIP, actor=HOLDER))
    check.shared(4, OPENED_MS + LIVENESS_MS, session(HOLDER, SessionOp.EXPIRE))
    examined = check.tally.examined
    check.shared(5, OPENED_MS, move(Move.SUCCEED, LEADERSHIP))
    assert (check.tally.examined, check.tally.violated) == (examined, 0)


# --- overrides ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("read_to", "violations"), [(10, 1), (11, 0)])
def test_after_an_override_its_holder_must_have_read_it_or_be_a_later_session(
    read_to: int, violations: int
) -> None:
    check = leases()
    for offset in (5, 10):
        check.taken(offset, move(Move.OVERRIDE), HOLDER)
        check.owned(offset + 2, OPENED_MS, move(Move.OWN, evidence=read_to))
    assert (check.tally.examined, check.tally.violated) == (2, violations)
    again = leases()
    again.shared(read_to, OPENED_MS, session(HOLDER, SessionOp.OPEN, version=2))
    again.taken(10, move(Move.OVERRIDE), HOLDER)
    again.owned(12, OPENED_MS, move(Move.OWN))
    assert again.tally.violated == violations


@pytest.mark.parametrize(("evidence", "violations"), [(10, 1), (11, 0)])
def test_a_lost_holder_is_waited_for_a_lease_long(evidence: int, violations: int) -> None:
    check = leases()
    check.taken(10, move(Move.OVERRIDE), HOLDER)
    sign_ms = OPENED_MS + 40
    check.shared(11, sign_ms + LIVENESS_MS, session(HOLDER, SessionOp.EXPIRE, sign_ms))
    check.owned(12, sign_ms + LEASE_MS - TOLERANCE_MS - 1, move(Move.OWN, evidence=evidence))
    assert (check.tally.violated, check.tally.examined) == (violations, 1 + violations)


# --- what is left at the end of the log ---------------------------------------------------------

PATIENCE_MS: Final = 30_000
END_MS: Final = 1_000_000


def unit(since_ms: int, state: UnitState = UnitState.OWNED) -> UnfinishedUnit:
    return UnfinishedUnit(BUNDLE, state, HOLDER, since_ms, 7)


def held(since_ms: int, *, is_open: bool) -> Session:
    return Session(1, is_open, since_ms=since_ms, since_offset=3, proposal_id="p")


@pytest.mark.parametrize(("late_ms", "violations"), [(0, 0), (1, 1)])
@pytest.mark.parametrize("by_the_session", [False, True])
def test_a_unit_of_a_closed_session_may_wait_as_long_as_the_patience(
    late_ms: int, violations: int, by_the_session: bool
) -> None:
    over_ms = END_MS - PATIENCE_MS - late_ms
    since = (1, over_ms) if by_the_session else (over_ms, 1)
    unfinished = Unfinished(
        orphaned=[unit(since[0])], units=1, sessions={HOLDER: held(since[1], is_open=False)}
    )
    tally = check_orphans(unfinished, {}, END_MS, PATIENCE_MS)
    assert (tally.examined, [found.offset for found in tally.witnesses]) == (1, [7] * violations)


def silent(heard_ms: int, *, beats: bool = True) -> Unfinished:
    cluster = Cluster(1, "c", 500, LEASE_MS, LIVENESS_MS, 4, "p")
    sessions = {HOLDER: held(1 if beats else heard_ms, is_open=True), HEIR: held(1, is_open=True)}
    return Unfinished(
        answering={HOLDER: 2}, sample={HOLDER: BUNDLE}, sessions=sessions, cluster=cluster
    )


@pytest.mark.parametrize(("late_ms", "violations"), [(0, 0), (1, 1)])
@pytest.mark.parametrize("beats", [False, True])
def test_a_silent_broker_in_an_open_session_is_told_once_time_out_and_patience_are_over(
    late_ms: int, violations: int, beats: bool
) -> None:
    heard_ms = END_MS - LIVENESS_MS - PATIENCE_MS - late_ms
    last = {HEIR: END_MS, **({HOLDER: heard_ms} if beats else {})}
    tally = check_orphans(silent(heard_ms, beats=beats), last, END_MS, PATIENCE_MS)
    assert [found.offset for found in tally.witnesses] == [3] * violations
    assert all("answers for 2 units" in found.text for found in tally.witnesses)


def test_who_answers_for_nothing_or_is_known_to_be_gone_is_not_called_silent() -> None:
    unfinished = silent(1)
    unfinished.answering = {}
    assert check_orphans(unfinished, {HEIR: END_MS}, END_MS, PATIENCE_MS).violated == 0
    unfinished = silent(1)
    unfinished.sessions[HOLDER] = held(1, is_open=False)
    assert check_orphans(unfinished, {HEIR: END_MS}, END_MS, PATIENCE_MS).violated == 0


@pytest.mark.parametrize(("others_ms", "violations"), [(0, 0), (1, 1)])
def test_silence_of_all_accuses_nobody(others_ms: int, violations: int) -> None:
    heard_ms = END_MS - 500_000
    last = {HOLDER: heard_ms, HEIR: heard_ms + PATIENCE_MS + others_ms}
    assert check_orphans(silent(heard_ms), last, END_MS, PATIENCE_MS).violated == violations


@pytest.mark.parametrize(("late_ms", "violations"), [(0, 0), (1, 1)])
def test_a_unit_in_flight_may_wait_as_long_as_the_patience(late_ms: int, violations: int) -> None:
    waiting = unit(END_MS - PATIENCE_MS - late_ms, UnitState.ASSIGNING)
    tally = check_stuck(Unfinished(in_flight=[waiting], units=3), TopicsLeft(), END_MS, PATIENCE_MS)
    assert (tally.examined, tally.violated) == (3, violations)


# --- digests ------------------------------------------------------------------------------------


def test_a_claim_at_either_end_is_judged_one_beyond_is_false_and_one_before_cannot_be() -> None:
    folded = {5: "aa", 9: "bb"}
    assert check_digests([Claim("n", 9, "bb")], folded, 5, 9).violated == 0
    assert check_digests([Claim("n", 9, "aa")], folded, 5, 9).violated == 1
    beyond = check_digests([Claim("n", 10, "bb")], folded, 5, 9)
    assert beyond.violated == 1
    assert "the log ends at 9" in beyond.witnesses[0].text
    assert check_digests([Claim("n", 5, "bb")], folded, 5, 9).violated == 1
    before = check_digests([Claim("n", 4, "bb")], folded, 5, 9)
    assert (before.examined, before.violated) == (0, 0)
