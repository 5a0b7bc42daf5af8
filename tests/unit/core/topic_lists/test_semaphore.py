"""What the semaphore that gives memory to topic lists says, and what it costs.

The property test has all its rules, told once more as a plain model.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from anabranch.core.errors import InvalidInputError
from anabranch.core.topic_lists.errors import InvalidPermitsError
from anabranch.core.topic_lists.semaphore import LARGEST, PermitGranted, Semaphore, SemaphoreLimits
from support.permits import NamedRequests


@pytest.mark.parametrize("permits_max", [0, -1])
def test_without_a_maximum_everything_succeeds_at_once(permits_max: int) -> None:
    of = NamedRequests(permits_max, queue_max=1)
    of.cancelled.add("a")
    assert of.acquire("a", 1 << 62) == ["a has 4611686018427387904"]
    of.close()
    assert of.acquire("b", 1 << 62) == ["b has 4611686018427387904"]
    assert of.update("c", "b", 7) == ["c has 7"]
    assert of.update("d", "c", 9) == ["d has 9"]
    assert of.release("d") == []
    assert (of.semaphore.available, of.semaphore.acquired) == (LARGEST, 0)
    assert of.semaphore.queue_size == 0
    assert of.latencies == []  # nobody has queued


def test_latency_is_told_when_served_and_twice_on_a_time_out() -> None:
    of = NamedRequests(10)
    of.acquire("a", 10)
    of.now = 5
    of.acquire("b", 4)
    of.now = 25
    of.acquire("c", 7)
    of.release("a")
    assert of.latencies == [0, 20]
    of.pass_time(126)
    assert of.latencies == [0, 20, LARGEST, 101]
    of.cancelled.add("d")
    of.acquire("d", 1)
    of.acquire("e", 11)
    of.close()
    assert len(of.latencies) == 4


def test_a_permit_of_something_else_is_refused_and_changes_nothing() -> None:
    of, other = NamedRequests(10), NamedRequests(10)
    other.acquire("theirs", 4)
    of.acquire("ours", 4)
    for strange in (other.permits["theirs"], None, 4):
        with pytest.raises(InvalidPermitsError, match=r"^Invalid permit type"):
            of.semaphore.release(strange, 0)  # type: ignore[arg-type]
        with pytest.raises(InvalidPermitsError, match=r"^Invalid permit type"):
            of.semaphore.update(7, strange, 1, 0)  # type: ignore[arg-type]
    assert (of.semaphore.acquired, other.held("theirs")) == (4, 4)


def test_a_time_out_of_nothing_is_no_limit_to_give() -> None:
    with pytest.raises(InvalidInputError, match="give more than 0"):
        SemaphoreLimits(1, 1, 0)


def test_every_refusal_says_why() -> None:
    of = NamedRequests(10, queue_max=1)
    assert of.acquire("negative", -1) == ["negative negative"]
    assert of.acquire("large", 11) == ["large more_than_all"]
    of.acquire("a", 10)
    of.cancelled.add("cancelled")
    of.acquire("cancelled", 1)
    assert of.acquire("late", 1) == ["late queue_full"]
    assert of.release("a") == ["cancelled cancelled"]
    of.acquire("b", 10)
    of.acquire("waits", 1)
    assert of.pass_time(100) == ["waits timed_out"]
    of.acquire("last", 1)
    assert of.close() == ["last closed"]
    assert of.messages == {
        "negative": "Invalid negative permits value: -1",
        "large": "Requested permits=11 is larger than maxPermits=10",
        "cancelled": "Permit acquisition was cancelled",
        "late": "Semaphore queue is full",
        "waits": "Permit acquisition timed out",
        "last": "Semaphore is closed",
    }


# --- cost -----------------------------------------------------------------------------------


class Number(int):
    """A request's number that is compared in Python, so that a search for it is seen."""

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        return int(self) == other


def lines_of_an_event(waiting: int) -> int:
    """How many lines a request, one that is withdrawn and a release take, while others wait."""
    semaphore = Semaphore(SemaphoreLimits(10, 0, 1 << 60))
    (first, *_) = [semaphore.acquire(Number(each), 10, each) for each in range(waiting)]
    (granted,) = first
    assert isinstance(granted, PermitGranted)
    lines = 0

    def counted(frame: FrameType, what: str, _: Any) -> Any:
        nonlocal lines
        lines += what == "line"
        return counted

    before = sys.gettrace()
    sys.settrace(counted)
    try:
        semaphore.acquire(Number(waiting), 10, waiting)
        semaphore.withdraw(Number(waiting // 2), waiting)
        semaphore.release(granted.permit, waiting)
        semaphore.time_out(waiting)
    finally:
        sys.settrace(before)
    return lines


def test_an_event_costs_as_much_with_many_that_wait_as_with_few() -> None:
    assert 0 < lines_of_an_event(2_000) == lines_of_an_event(20)
