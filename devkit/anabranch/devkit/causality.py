"""The order of a key's messages by cause and effect: acknowledged before another was sent comes
first.

It judges histories only: the times at which each message was sent and acknowledged, by any sender,
and the order in which a key's messages were found. Messages that were under way together may come
either way.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

MessageT = TypeVar("MessageT", bound=Hashable)


class Span(msgspec.Struct, frozen=True):
    """The time from the sending of a message to its acknowledgement, on one clock for all senders.

    `acked` is infinite for a message without an acknowledgement.
    """

    sent: float
    acked: float = math.inf


class CausalityViolation(msgspec.Struct, Generic[MessageT], frozen=True):
    """`effect` was sent after `cause` had been acknowledged, and was found before it."""

    cause: MessageT
    effect: MessageT


def turned_round(
    found: Iterable[MessageT], spans: Mapping[MessageT, Span]
) -> list[CausalityViolation[MessageT]]:
    """Returns the faults in the order in which the messages of one key were found.

    Each message that came too early has one entry, with the first acknowledged message that it came
    before. A repeated message counts at its first place. Raises KeyError for a message that was
    never sent.

    >>> spans = {"a": Span(0, 1), "b": Span(2, 3), "c": Span(2.5, 4)}
    >>> turned_round("acba", spans), turned_round("cab", spans)
    ([], [CausalityViolation(cause='a', effect='c')])
    """
    wrong: list[CausalityViolation[MessageT]] = []
    cause: MessageT | None = None
    for message in reversed(list(dict.fromkeys(found))):
        span = spans[message]
        if cause is not None and spans[cause].acked < span.sent:
            wrong.append(CausalityViolation(cause, message))
        if cause is None or span.acked < spans[cause].acked:
            cause = message
    return wrong[::-1]
