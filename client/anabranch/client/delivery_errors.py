"""What Kafka's report of a failed message says of the message."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

from anabranch.client.errors import DeliveryError, UnknownOutcomeError

# After these nobody knows whether Kafka has the message.
_UNKNOWN: Final = frozenset(
    {
        KafkaError._PURGE_INFLIGHT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._FATAL,
        KafkaError._DESTROY,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)


def delivery_error(error: KafkaError, topic: str) -> DeliveryError:
    """The error for a message that Kafka, or its client, gave up for good."""
    code = error.code()
    if code == KafkaError._PURGE_QUEUE:
        return DeliveryError(f"a message to {topic} was given up before it was sent to Kafka")
    if code in _UNKNOWN:
        return UnknownOutcomeError(f"a message to {topic}: {error.str()}; Kafka may have it")
    return DeliveryError(f"Kafka refused a message to {topic}: {error.str()}")
