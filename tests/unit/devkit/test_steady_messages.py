"""Steady messages: a ledger takes for wrong what is lost, repeated or turned, and nothing else."""

from __future__ import annotations

import pytest

from anabranch.devkit.steady_messages import MessageLedger

_KEYS = ("north", "east", "south", "west")
_ALL = [0, 1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("order", "wrong"),
    [
        (_ALL, []),
        ([1, 0, 3, 2, 5, 4, 7, 6], []),  # keys among each other have no order
        ([0, 1, 2, 3, 4, 5, 6], ["west: [] came in place of [7]"]),
        ([0, 1, 2, 3, 4, 5, 6, 7, 4], ["north: [4] came in place of []"]),
        ([0, 1, 6, 3, 4, 5, 2, 7], ["south: [6, 2] came in place of [2, 6]"]),
    ],
)
def test_what_is_lost_repeated_or_turned_is_wrong(order: list[int], wrong: list[str]) -> None:
    ledger = MessageLedger()
    ledger.due += [float(number) for number in _ALL]
    for number in order:
        ledger.take(_KEYS[number % len(_KEYS)], number, number + 0.5)
    assert ledger.wrong() == wrong
    assert ledger.is_complete is (set(order) == set(_ALL))


def test_a_message_is_late_by_what_passed_since_it_was_due() -> None:
    ledger = MessageLedger()
    ledger.due += [10.0, 11.0, 12.0]
    ledger.take("north", 0, 10.25)
    ledger.take("east", 1, 11.5)
    assert ledger.late_ms(10.5, 12.0) == [500.0]
    ledger.failed.append("not sent: refused")
    assert ledger.is_complete
    assert ledger.wrong()[0] == "not sent: refused"
