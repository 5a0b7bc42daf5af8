"""Leases and the observation of silence; each case of the proof in `core.leases`."""

from __future__ import annotations

import pytest

from anabranch.core.sessions.lease import Heartbeat, Lease, Liveness
from support.there import there

LEASE_S, TIMEOUT_S = 4.0, 6.0
ME, OTHER = "me:1", "other:1"


def beat(broker: str = OTHER, session: int = 1, sent_at: float = 0.0) -> Heartbeat:
    return Heartbeat(
        broker=broker,
        session=session,
        sequence=1,
        sent_at=sent_at,
        state="serving",
        next_offset=0,
        digest="",
        horizon=-1,
        web_url="",
        service_url="",
        version="",
    )


# --- leases ---------------------------------------------------------------------------------


@pytest.fixture
def lease() -> Lease:
    """Since 10 s."""
    lease = Lease(LEASE_S)
    lease.begin(10.0)
    return lease


def test_a_lease_counts_from_when_the_session_was_sent_not_from_when_it_was_read() -> None:
    lease = Lease(LEASE_S)
    assert not lease.holds(0.0)
    lease.begin(10.0)
    assert lease.holds(13.9)
    assert not lease.holds(14.0)
    assert lease.remaining_s(13.0) == 1.0
    assert lease.remaining_s(20.0) == 0.0


def test_an_older_acknowledgement_that_comes_later_takes_nothing_back(lease: Lease) -> None:
    lease.renew(sent_at=12.0, now=12.1)
    lease.renew(sent_at=11.0, now=12.2)
    assert lease.holds(15.9)


def test_a_lapsed_lease_is_not_revived_even_by_a_fresh_heartbeat(lease: Lease) -> None:
    lease.renew(sent_at=14.0, now=14.1)
    assert not lease.holds(14.1)
    lease.begin(10.0)
    lease.renew(sent_at=13.0, now=14.0)
    assert not lease.holds(14.0)
    lease.renew(sent_at=14.2, now=14.3)
    assert not lease.holds(14.3)
    lease.begin(15.0)
    assert lease.holds(18.9)


def test_an_ended_lease_is_over_at_once(lease: Lease) -> None:
    lease.end()
    assert not lease.holds(10.1)


# --- silence --------------------------------------------------------------------------------


@pytest.fixture
def liveness() -> Liveness:
    """An observer that has just seen session 1 of OTHER and reads its own heartbeats back."""
    liveness = Liveness(TIMEOUT_S)
    liveness.caught_up(0.0, 0.0)
    liveness.session_opened(OTHER, 1, 0.0, 1_000)
    return liveness


def read_back(liveness: Liveness, until: float, since: float = 0.0) -> None:
    """Own heartbeats, each read as soon as it was sent."""
    step = since
    while step <= until:
        liveness.caught_up(step, step)
        step += 0.5


def test_a_broker_is_silent_after_the_time_out_without_a_heartbeat(liveness: Liveness) -> None:
    read_back(liveness, 5.5)
    assert not liveness.is_silent(OTHER, 1)
    read_back(liveness, 6.0, since=6.0)
    assert liveness.is_silent(OTHER, 1)
    assert liveness.silence_s(OTHER, 1) == 6.0


def test_a_session_that_is_told_of_again_is_no_sign_of_life(liveness: Liveness) -> None:
    read_back(liveness, 6.0)
    liveness.session_opened(OTHER, 1, 6.0, 7_000)
    assert liveness.silence_s(OTHER, 1) == 6.0


def test_a_heartbeat_breaks_the_silence(liveness: Liveness) -> None:
    read_back(liveness, 5.5)
    liveness.heard(beat(), 5.5, 6_500)
    read_back(liveness, 11.0, since=6.0)
    assert not liveness.is_silent(OTHER, 1)
    assert liveness.last_heard_ms(OTHER) == 6_500


def test_an_observer_that_reads_nothing_of_its_own_observes_no_silence(liveness: Liveness) -> None:
    assert not liveness.is_silent(OTHER, 1)
    liveness.heard(beat(), 100.0, 1)
    assert liveness.silence_s(OTHER, 1) == 0.0


def test_a_heartbeat_that_says_its_lease_lapsed_is_no_sign_of_life(liveness: Liveness) -> None:
    for at in range(1, 7):
        liveness.heard(beat(), float(at), 1, lapsed=True)
        read_back(liveness, at + 0.5, since=float(at))
    assert liveness.is_silent(OTHER, 1)


def test_a_new_session_is_not_judged_by_the_silence_of_the_old_one(liveness: Liveness) -> None:
    read_back(liveness, 6.0)
    assert liveness.is_silent(OTHER, 1)
    assert liveness.silence_s(OTHER, 2) == 0.0
    liveness.session_opened(OTHER, 2, 6.0, 1)
    assert not liveness.is_silent(OTHER, 1)
    assert not liveness.is_silent(OTHER, 2)


def test_heartbeats_of_an_earlier_session_count_for_nothing(liveness: Liveness) -> None:
    liveness.session_opened(OTHER, 2, 0.0, 1)
    liveness.heard(beat(session=1), 5.0, 5)
    read_back(liveness, 6.0)
    assert liveness.is_silent(OTHER, 2)


def test_a_heartbeat_may_come_before_the_session_it_belongs_to(liveness: Liveness) -> None:
    liveness.heard(beat(session=2), 5.0, 5)
    liveness.session_opened(OTHER, 2, 5.5, 1)
    read_back(liveness, 10.5)
    assert not liveness.is_silent(OTHER, 2)
    assert there(liveness.beat_of(OTHER)).session == 2


def test_a_broker_whose_next_session_has_sent_nothing_yet_is_still_known_by_its_last_words(
    liveness: Liveness,
) -> None:
    liveness.heard(beat(), 5.0, 5)
    liveness.session_opened(OTHER, 2, 5.5, 6)
    assert liveness.beat_of(OTHER) == beat()
    assert liveness.last_heard_ms(OTHER) == 6


def test_an_observer_that_sends_every_half_time_out_counts_on(liveness: Liveness) -> None:
    liveness.caught_up(3.0, 3.0)
    liveness.caught_up(6.0, 6.0)
    assert liveness.is_silent(OTHER, 1)


def test_an_observer_that_could_not_send_for_a_while_counts_afresh(liveness: Liveness) -> None:
    liveness.caught_up(9.0, 9.2)
    assert not liveness.is_silent(OTHER, 1)
    read_back(liveness, 15.0, since=9.5)
    assert not liveness.is_silent(OTHER, 1)
    read_back(liveness, 15.5, since=15.5)
    assert liveness.is_silent(OTHER, 1)


def test_who_was_never_seen_is_not_silent() -> None:
    liveness = Liveness(TIMEOUT_S)
    read_back(liveness, 60.0)
    assert liveness.silence_s(OTHER, 1) == 0.0
    assert liveness.last_heard_ms(OTHER) == 0
    assert liveness.beat_of(OTHER) is None
