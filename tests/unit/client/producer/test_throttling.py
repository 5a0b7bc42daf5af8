"""What Kafka's throttling does to the time that a message has."""

from __future__ import annotations

import pytest

from anabranch.client._producer.throttled import Throttled, longest_s

TIMEOUT_S = 10.0


@pytest.fixture
def throttled() -> Throttled:
    return Throttled()


def test_time_spent_throttled_does_not_count(throttled: Throttled) -> None:
    assert throttled.sent_by(100.0, TIMEOUT_S) == 90.0
    throttled.note(80.0, 15.0)  # until 95
    throttled.note(95.5, 2.0)  # Kafka's next word: they are one
    assert throttled.sent_by(100.0, TIMEOUT_S) == 100.0 - 17.5 - TIMEOUT_S
    assert throttled.sent_by(107.5, TIMEOUT_S) == 97.5, "it was over by then"
    assert "throttled this client for 18 s by a quota" in throttled.why(107.5, TIMEOUT_S)
    assert throttled.why(147.5, TIMEOUT_S) == ""


def test_of_several_times_the_time_between_them_counts(throttled: Throttled) -> None:
    for start in (10.0, 20.0, 30.0):
        throttled.note(start, 4.0)
    assert throttled.sent_by(40.0, TIMEOUT_S) == 40.0 - TIMEOUT_S - 4.0
    assert throttled.sent_by(33.0, TIMEOUT_S) == 33.0 - TIMEOUT_S - 3.0 - 4.0


def test_it_does_not_count_for_four_times_as_long_at_most(throttled: Throttled) -> None:
    for second in range(1_000):
        throttled.note(float(second), 1.5)
    assert throttled.sent_by(1_000.0, TIMEOUT_S) == 1_000.0 - longest_s(TIMEOUT_S)
    assert longest_s(TIMEOUT_S) == 50.0
