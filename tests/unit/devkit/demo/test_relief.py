"""The demo's hot broker: the settings that it needs, what it says, and what it takes for wrong."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.broker.settings import load_settings
from anabranch.core.balance.history import AutomaticMove
from anabranch.devkit.demo.load_wave import SETTINGS
from anabranch.devkit.demo.relief import RELIEF_SETTINGS, told
from anabranch.devkit.demo.trace import NAMESPACES
from anabranch.devkit.hot_broker import TARGET
from anabranch.devkit.steady_messages import MessageLedger

_MOVE = AutomaticMove(7, 1_000, "RELEASE", "t/n/0x0", "b2:1", "OVERLOADED", 0.384, 0.309, None)
_KEYS = ("north", "east", "south", "west")
_ALL = [0, 1, 2, 3, 4, 5, 6, 7]


def test_nodes_take_the_settings_by_which_it_is_the_processor_alone_that_moves_bundles() -> None:
    named = dict(each.split("=", 1) for each in (*SETTINGS, *RELIEF_SETTINGS))
    balance = load_settings(None, {}, named).balance_settings()
    assert list(balance.weights) == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert balance.broker_load_target_std == TARGET
    assert balance.shedding_excluded_namespaces == tuple(NAMESPACES)


def test_a_move_is_told_with_its_reason_and_what_it_rests_on() -> None:
    assert told(_MOVE) == (
        "t/n/0x0 to b2:1, because OVERLOADED (deviation 0.38, expected after it 0.31)"
    )
    unknown = msgspec.structs.replace(_MOVE, predicted=None)
    assert told(unknown) == "t/n/0x0 to b2:1, because OVERLOADED"


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
