"""What a consumer reads ahead: how much, in which pieces."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from confluent_kafka import Message

from anabranch.client.bounds import check_whole
from anabranch.client.kafka_options import Partition

_WEIGHED: Final = 500  # messages of a batch whose sizes stand for all of it
_QUEUED_KBYTES_MAX: Final = 2_097_151
_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {  # mostly librdkafka's
    "bytes_max": (1, 2**63 - 1),
    "batch_messages_max": (1, 1_000_000),
    "buffered_messages_max": (1, 2**31 - 1),
    "queued_messages_min": (1, 10_000_000),
    "fetch_wait_ms": (0, 300_000),
}
_NONE: Final[Mapping[int, int]] = {}


class ReadSettings(msgspec.Struct, frozen=True):
    """How much is read ahead, and how patient a fetch is. Raises InvalidInputError.

    `bytes_max`: of values that one consumer reads ahead, about: a quarter each for librdkafka's
    queue, for a fetch under way (from each Kafka broker), for what was read and not taken yet, and
    for the batch that goes to it. What the application has taken is its own. A message that is
    larger than that is read all the same.
    """

    bytes_max: int = 64 * 1024 * 1024
    batch_messages_max: int = 1_000
    buffered_messages_max: int = 40_000  # read from librdkafka and not taken yet
    queued_messages_min: int = 1_000_000  # librdkafka reads on below this, per partition
    fetch_wait_ms: int = 10

    def __post_init__(self) -> None:
        for name, (least, most) in _BOUNDS.items():
            check_whole(name, getattr(self, name), least, most)

    @property
    def quarter_bytes(self) -> int:
        return max(1_024, self.bytes_max // 4)

    def kafka(self) -> dict[str, Any]:
        """What librdkafka is to keep to."""
        fetch = min(50 * 1024 * 1024, self.quarter_bytes)
        return {
            "queued.min.messages": self.queued_messages_min,
            "queued.max.messages.kbytes": min(_QUEUED_KBYTES_MAX, self.quarter_bytes // 1_024),
            "fetch.message.max.bytes": min(1024 * 1024, fetch),
            "message.max.bytes": min(1_000_000, fetch),  # else it is the least of the next
            "fetch.max.bytes": fetch,
            "fetch.wait.max.ms": self.fetch_wait_ms,
        }


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
