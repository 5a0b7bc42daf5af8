"""What a consumer reads ahead: how much, in which pieces."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Final

from confluent_kafka import Message

from anabranch.client.grants import Partition

_WEIGHED: Final = 500  # messages of a batch whose sizes stand for all of it
_NONE: Final[Mapping[int, int]] = {}


class Read:
    """Messages in the order in which they were read; of several partitions, mixed.

    `ends`: by fetch number, the exclusive end of what is in here. `fetches`: whose is whose.
    `size_bytes`: of the values, about. `reached`: by fetch number, the offset below which there is
    no message but those of the reads before this one; only in one without messages.
    """

    __slots__ = ("ends", "fetches", "messages", "reached", "size_bytes")

    def __init__(
        self,
        messages: list[Message],
        ends: dict[int, int],
        fetches: Mapping[Partition, int],
        size_bytes: int,
        reached: Mapping[int, int] = _NONE,
    ) -> None:
        self.messages = messages
        self.ends = ends
        self.fetches = fetches
        self.size_bytes = size_bytes
        self.reached = reached

    @property
    def weight(self) -> int:
        """Its messages, for how many may lie here; without any it is one all the same."""
        return len(self.messages) or 1


def size_of(messages: list[Message], turn: int) -> int:
    """The bytes of their values. Of many messages some stand for all: other ones each turn."""
    step = -(-len(messages) // _WEIGHED)
    return sum(map(len, _some(messages, turn, step))) * step


def topics_of(messages: list[Message], turn: int) -> dict[str, int]:
    """How many are of which topic, in the same way."""
    step = -(-len(messages) // _WEIGHED)
    counts = collections.Counter(map(Message.topic, _some(messages, turn, step)))
    return {topic or "": count * step for topic, count in counts.items()}


def _some(messages: list[Message], turn: int, step: int) -> list[Message]:
    return messages[turn % step :: step] if step > 1 else messages
