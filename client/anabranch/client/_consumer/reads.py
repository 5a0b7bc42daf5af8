"""What a consumer reads ahead (`Read`), and what Kafka refuses it meanwhile (`ReadTrouble`)."""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from confluent_kafka import KafkaError, Message

from anabranch.client._aio import call_on
from anabranch.client._consumer.assignment import Partition
from anabranch.client._errors import KafkaReadError
from anabranch.core.log_rate_limit import LogRateLimit
from anabranch.wire.logging import get_logger

_WEIGHED: Final = 500  # messages of a batch whose sizes stand for all of it


class Read(msgspec.Struct, frozen=True):
    """Messages in the order in which they were read; of several partitions, mixed.

    `ends`: by fetch number, the exclusive end of what is in here. `fetches`: whose is whose.
    `size_bytes`: of the values, about. `reached`: by fetch number, the offset below which there is
    no message but those of the reads before this one; only in one without messages.
    """

    messages: list[Message]
    ends: dict[int, int]
    fetches: Mapping[Partition, int]
    size_bytes: int
    reached: Mapping[int, int] = {}

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


_logger = get_logger(__name__)
_LOCKED_OUT: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)
_FOR_GOOD: Final = _LOCKED_OUT | {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.INVALID_GROUP_ID,
    KafkaError.OFFSET_METADATA_TOO_LARGE,
}


def is_for_good(error: KafkaError) -> bool:
    """Whether trying again does not help."""
    return error.code() in _FOR_GOOD


_NEW_S: Final = 5.0  # a new topic may be unknown to a broker for a moment
_GONE_S: Final = 30.0  # no topic takes so long to be known to all brokers
AGAIN_S: Final = 10.0  # what goes on is told of so often: clients try again many times a second
_DISTRUST: Final = "certificate verify failed"  # one code is for all that goes wrong with TLS


def locked_out(error: KafkaError) -> str:
    """What to tell when Kafka does not let this client in, or it does not trust Kafka; "" for any
    other error.

    Kafka's client says so to its `error_cb` alone, and goes on trying.
    """
    if error.code() == KafkaError._SSL and _DISTRUST in error.str():
        why, wrong = "This client does not trust Kafka", "ssl.ca.location"
    elif error.code() in _LOCKED_OUT:
        why, wrong = "Kafka does not let this client in", "sasl.username and sasl.password"
    else:
        return ""
    return (
        f"{why}: {error.str().rstrip('.')}. Correct the security properties that the Client is "
        f"given (kafka=), {wrong} above all"
    )


class ReadTrouble:
    """Made on the event loop and told from any thread; `on_failure` is called on the loop."""

    def __init__(
        self, on_failure: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.failure: KafkaReadError | None = None  # why nothing can be read any more
        self._said = ""
        self._clock = clock
        self._logged = LogRateLimit(AGAIN_S)
        self._missing: dict[str, float] = {}  # by Kafka topic, since when
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()

    @property
    def last(self) -> str:
        """What Kafka refused or lacks, for the end of a message; "" when all is well."""
        said = f"; Kafka said last: {self._said}" if self._said else ""
        missing = ", ".join(sorted(self._missing))
        return f"{said}; Kafka has no topic {missing}, a segment of this one" if missing else said

    def missed(self, kafka_topic: str) -> None:
        """Kafka does not know the topic of a segment, which keeps no other segment waiting."""
        now = self._clock()
        since = self._missing.setdefault(kafka_topic, now)
        if now - since >= _NEW_S and self._logged.due(("missing", kafka_topic), now):
            _logger.warning("consumer.topic_missing", kafka_topic=kafka_topic)

    def found(self, kafka_topic: str) -> None:
        """Kafka knows it."""
        self._missing.pop(kafka_topic, None)

    def is_gone(self, kafka_topic: str) -> bool:
        """Whether it has been missing for so long that it is no new one."""
        now = self._clock()
        return now - self._missing.get(kafka_topic, now) >= _GONE_S

    def well(self) -> None:
        """Kafka did what it was asked for."""
        self._said = ""

    def note(self, error: KafkaError | None, doing: str = "to read") -> None:
        """Kafka said so; most errors pass."""
        if error is None:
            return
        self._said = error.str()
        if is_for_good(error):
            self.fail(f"Kafka refuses for good {doing}: {error.str()}")
        if count := self._logged.due((doing, error.name()), self._clock()):
            more = {"times": count} if count > 1 else {}
            _logger.warning(
                "consumer.kafka", doing=doing, why=error.str(), code=error.name(), **more
            )

    def heard(self, error: KafkaError) -> None:
        """What a consumer says of itself (`error_cb`); all of it passes but that it stays out."""
        why = locked_out(error)
        if why:
            self._said = error.str()
            self.fail(why)

    def fault(self, error: Exception) -> None:
        """The thread ends by this."""
        self.fail(f"reading from Kafka ended by a fault: {error!r}")

    def fail(self, why: str) -> None:
        """Nothing can be read any more; the first reason is kept."""
        if self.failure is None:
            self.failure = KafkaReadError(why)
        call_on(self._loop, self._on_failure)
