"""One segment's load: what consumers report to have read counts as far as Kafka bears it out."""

from __future__ import annotations

import pytest

from support.meter_driver import WINDOW_S, MeterDriver


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
