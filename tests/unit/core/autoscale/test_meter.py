"""One segment's load: whose word counts for which rate, and when it is worth writing."""

from __future__ import annotations

import pytest

from anabranch.core.autoscale.load import LoadRecord, SegmentLoad, changed, load_key, parse_load_key
from support.meter_driver import NOTHING, STEADY, THRESHOLD, WINDOW_S, MeterDriver


@pytest.fixture
def driver() -> MeterDriver:
    return MeterDriver.newborn()


def test_a_new_segment_counts_from_its_birth_over_the_whole_window() -> None:
    driver = MeterDriver(total=600)
    driver.begin(age_s=5.0)
    assert [each.msg_rate_in for each in driver.written] == [10.0]


def test_an_old_segment_that_nobody_knows_has_no_load_before_its_second_sample() -> None:
    driver = MeterDriver(total=1_000_000)
    driver.begin()
    assert driver.meter.load() is None
    assert driver.written == []
    driver.step(came=1_000)
    assert [each.msg_rate_in for each in driver.written] == [100.0]
    driver.step(told=1_000)
    assert driver.load.bytes_rate_in == 25_000.0, "of what came since, in 20 s"


def test_of_what_the_last_controller_wrote_only_what_is_in_the_window_yet_counts() -> None:
    driver = MeterDriver(STEADY, total=1_000_000)
    driver.now += 2 * WINDOW_S
    driver.begin()
    assert (driver.load.msg_rate_out, driver.load.bytes_rate_out) == (0.0, 0.0)


def test_a_new_controller_goes_on_from_what_was_written() -> None:
    driver = MeterDriver(STEADY, total=1_000_000)
    driver.begin()
    driver.steps(60, came=1_000, told=1_000, read=2_000)
    assert driver.written == []
    assert driver.load.rates == pytest.approx(STEADY.rates)


def test_a_size_that_kafka_shows_counts_where_no_producer_tells_one_to_a_new_controller() -> None:
    driver = MeterDriver(STEADY, total=1_000_000)
    driver.begin()
    driver.meter.sized(1_000.0, driver.now)
    driver.steps(7, came=1_000)
    assert driver.load.bytes_rate_in == pytest.approx(1_000.0 * driver.load.msg_rate_in)


def test_traffic_that_ended_comes_to_rates_of_exactly_nothing() -> None:
    driver = MeterDriver(STEADY, total=1_000_000)
    driver.begin()
    driver.steps(8)
    assert driver.written[-1].rates == (0.0, 0.0, 0.0, 0.0)
    assert driver.meter.is_idle
    count = len(driver.written)
    driver.steps(30)
    assert len(driver.written) == count


def test_one_message_that_is_reported_is_enough(driver: MeterDriver) -> None:
    driver.step(came=1, told=1)
    assert driver.load.bytes_rate_in == pytest.approx(500 / WINDOW_S)


def test_what_is_negligible_is_not_written() -> None:
    driver = MeterDriver.newborn(negligible=(1e3, 1e9, 1e3, 1e9))
    for came in (100, 5_000, 0, 100):
        driver.step(came=came, told=came)
    assert len(driver.written) == 1, "that there is a load at all"


def test_without_any_report_the_size_is_what_was_read_from_kafka(driver: MeterDriver) -> None:
    assert not driver.meter.lacks_size(0, driver.now)
    assert driver.meter.lacks_size(1_000, driver.now)
    driver.meter.sized(300.0, driver.now)
    assert not driver.meter.lacks_size(1_000, driver.now)
    driver.step(came=6_000)
    assert driver.written[-1] == LoadRecord(100.0, 30_000.0, 0.0, 0.0)
    assert driver.meter.lacks_size(driver.total + 1, driver.now + WINDOW_S)
    assert not driver.meter.lacks_size(driver.total, driver.now + WINDOW_S)
    driver.step(came=1, told=1)
    assert not driver.meter.lacks_size(driver.total + 1, driver.now + 2 * WINDOW_S)


@pytest.mark.parametrize(
    ("before", "after", "worth"),
    [
        (0.0, 0.0, False),
        (0.0, 0.001, True),
        (0.001, 0.0, True),
        (100.0, 125.0, False),
        (100.0, 125.1, True),
        (100.0, 75.0, False),
        (100.0, 74.9, True),
    ],
)
def test_a_load_is_written_when_a_rate_left_zero_or_moved_by_more_than_the_threshold(
    before: float, after: float, worth: bool
) -> None:
    for place in range(4):
        was, is_ = [50.0] * 4, [50.0] * 4
        was[place], is_[place] = before, after
        assert changed(tuple(was), tuple(is_), THRESHOLD) is worth  # type: ignore[arg-type]


def test_a_load_that_was_never_written_is_written() -> None:
    assert changed(None, NOTHING, THRESHOLD, (10.0, 10.0, 10.0, 10.0))


@pytest.mark.parametrize(
    ("before", "after", "worth"),
    [
        (0.0, 9.9, False),
        (9.9, 0.0, False),
        (1.0, 9.0, False),
        (9.0, 12.0, True),
        (12.0, 8.0, True),
        (0.0, 10.0, True),
        (10.0, 0.0, True),
    ],
)
def test_a_trickle_is_not_written_each_time_it_varies(
    before: float, after: float, worth: bool
) -> None:
    least = (10.0, 10.0, 10.0, 10.0)
    assert changed((before, 0, 0, 0), (after, 0, 0, 0), THRESHOLD, least) is worth


@pytest.mark.parametrize(
    "key",
    ["", "segment:", "segment:t/n/a", "bundle:t/n/a/1/2", "segment:t/n/a/1/x", "segment:/1/2"],
)
def test_a_key_of_something_else_is_no_segments(key: str) -> None:
    assert parse_load_key(key) is None


def test_a_segments_key_is_read_back() -> None:
    assert parse_load_key(load_key("t/n/a", 7, 12)) == ("t/n/a", 7, 12)


def test_a_stored_load_is_a_load_with_the_time_of_its_record() -> None:
    assert STEADY.at(17) == SegmentLoad(100.0, 50_000.0, 200.0, 100_000.0, 17)


# --- what consumers report to have read -----------------------------------------------------------


@pytest.mark.parametrize(
    ("reads", "came", "counted"),
    [
        ([(100, 50_000), (20, 70_000)], 1_000, (120, 120_000)),
        ([(400, 100_000)], 100, (100, 25_000)),  # it is believed in part
        ([(1, 7)], 1, (1, 7)),
    ],
)
def test_what_one_reader_reports_counts_up_to_what_came_and_so_do_its_bytes(
    reads: list[tuple[int, int]], came: int, counted: tuple[int, int]
) -> None:
    driver = MeterDriver.newborn()
    driver.meter.read(0, 0, "idle@2")
    for messages, size in reads:
        driver.meter.read(messages, size, "billing@1")
    driver.step(came=came)
    assert driver.load.rates[2:] == pytest.approx([each / WINDOW_S for each in counted])


def out_rate(driver: MeterDriver) -> float:
    return driver.load.msg_rate_out


def test_a_subscription_has_at_most_read_what_was_written_each_message_once() -> None:
    driver = MeterDriver.newborn()
    for _ in range(12):
        driver.meter.read(1_000, 500_000, "billing@1")
        driver.meter.read(700, 350_000, "forged@2")
        driver.meter.read(10_000_000, 10_000_000, "forged@2")
        driver.step(came=1_000)
    assert out_rate(driver) == pytest.approx(200)  # 100/s each: so many come


def test_who_begins_at_the_first_message_may_read_all_that_there_is_once() -> None:
    driver = MeterDriver(total=60_000)
    driver.begin()
    for _ in range(6):
        driver.meter.read(10_000, 5_000_000, "billing@1")
        driver.step()
    assert out_rate(driver) == pytest.approx(1_000)
    for _ in range(6):
        driver.meter.read(10_000, 5_000_000, "billing@1")
        driver.step()
    assert out_rate(driver) == 0
    for _ in range(6):  # put back to the first message, which makes it another one
        driver.meter.read(10_000, 5_000_000, "billing@2")
        driver.step()
    assert out_rate(driver) == pytest.approx(1_000)


def test_of_subscriptions_that_come_and_go_the_longest_silent_are_forgotten() -> None:
    """A segment may outlive any number of them."""
    driver = MeterDriver(total=100)
    driver.begin()
    driver.meter.read(100, 50_000, "silent@1")
    driver.meter.read(100, 50_000, "billing@2")
    driver.step()
    for number in range(2_000):
        driver.meter.read(1, 500, f"passing@{number}")
        driver.meter.read(1, 500, "billing@2")
        if number % 100 == 99:
            driver.step()
    driver.steps(12)
    assert out_rate(driver) == 0
    driver.meter.read(100, 50_000, "billing@2")  # which it cannot have
    driver.step()
    assert out_rate(driver) == 0
    driver.meter.read(100, 50_000, "silent@1")  # nothing is known of it any more
    driver.step()
    assert out_rate(driver) > 0
