"""What Kafka's report of a failed message says of the message."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

from anabranch.client.errors import BufferFullError, DeliveryError, UnknownOutcomeError

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


def no_room(where: str) -> BufferFullError:
    """The error for a message that Kafka's client refused to take."""
    return BufferFullError(
        f"a message to {where} was not sent: Kafka's client holds as many bytes as it can, lower "
        "the producer's buffer_bytes_max"
    )
