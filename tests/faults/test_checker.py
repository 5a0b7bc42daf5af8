"""The checker finds what is planted, and nothing in a history in which all is well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from faults.checker import violations

Line = dict[str, Any]


def line(at: float, what: str, number: int = 0, key: str = "a", **more: Any) -> Line:
    return {"at": at, "what": what, "key": key, "number": number, **more}


def sound() -> list[Line]:
    """Two messages, one after the other, stored and received once, and one that was not sent."""
    return [
        line(1, "send", 0),
        line(2, "acknowledged", 0),
        line(3, "send", 1),
        line(4, "acknowledged", 1),
        line(5, "send", 2),
        line(6, "unsent", 2, why="time is up"),
        line(7, "received", 0),
        line(8, "received", 1),
        line(9, "stored", 0, place=["t", 0, 0]),
        line(9, "stored", 1, place=["t", 0, 1]),
        line(10, "end"),
    ]


def promises(history: Iterable[Line]) -> list[str]:
    return [each.promise for each in violations(history)]


def test_nothing_is_found_where_all_is_well() -> None:
    assert promises(sound()) == []


def test_what_was_received_again_later_is_no_violation() -> None:
    assert promises([*sound(), line(11, "received", 0)]) == []


def test_messages_under_way_together_may_come_in_any_order() -> None:
    history = sound()
    history[1], history[2] = line(2, "send", 1), line(3, "acknowledged", 0)
    history[6], history[7] = line(7, "received", 1), line(8, "received", 0)
    assert promises(history) == []


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        pytest.param(lambda h: h.pop(8), "lost", id="acknowledged, and not stored"),
        pytest.param(lambda h: h.pop(7), "undelivered", id="stored, and not received"),
        pytest.param(
            lambda h: h.append(line(9, "stored", 1, place=["u", 0, 0])), "twice", id="stored twice"
        ),
        pytest.param(
            lambda h: h.extend(line(9, "stored", 2, place=["t", 0, at]) for at in (2, 3)),
            "twice",
            id="not acknowledged, and stored twice",
        ),
        pytest.param(
            lambda h: h.append(line(9, "stored", 7, place=["t", 0, 2])), "invented", id="never sent"
        ),
        pytest.param(
            lambda h: h.insert(6, h.pop(7)), "turned", id="effect received before its cause"
        ),
        pytest.param(lambda h: h.pop(), "ended", id="cut off"),
        pytest.param(
            lambda h: h.append({"at": 9, "what": "fault", "why": "KeyError"}), "fault", id="fault"
        ),
    ],
)
def test_a_planted_violation_is_found_by_its_name(planted: Any, found: str) -> None:
    history = sound()
    planted(history)
    assert promises(history) == [found]
