"""`Read`, messages that a consumer reads ahead, and `ReadTrouble`, Kafka's refusals meanwhile."""

from __future__ import annotations

import asyncio
import collections
import math
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from confluent_kafka import KafkaError, Message

from anabranch.client._aio import call_on
from anabranch.client._consumer.assignment import Partition
from anabranch.client._errors import KafkaReadError
from anabranch.client._kafka_options import LOCKED_OUT, WITHOUT_TOKEN
from anabranch.core.log_rate_limit import LogRateLimit
from anabranch.wire.logging import get_logger

_WEIGHED: Final = 500  # messages of a batch whose sizes stand for all of it


class Read(msgspec.Struct, frozen=True):
    """Messages in the order in which they were read, of several partitions mixed.

    `ends` has the exclusive end of each fetch's messages here, by fetch number. `fetches` has the
    fetch number of each partition. `size_bytes` is roughly the bytes of the values. `reached` is
    set only in a read without messages. It has the offset below which the reads before this one
    have all messages, by fetch number.
    """

    messages: list[Message]
    ends: dict[int, int]
    fetches: Mapping[Partition, int]
    size_bytes: int
    reached: Mapping[int, int] = {}

    @property
    def weight(self) -> int:
        """The number of its messages for the bound of waiting ones, at least 1."""
        return len(self.messages) or 1


def partition_of(message: Message) -> Partition:
    """Returns the Kafka topic and partition that a message was read from."""
    topic, partition = message.topic(), message.partition()
    return topic or "", -1 if partition is None else partition


def size_of(messages: list[Message], turn: int) -> int:
    """Returns the bytes of their values.
    In a large batch a sample stands for all, another one each turn.
    """
    step = -(-len(messages) // _WEIGHED)
    return sum(map(len, _some(messages, turn, step))) * step


def topics_of(messages: list[Message], turn: int) -> dict[str, int]:
    """Returns the number of messages of each topic, by the same sample."""
    step = -(-len(messages) // _WEIGHED)
    counts = collections.Counter(map(Message.topic, _some(messages, turn, step)))
    return {topic or "": count * step for topic, count in counts.items()}


def _some(messages: list[Message], turn: int, step: int) -> list[Message]:
    return messages[turn % step :: step] if step > 1 else messages


_logger = get_logger(__name__)
# Without `LOCKED_OUT`, which may pass with the next token: `heard` is told when it does not.
_FOR_GOOD: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.INVALID_GROUP_ID,
    KafkaError.OFFSET_METADATA_TOO_LARGE,
}


def is_for_good(error: KafkaError) -> bool:
    """Returns True if another try does not help."""
    return error.code() in _FOR_GOOD


_NEW_S: Final = 5.0  # a new topic may be unknown to a broker for a moment
_WITHOUT_TOKEN_S: Final = 30.0
_GONE_S: Final = 30.0  # no topic takes so long to be known to all brokers
AGAIN_S: Final = 10.0  # the interval of repeats: clients try again many times a second
_DISTRUST: Final = "certificate verify failed"  # one code is for all that goes wrong with TLS


def locked_out(error: KafkaError) -> str:
    """Returns the text for a Kafka that rejects this client, or that this client does not trust.
    Returns "" for any other error.

    Kafka's client passes such an error only to its `error_cb`, and goes on trying.
    """
    if error.code() == KafkaError._SSL and _DISTRUST in error.str():
        why, wrong = "This client does not trust Kafka", "ssl.ca.location"
    elif error.code() in LOCKED_OUT:
        why, wrong = "Kafka does not let this client in", "sasl.username and sasl.password"
    else:
        return ""
    return (
        f"{why}: {error.str().rstrip('.')}. Correct the security properties that the Client is "
        f"given (kafka=), {wrong} above all"
    )


class ReadTrouble:
    """Make it on the event loop, and tell it from any thread. It calls `on_failure` on the loop."""

    def __init__(
        self, on_failure: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.failure: KafkaReadError | None = None  # why nothing can be read any more
        self._said = ""
        self._said_until = -math.inf  # until then other errors follow from that one
        self._clock = clock
        self._logged = LogRateLimit(AGAIN_S)
        self._missing: dict[str, float] = {}  # the time since which each Kafka topic is missing
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()

    @property
    def last(self) -> str:
        """Returns Kafka's last refusal and missing topics, for the end of a message.
        It is "" if all is well.
        """
        said = f"; Kafka said last: {self._said}" if self._said else ""
        missing = ", ".join(sorted(self._missing))
        return f"{said}; Kafka has no topic {missing}, a segment of this one" if missing else said

    def missed(self, kafka_topic: str) -> None:
        """Notes that Kafka does not know a segment's topic.
        This does not hold up other segments.
        """
        now = self._clock()
        since = self._missing.setdefault(kafka_topic, now)
        if now - since >= _NEW_S and self._logged.due(("missing", kafka_topic), now):
            _logger.warning("consumer.topic_missing", kafka_topic=kafka_topic)

    def found(self, kafka_topic: str) -> None:
        """Notes that Kafka knows the topic."""
        self._missing.pop(kafka_topic, None)

    def is_gone(self, kafka_topic: str) -> bool:
        """Returns True if the topic has been missing for too long to be a new one."""
        now = self._clock()
        return now - self._missing.get(kafka_topic, now) >= _GONE_S

    def well(self) -> None:
        """Notes that Kafka did what it was asked for."""
        self._said = ""
        self._said_until = -math.inf

    def note(self, error: KafkaError | None, doing: str = "to read") -> None:
        """Notes an error of Kafka. Most errors pass."""
        if error is None:
            return
        now = self._clock()
        if error.code() == WITHOUT_TOKEN:
            self._said_until = now + _WITHOUT_TOKEN_S
        if error.code() == WITHOUT_TOKEN or now >= self._said_until:
            self._said = error.str()
        if is_for_good(error):
            self.fail(f"Kafka refuses for good {doing}: {error.str()}")
        if count := self._logged.due((doing, error.name()), now):
            more = {"times": count} if count > 1 else {}
            _logger.warning(
                "consumer.kafka", doing=doing, why=error.str(), code=error.name(), **more
            )

    def heard(self, error: KafkaError) -> None:
        """Notes an error that a consumer passed to `error_cb`.
        All pass but those of a client that is locked out.
        """
        why = locked_out(error)
        if error.code() == WITHOUT_TOKEN:
            self.note(error, "to show a token")
        elif why:
            self._said = error.str()
            self.fail(why)

    def fault(self, error: Exception) -> None:
        """Notes the error that ends the thread."""
        self.fail(f"reading from Kafka ended by a fault: {error!r}")

    def fail(self, why: str) -> None:
        """Notes that nothing can be read any more. It keeps the first reason."""
        if self.failure is None:
            self.failure = KafkaReadError(why)
        call_on(self._loop, self._on_failure)
