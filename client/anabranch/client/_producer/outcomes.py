"""What became of a message: the errors of those that failed, and who is told (`Outcomes`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError

from anabranch.client._errors import (
    BufferFullError,
    DeliveryError,
    TopicNotFoundError,
    UnknownOutcomeError,
)
from anabranch.client._producer.messages import DeliveryResult, OnDelivery
from anabranch.client._producer.partition_writer import PendingMessage
from anabranch.core.log_rate_limit import LogRateLimit
from anabranch.wire import clock
from anabranch.wire.logging import get_logger

_FAULTS_APART_S: Final = 1.0
_log = get_logger(__name__)


class Outcomes:
    """Of the messages to `topic`, a URL. Whoever waits is told by `tell`: not inside of a poll,
    where nothing may be sent.
    """

    def __init__(self, topic: str, now: Callable[[], float] = clock.now) -> None:
        self._topic = topic
        self._untold: list[tuple[OnDelivery, DeliveryResult | None, Exception | None]] = []
        self._now = now
        self._faults = LogRateLimit(_FAULTS_APART_S)  # of callbacks
        self._failed_count = 0  # of messages nobody waits for
        self._first_failure: Exception | None = None

    def delivered(self, held: PendingMessage, result: DeliveryResult) -> None:
        """Kafka has the message, for which somebody waits."""
        self._untold.append((held.on_delivery, result, None))

    def failed(self, held: PendingMessage, error: Exception) -> None:
        """The message is given up."""
        if held.on_delivery is not None:
            self._untold.append((held.on_delivery, None, error))
            return
        self._failed_count += 1
        self._first_failure = self._first_failure or error

    def tell(self) -> None:
        """Calls those who wait."""
        untold, self._untold = self._untold, []
        for on_delivery, result, error in untold:
            try:
                on_delivery(result, error)
            except Exception as fault:  # noqa: BLE001 - the user's, who is told by the log
                self._log_fault(fault)

    def _log_fault(self, fault: Exception) -> None:
        """What fails for one message may fail for all of them, thousands in a second."""
        if count := self._faults.due(self._topic, self._now()):
            _log.error("producer.callback_failed", topic=self._topic, times=count, exc_info=fault)

    def raise_failures(self) -> None:
        """Raises DeliveryError if messages failed for which nobody waits; once for each."""
        count, first = self._failed_count, self._first_failure
        if count:
            self._failed_count, self._first_failure = 0, None
            raise DeliveryError(f"{count} messages failed, the first: {first}") from first


_GIVEN_UP: Final = frozenset({KafkaError._PURGE_INFLIGHT, KafkaError._PURGE_QUEUE})
# After these nobody knows whether Kafka has the message. What is purged from a queue may have been
# there to be tried again.
_UNKNOWN: Final = _GIVEN_UP | {
    KafkaError._MSG_TIMED_OUT,
    KafkaError._FATAL,
    KafkaError._DESTROY,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}


def delivery_error(error: KafkaError, where: str, why: str, trouble: str) -> DeliveryError:
    """The error for a message that Kafka, or its client, gave up for good.

    `where`: topic, segment and bucket. `why`: it was given up, if it was. `trouble`: what Kafka's
    client complained of last, if of anything.
    """
    code = error.code()
    cause = why if code in _GIVEN_UP and why else error.str()
    if trouble and trouble != cause:
        cause = f"{cause} (the last trouble with Kafka: {trouble})"
    if code in _UNKNOWN:
        return UnknownOutcomeError(f"a message to {where}: {cause}; Kafka may have it or get it")
    if code == KafkaError.INVALID_TIMESTAMP:
        return DeliveryError(
            f"Kafka refused a message to {where} for its event time, or for that of another one in "
            "its batch: it is older than what the topic keeps, or too far in the future"
        )
    return DeliveryError(f"Kafka refused a message to {where}: {cause}")


def not_sent(where: str, patience_s: float, trouble: str) -> DeliveryError:
    """The error for a message that was in our hands when its time was up: Kafka never gets it."""
    cause = f"; the last trouble with Kafka: {trouble}" if trouble else ""
    return DeliveryError(f"a message to {where} could not be sent in {patience_s:g} s{cause}")


def not_settled(where: str, why: str) -> UnknownOutcomeError:
    """The error for a message that was in doubt when its segment was sealed, and stays so."""
    return UnknownOutcomeError(
        f"a message to {where} may or may not be there; the segment is sealed and {why}"
    )


def not_sealed(where: str, patience_s: float, in_doubt: bool) -> DeliveryError:
    """The error for a refused message when no layout says that its segment is sealed."""
    kind = UnknownOutcomeError if in_doubt else DeliveryError
    return kind(
        f"Kafka refused messages to {where} as too large, but in {patience_s:g} s no node said "
        "that the segment is sealed: check the topic's max.message.bytes and the nodes"
        f"{'; a message may have been stored before' if in_doubt else ''}"
    )


def deleted(topic: str) -> TopicNotFoundError:
    """The error for a message to a topic, `tenant/namespace/name`, that was deleted."""
    return TopicNotFoundError(f"topic://{topic} was deleted")


def no_room(where: str) -> BufferFullError:
    """The error for a message that Kafka's client refused to take."""
    return BufferFullError(
        f"a message to {where} was not sent: Kafka's client holds as many bytes as it can, lower "
        "the producer's buffer_bytes_max"
    )
