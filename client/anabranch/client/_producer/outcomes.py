"""The meaning of Kafka's answer to an append for the batch. Pure."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from confluent_kafka import KafkaError

from anabranch.wire.kafka.producing import KafkaCode


class AppendOutcome(Enum):
    """The result of trying a batch."""

    STORED = auto()
    SEALED = auto()  # it is too large, as everything is for a sealed partition
    NOT_YET = auto()  # it is not there, and may be tried again
    IN_DOUBT = auto()  # it may be there, and is tried again
    STRANGER = auto()  # Kafka does not know the producer's number
    REJECTED = auto()  # it is not there, and never will be


_MEANINGS: Final[dict[int, AppendOutcome]] = {
    KafkaCode.NONE: AppendOutcome.STORED,
    KafkaCode.DUPLICATE_SEQUENCE_NUMBER: AppendOutcome.STORED,  # so it was before
    KafkaCode.MESSAGE_TOO_LARGE: AppendOutcome.SEALED,
    KafkaCode.RECORD_LIST_TOO_LARGE: AppendOutcome.SEALED,
    KafkaCode.NOT_ENOUGH_REPLICAS: AppendOutcome.NOT_YET,
    KafkaCode.LEADER_NOT_AVAILABLE: AppendOutcome.NOT_YET,
    KafkaCode.UNKNOWN_TOPIC_OR_PARTITION: AppendOutcome.NOT_YET,
    KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER: AppendOutcome.STRANGER,
    KafkaCode.INVALID_PRODUCER_EPOCH: AppendOutcome.STRANGER,
    KafkaCode.UNKNOWN_PRODUCER_ID: AppendOutcome.STRANGER,
    **dict.fromkeys(
        (
            KafkaCode.INVALID_TOPIC_EXCEPTION,
            KafkaCode.INVALID_REQUIRED_ACKS,
            KafkaCode.TOPIC_AUTHORIZATION_FAILED,
            KafkaCode.CLUSTER_AUTHORIZATION_FAILED,
            KafkaCode.INVALID_TIMESTAMP,
            KafkaCode.UNSUPPORTED_VERSION,
            KafkaCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            KafkaCode.POLICY_VIOLATION,
            KafkaCode.UNSUPPORTED_COMPRESSION_TYPE,
            KafkaCode.INVALID_RECORD,
        ),
        AppendOutcome.REJECTED,
    ),
}
# The leader must be asked for again after these.
MOVED: Final = frozenset(
    {
        KafkaCode.UNKNOWN_TOPIC_OR_PARTITION,
        KafkaCode.LEADER_NOT_AVAILABLE,
        KafkaCode.NOT_LEADER_OR_FOLLOWER,
        KafkaCode.KAFKA_STORAGE_ERROR,
    }
)


def outcome_of(code: int) -> AppendOutcome:
    """Returns the meaning of Kafka's error code.

    An unknown code leaves doubt. So does a leader that does not lead any more: it may have stored
    the batch before.
    """
    return _MEANINGS.get(code, AppendOutcome.IN_DOUBT)


def refusal(code: int, message: str) -> str:
    """Returns a sentence that says why Kafka refused a batch."""
    if code == KafkaCode.INVALID_TIMESTAMP:
        return (
            "Kafka refused it for its event time, or for that of another one in its batch: it is "
            "older than what the topic keeps, or too far in the future; correct it"
        )
    return f"Kafka refused it: {message or KafkaError(code).str()}"
