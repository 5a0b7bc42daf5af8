"""What is promised, by names that stay; `docs/faults.md` has them in a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Line = Mapping[str, Any]
Message = tuple[str, int]  # key and number


class Promise(StrEnum):
    """A violation of each is found in a history; the last two are about the run itself."""

    LOST = "lost"
    TWICE = "twice"
    INVENTED = "invented"
    UNDELIVERED = "undelivered"
    TURNED = "turned"
    UNSERVED = "unserved"
    SERVED_TWICE = "served_twice"
    UNFINISHED = "unfinished"
    UNAPPLIED = "unapplied"
    APPLIED_TWICE = "applied_twice"
    TWO_OWNERS = "two_owners"
    WRONG_LOOKUP = "wrong_lookup"
    GRANTED_TWICE = "granted_twice"
    VIEWS = "views"
    AUDIT = "audit"
    FAULT = "fault"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken, what shows it, and when, by the history's clock; and the message
    that it is about, if it is about one.
    """

    promise: Promise
    what: str
    at: float
    message: Message | None = None
