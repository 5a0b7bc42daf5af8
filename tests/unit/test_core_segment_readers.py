"""One segment's load: what consumers report to have read counts as far as Kafka bears it out."""

from __future__ import annotations

import pytest

from support.segment_flow import NOTHING, WINDOW_S, Flow


def test_all_that_one_reader_reports_between_two_samples_counts() -> None:
    flow = Flow(total=0)
    flow.begin(age_s=0.0)
    flow.meter.read(100, 50_000, "billing@1")
    flow.meter.read(20, 70_000, "billing@1")
    flow.meter.read(0, 0, "idle@2")
    flow.step(came=1_000)
    assert flow.load.rates[2:] == pytest.approx((120 / WINDOW_S, 120_000 / WINDOW_S))


def test_of_a_report_that_is_believed_in_part_so_many_bytes_count_as_messages() -> None:
    flow = Flow(total=0)
    flow.begin(age_s=0.0)
    flow.meter.read(400, 100_000, "billing@1")
    flow.step(came=100)
    assert flow.load.rates[2:] == pytest.approx((100 / WINDOW_S, 25_000 / WINDOW_S))


def test_a_single_message_counts() -> None:
    flow = Flow(total=0)
    flow.begin(age_s=0.0)
    flow.meter.read(1, 7, "billing@1")
    flow.step(came=1)
    assert flow.load.rates[2:] == pytest.approx((1 / WINDOW_S, 7 / WINDOW_S))


def out_rate(flow: Flow) -> float:
    load = flow.meter.load()
    assert load is not None
    return load.msg_rate_out


def test_what_is_reported_to_be_read_of_an_empty_segment_does_not_count() -> None:
    flow = Flow(total=0)
    flow.begin(age_s=0.0)
    for _ in range(30):
        flow.meter.read(1_000_000, 1 << 40, "billing@1")
        flow.step()
    load = flow.meter.load()
    assert load is not None
    assert load.rates == NOTHING


def test_a_subscription_has_at_most_read_what_was_written_each_message_once() -> None:
    flow = Flow(total=0)
    flow.begin(age_s=0.0)
    for _ in range(12):
        flow.meter.read(1_000, 500_000, "billing@1")
        flow.meter.read(700, 350_000, "forged@2")
        flow.meter.read(10_000_000, 10_000_000, "forged@2")
        flow.step(came=1_000)
    assert out_rate(flow) == pytest.approx(200)  # 100/s each: so many come


def test_who_begins_at_the_first_message_may_read_all_that_there_is_once() -> None:
    flow = Flow(total=60_000)
    flow.begin()
    for _ in range(6):
        flow.meter.read(10_000, 5_000_000, "billing@1")
        flow.step()
    assert out_rate(flow) == pytest.approx(1_000)
    for _ in range(6):
        flow.meter.read(10_000, 5_000_000, "billing@1")
        flow.step()
    assert out_rate(flow) == 0
    for _ in range(6):  # put back to the first message, which makes it another one
        flow.meter.read(10_000, 5_000_000, "billing@2")
        flow.step()
    assert out_rate(flow) == pytest.approx(1_000)


def test_of_subscriptions_that_come_and_go_the_longest_silent_are_forgotten() -> None:
    """A segment may outlive any number of them."""
    flow = Flow(total=100)
    flow.begin()
    flow.meter.read(100, 50_000, "silent@1")
    flow.meter.read(100, 50_000, "billing@2")
    flow.step()
    for number in range(2_000):
        flow.meter.read(1, 500, f"passing@{number}")
        flow.meter.read(1, 500, "billing@2")
        if number % 100 == 99:
            flow.step()
    for _ in range(12):
        flow.step()
    assert out_rate(flow) == 0
    flow.meter.read(100, 50_000, "billing@2")  # which it cannot have
    flow.step()
    assert out_rate(flow) == 0
    flow.meter.read(100, 50_000, "silent@1")  # nothing is known of it any more
    flow.step()
    assert out_rate(flow) > 0
