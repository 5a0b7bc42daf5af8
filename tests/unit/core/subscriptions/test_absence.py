"""What waits for consumers that are away, and for how long nobody may serve a bucket."""

from __future__ import annotations

import pytest

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.subscription import NOBODY, SubscriptionOp
from anabranch.core.subscriptions.coordinator import SubscriptionCoordinator
from support.desk import TIMING, Desk

FOUR = SegmentLayout.initial(4)


def desk_of(*names: str, layout: SegmentLayout = FOUR) -> Desk:
    """Consumers that are connected, each by its place, and were heard with their shares."""
    desk = Desk(layout)
    for place, name in enumerate(names):
        desk.join(name, place + 1, place)
    for _ in range(2):
        settle(desk, *names)
    return desk


def settle(desk: Desk, *names: str) -> None:
    """Each reports, and gives up what it is not assigned."""
    for name in names:
        known = desk.coordinator._current[name]
        assert known.connection is not None
        held = {(s, b) for s, buckets in desk.has[known.connection] for b in buckets}
        assert desk.report(name, known.connection, released=tuple((known.holdings or set()) - held))


def wait(desk: Desk, seconds: float, *names: str) -> None:
    """Time passes, those report, and what is to be logged is logged."""
    while seconds > 0:
        desk.now += min(2.0, seconds)
        seconds -= 2.0
        settle(desk, *names)
        while desk.log() is not None:
            settle(desk, *names)


def shares(desk: Desk) -> dict[str, list[int]]:
    """By name, the segments that each shall have."""
    return {name: sorted(each) for name, each in desk.coordinator.target.wanted().items()}


def failed_over(desk: Desk) -> None:
    """Another controller knows what the log says."""
    desk.coordinator, desk.has = SubscriptionCoordinator(TIMING), {}
    desk.show()


@pytest.fixture
def desk() -> Desk:
    return desk_of("a", "b")


def test_who_is_away_keeps_what_it_served_and_is_dealt_nothing_new(desk: Desk) -> None:
    assert shares(desk) == {"a": [0, 2], "b": [1, 3]}
    desk.coordinator.closed("b", 1, desk.now)
    desk.layout = FOUR.split_segment(3)
    desk.subscription = desk.subscription.with_consumer("c", 9)
    desk.show()
    assert shares(desk)["b"] in ([1], [3], [1, 3])
    kept = shares(desk)["b"]
    desk.layout = desk.layout.split_segment(4)
    desk.show()
    assert set(shares(desk)["b"]) <= set(kept)
    assert shares(desk)["c"] == [], "it is registered and was not there yet"


def test_nobody_is_disturbed_by_one_that_goes_away() -> None:
    for away in range(3):
        desk = desk_of("a", "b", "c", layout=SegmentLayout.initial(7))
        before = shares(desk)
        desk.coordinator.closed("abc"[away], away, desk.now)
        assert desk.send() == []
        assert shares(desk) == before


def test_who_was_not_heard_since_it_was_given_a_bucket_keeps_none_of_it(desk: Desk) -> None:
    desk.coordinator.closed("b", 1, desk.now)
    wait(desk, 2 * TIMING.grace_s, "a")
    desk.join("c", 3, 7)
    settle(desk, "a")
    assert desk.has[7] != ()
    desk.coordinator.closed("c", 7, desk.now)
    assert shares(desk)["c"] == [], "it may have been dead before"
    wait(desk, TIMING.lapse_s + 2, "a")
    assert len(desk.has[0]) == 4


def test_who_comes_back_while_its_registration_is_ending_must_be_registered_anew(
    desk: Desk,
) -> None:
    desk.coordinator.closed("b", 1, desk.now)
    desk.now += TIMING.grace_s + 1
    assert desk.coordinator.over(desk.now) == ["b"], "the record may come late"
    assert not desk.coordinator.opened("b", 2, 5, (), (), desk.now), "others have its share then"
    assert desk.log() is SubscriptionOp.LEAVE
    assert desk.join("b", 2, 6)


def test_a_consumer_that_lapsed_is_logged_so_once_and_must_be_registered_anew(desk: Desk) -> None:
    desk.coordinator.closed("b", 1, desk.now)
    wait(desk, TIMING.lapse_s - 2, "a")
    assert desk.log() is None
    wait(desk, 2.0, "a")
    assert desk.subscription.instance_of("b") == 2
    desk.now += 0.5
    desk.send()
    assert desk.coordinator.lapsed(desk.now) == [("b", 2)]
    assert not desk.coordinator.opened("b", 2, 5, (), (), desk.now), "the log is to say otherwise"
    assert desk.log() is SubscriptionOp.LAPSED
    assert desk.subscription.instance_of("b") == NOBODY
    assert desk.log() is None
    assert desk.join("b", 2, 6)
    assert desk.has[6] == ((1, (0,)), (3, (0,))), "its share has waited"


def test_the_next_controller_waits_and_keeps_for_nobody_who_had_lapsed(desk: Desk) -> None:
    held: tuple[tuple[int, int], ...] = ((0, 0), (2, 0))
    desk.coordinator.closed("b", 1, desk.now)
    wait(desk, TIMING.lapse_s + 1, "a")
    for connection in (11, 12, 13):  # fail-overs in a row
        failed_over(desk)
        desk.join("a", 1, connection, holds=held)
        held = tuple((s, b) for s, buckets in desk.has[connection] for b in buckets)
        assert len(held) == 4
        assert desk.subscription.consumers == ("a", "b"), "its name has its grace"


def test_the_next_controller_keeps_for_whom_it_cannot_know_what_it_is_dealt(desk: Desk) -> None:
    failed_over(desk)
    desk.join("a", 1, 11, holds=((0, 0), (2, 0)))
    assert desk.has[11] == ((0, (0,)), (2, (0,)))
    wait(desk, TIMING.grace_s, "a")
    assert shares(desk) == {"a": [0, 2], "b": [1, 3]}
    wait(desk, 4.0, "a")
    assert shares(desk) == {"a": [0, 1, 2, 3]}


def test_who_went_away_is_not_counted_as_there_and_who_is_about_to_come_is(desk: Desk) -> None:
    assert desk.coordinator.away == 0
    desk.coordinator.closed("b", 1, desk.now)
    assert desk.coordinator.away == 1
    desk.subscription = desk.subscription.with_consumer("c", 3)
    desk.show()
    assert desk.coordinator.away == 1
    failed_over(desk)
    assert desk.coordinator.away == 0, "anybody may come back"
    desk.join("a", 1, 11)
    wait(desk, TIMING.lapse_s + 2, "a")
    assert desk.coordinator.away == 2


def test_a_bucket_that_its_holder_does_not_settle_is_told_of_once_and_shown_while_it_waits() -> (
    None
):
    desk = desk_of("a", layout=SegmentLayout.initial(1, bucket_budget=4))
    unserved = desk.coordinator.target.unserved
    desk.join("b", 2, 7)
    for _ in range(int(TIMING.unserved_s) // 5):
        desk.now += 5
        assert desk.report("a", 0)
        assert desk.report("b", 7)
        assert unserved.news(desk.now) == []
    desk.now += 5
    assert unserved.news(desk.now) == [(0, 2), (0, 3)]
    assert unserved.news(desk.now) == []
    assert unserved.overdue(desk.now) == {0: 2}
    assert desk.report("a", 0, released=((0, 2), (0, 3)))
    assert desk.has[0] == ((0, (0, 1, 2, 3)),), "what is urgent goes to the eldest"
    assert unserved.overdue(desk.now) == {0: 2}, "which may be dead"
    assert desk.report("a", 0)
    assert unserved.overdue(desk.now) == {}
    ((_, kept),) = desk.has[0]
    assert len(kept) == 2, "b shall have the others, as before"


def test_no_bucket_counts_as_unserved_while_no_consumer_is_there() -> None:
    desk = desk_of("a")
    desk.coordinator.closed("a", 0, desk.now)
    desk.send()
    desk.now += 10 * TIMING.unserved_s
    assert desk.coordinator.target.unserved.news(desk.now) == []


def test_a_bucket_is_unserved_from_when_its_consumers_connection_ends(desk: Desk) -> None:
    unserved = desk.coordinator.target.unserved
    closed_at = desk.now
    desk.coordinator.closed("b", 1, closed_at)
    desk.send()
    while desk.now <= closed_at + TIMING.urgent_s:
        assert unserved.urgent == frozenset()
        desk.now += 2  # the log has yet to take the end of b's registration
        assert desk.report("a", 0)
    assert unserved.urgent == {(1, 0), (3, 0)}
    assert desk.has[0] == tuple((segment_id, (0,)) for segment_id in range(4))
