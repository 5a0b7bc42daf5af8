"""What was sent, what was acknowledged, and what Kafka has of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from faults.promises import Line, Message, Promise, Violation


@dataclass(frozen=True, slots=True)
class Messages:
    """When each message was sent and acknowledged, and the places where it is stored."""

    sent: dict[Message, float] = field(default_factory=dict)
    acknowledged: dict[Message, float] = field(default_factory=dict)
    stored: defaultdict[Message, list[Any]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, lines: Iterable[Line]) -> Self:
        found = cls()
        for line in lines:
            match line["what"]:
                case "send":
                    found.sent[message_of(line)] = line["at"]
                case "acknowledged":
                    found.acknowledged[message_of(line)] = line["at"]
                case "stored":
                    found.stored[message_of(line)].append(line["place"])
        return found


def message_of(line: Line) -> Message:
    return line["key"], line["number"]


def judged(seen: Messages) -> Iterator[Violation]:
    """What was acknowledged is stored; nothing is stored twice, or was never sent."""
    for message, at in sorted(seen.acknowledged.items()):
        if message not in seen.stored:
            what = f"{message} was acknowledged, and Kafka has it nowhere"
            yield Violation(Promise.LOST, what, at, message)
    for message, places in sorted(seen.stored.items()):
        at = seen.sent.get(message, 0.0)
        if len(places) > 1:
            yield Violation(Promise.TWICE, f"{message} is at {places}", at, message)
        if message not in seen.sent:
            what = f"{message} is at {places}, and nobody sent it"
            yield Violation(Promise.INVENTED, what, at, message)


def turned(
    whose: str, received: Sequence[tuple[float, Message]], seen: Messages
) -> Iterator[Violation]:
    """One of a key that comes after another one though it was acknowledged before that was sent.

    `received`: when each message came for the first time, of all keys, in that order.
    """
    newest: dict[str, tuple[float, int]] = {}  # of each key: sent last, of those that came so far
    for at, (key, number) in received:
        sent = seen.sent.get((key, number))
        if sent is None:
            continue
        before = newest.get(key, (float("-inf"), -1))
        if seen.acknowledged.get((key, number), float("inf")) < before[0]:
            what = f"{whose}: of {key}, {number} came after {before[1]}, of which it is the cause"
            yield Violation(Promise.TURNED, what, at, (key, number))
        newest[key] = max(before, (sent, number))
