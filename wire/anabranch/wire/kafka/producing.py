"""The requests of a producer with numbers of its own to Kafka: InitProducerId and Produce.

They have no transactions, and all copies in sync acknowledge each batch. Version 9 of Produce is
the first with compact lengths. Kafka has it since 2.8.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from anabranch.wire.kafka.protocol import NO_TAGS, KafkaProtocolError, ResponseReader, text
from anabranch.wire.varint import varint

PRODUCE: Final = 0
PRODUCE_VERSION: Final = 9
INIT_PRODUCER_ID: Final = 22
INIT_PRODUCER_ID_VERSION: Final = 4
Buffer = bytes | bytearray | memoryview  # memory views of single bytes only

_NO_TRANSACTION: Final = b"\0"
_ALL_COPIES: Final = -1


class KafkaCode(IntEnum):
    """Kafka's error codes, as far as a producer has to distinguish them.

    The names are those of Kafka's own `Errors`, which has all codes.
    """

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    TOPIC_AUTHORIZATION_FAILED = 29
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    CONCURRENT_TRANSACTIONS = 51
    KAFKA_STORAGE_ERROR = 56
    UNKNOWN_PRODUCER_ID = 59
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    INVALID_RECORD = 87
    THROTTLING_QUOTA_EXCEEDED = 89


_PASSING: Final = frozenset(
    {
        KafkaCode.REQUEST_TIMED_OUT,
        KafkaCode.BROKER_NOT_AVAILABLE,
        KafkaCode.NETWORK_EXCEPTION,
        KafkaCode.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaCode.COORDINATOR_NOT_AVAILABLE,
        KafkaCode.NOT_COORDINATOR,
        KafkaCode.CONCURRENT_TRANSACTIONS,
        KafkaCode.THROTTLING_QUOTA_EXCEEDED,
    }
)


class KafkaNotYetError(KafkaProtocolError):
    """Kafka cannot do this just now. Ask again a little later."""


class ProducedPartition(NamedTuple):
    """The result of the records for one partition.

    `error` is Kafka's code. `offset` is that of the first record. It is -1 with an error, and if
    Kafka knows records by their numbers but no longer their place. `log_append_time_ms` is Kafka's
    time if the topic has its messages carry that one, else -1. `start_offset` is the begin of the
    partition, -1 if that is not told. `message` is Kafka's text of an error, often empty.
    """

    topic: str
    partition: int
    error: int
    offset: int
    log_append_time_ms: int
    start_offset: int
    message: str


class Produced(NamedTuple):
    """`throttle_ms` is the time for which Kafka leaves this connection alone, by a quota."""

    throttle_ms: int
    partitions: list[ProducedPartition]


def code_name(code: int) -> str:
    """Names an error code for messages.

    >>> code_name(45), code_name(120)
    ('OUT_OF_ORDER_SEQUENCE_NUMBER (45)', 'error 120')
    """
    return f"{KafkaCode(code).name} ({code})" if code in _KNOWN else f"error {code}"


_KNOWN: Final = frozenset(KafkaCode)


def producer_id_request() -> bytes:
    """Returns the body that asks for a new producer id without transactions."""
    return _NO_TRANSACTION + struct.pack(">iqh", 0, -1, -1) + NO_TAGS


def read_producer_id(reader: ResponseReader) -> tuple[int, int]:
    """Decodes the new id and its epoch. Raises KafkaNotYetError, or KafkaProtocolError for good."""
    reader.skip(4)  # throttle time
    error, producer_id, epoch = reader.unpack(">hqh")
    if not error:
        return producer_id, epoch
    if error in _PASSING:
        raise KafkaNotYetError(f"Kafka gives no producer id yet: {code_name(error)}")
    remedy = ""
    if error == KafkaCode.CLUSTER_AUTHORIZATION_FAILED:
        remedy = "; it takes the right to write to a topic, or IDEMPOTENT_WRITE on the cluster"
    raise KafkaProtocolError(f"Kafka gives no producer id: {code_name(error)}{remedy}")


def produce_request(
    batches: Mapping[str, Sequence[tuple[int, Buffer]]], timeout_ms: int
) -> list[Buffer]:
    """Returns the body with the record batch of each partition, by topic, in parts.

    The parts hold the given records without a copy. Leave them alone until the answer is there.
    `timeout_ms` is the time for which the leader waits for copies.
    """
    parts: list[Buffer] = []
    head = bytearray(_NO_TRANSACTION + struct.pack(">hi", _ALL_COPIES, timeout_ms))
    head += varint(len(batches) + 1)
    for topic, partitions in batches.items():
        head += text(topic)
        head += varint(len(partitions) + 1)
        for partition, records in partitions:
            head += struct.pack(">i", partition)
            head += varint(len(records) + 1)
            parts += (head, records)
            head = bytearray(NO_TAGS)
        head += NO_TAGS
    head += NO_TAGS
    parts.append(head)
    return parts


def read_produced(reader: ResponseReader) -> Produced:
    """Decodes the body of an answer. Raises KafkaProtocolError if it is cut short."""
    partitions = []
    for _ in range(reader.count()):
        topic = reader.text()
        for _ in range(reader.count()):
            number, error, offset, at_ms, start = reader.unpack(">ihqqq")
            said = []
            for _ in range(reader.count()):  # records for which the whole batch is refused
                reader.skip(4)  # the index of the record
                said.append(reader.text())
                reader.tags()
            message = reader.text() or next(filter(None, said), "")
            reader.tags()
            partitions.append(
                ProducedPartition(topic, number, error, offset, at_ms, start, message)
            )
        reader.tags()
    (throttle_ms,) = reader.unpack(">i")
    return Produced(throttle_ms, partitions)
