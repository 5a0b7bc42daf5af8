"""Judges a history of the workload. Imports nothing of the product, and believes nothing it says.

What is promised:

* What was acknowledged is stored (`lost`) and, once all is over, was received (`undelivered`).
* What was acknowledged is stored once (`twice`). What was not may be stored or not, at most once.
* If one message of a key was acknowledged before another one was sent, it is received first by
  whoever receives both for the first time (`turned`). Repetitions after that are allowed: a
  consumer that was killed had not committed.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Message = tuple[str, int]  # key and number


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken, and what shows it."""

    promise: str
    what: str


@dataclass(slots=True)
class _Seen:
    sent: dict[Message, float] = field(default_factory=dict)
    acknowledged: dict[Message, float] = field(default_factory=dict)
    stored: Counter[Message] = field(default_factory=Counter)
    places: dict[Message, list[Any]] = field(default_factory=lambda: defaultdict(list))
    received: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    faults: list[str] = field(default_factory=list)
    is_whole: bool = False


def read(path: Path) -> list[Mapping[str, Any]]:
    """The lines of a history; one that was cut off by a crash is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return found


def violations(history: Iterable[Mapping[str, Any]]) -> list[Violation]:
    """All that the history shows to be broken."""
    seen = _gathered(history)
    found = [Violation("fault", why) for why in seen.faults]
    if not seen.is_whole:
        found.append(Violation("ended", "the workload did not come to its end"))
        return found
    first = {key: list(dict.fromkeys(numbers)) for key, numbers in seen.received.items()}
    received = {(key, number) for key, numbers in first.items() for number in numbers}
    for message in sorted(seen.acknowledged):
        if not seen.stored[message]:
            found.append(Violation("lost", f"{message} was acknowledged, and Kafka has it nowhere"))
        elif message not in received:
            found.append(Violation("undelivered", f"{message} at {seen.places[message]}"))
    for message, count in sorted(seen.stored.items()):
        if count > 1:
            found.append(Violation("twice", f"{message} is at {seen.places[message]}"))
        if message not in seen.sent:
            found.append(Violation("invented", f"{message} at {seen.places[message]}"))
    for key, numbers in sorted(first.items()):
        found += _turned(key, numbers, seen)
    return found


def _turned(key: str, numbers: list[int], seen: _Seen) -> Iterable[Violation]:
    """One that was received after another one though it was acknowledged before that was sent."""
    newest, newest_sent = -1, float("-inf")
    for number in numbers:
        sent = seen.sent.get((key, number))
        if sent is None:
            continue
        if seen.acknowledged.get((key, number), float("inf")) < newest_sent:
            yield Violation("turned", f"{key}: {number} was received after {newest}")
        if sent > newest_sent:
            newest, newest_sent = number, sent


def _gathered(history: Iterable[Mapping[str, Any]]) -> _Seen:
    seen = _Seen()
    for line in history:
        message = line.get("key", ""), line.get("number", -1)
        match line["what"]:
            case "send":
                seen.sent[message] = line["at"]
            case "acknowledged":
                seen.acknowledged[message] = line["at"]
            case "received":
                seen.received[message[0]].append(message[1])
            case "stored":
                seen.stored[message] += 1
                seen.places[message].append(line["place"])
            case "fault" | "unread":
                seen.faults.append(line["why"])
            case "end":
                seen.is_whole = True
    return seen
