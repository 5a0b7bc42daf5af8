"""The coordinators' knowledge of transactions, and the end of one in a partition (KIP-664).

librdkafka has no call for these requests. Each broker answers ListTransactions and
DescribeTransactions for the transactional ids that it coordinates. The leader of a partition takes
WriteTxnMarkers.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from anabranch.wire.kafka.producer_state import ProducerState
from anabranch.wire.kafka.protocol import (
    NO_TAGS,
    BrokerConnection,
    KafkaProtocolError,
    Partition,
    ResponseReader,
    array,
    text,
)

_WRITE_MARKERS: Final = 27
_WRITE_MARKERS_VERSION: Final = 1
_DESCRIBE: Final = 65
_LIST: Final = 66
_ABORT: Final = 0


class KnownTransaction(NamedTuple):
    """The last transaction of a transactional id, by its coordinator.

    `partitions` are those that it has written to, while it is under way.
    """

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    started_ms: int
    timeout_ms: int
    partitions: frozenset[Partition]


def coordinated(
    connection: BrokerConnection, producer_ids: Collection[int]
) -> list[KnownTransaction]:
    """Returns the transactions of these producers that this broker coordinates, and that we may
    see.

    Raises OSError, KafkaProtocolError.
    """
    wanted = array(struct.pack(">q", each) for each in producer_ids)
    reader = connection.ask(_LIST, 0, array([]) + wanted + NO_TAGS)
    reader.skip(4)  # throttle time
    (error,) = reader.unpack(">h")
    if error:
        raise KafkaProtocolError(f"Kafka does not list transactions: error {error}")
    for _ in range(reader.count()):
        reader.text()  # a filter that it does not know
    names = []
    for _ in range(reader.count()):
        names.append(reader.text())
        reader.skip(8)  # the producer's id
        reader.text()  # state
        reader.tags()
    return _described(connection, names) if names else []


def _described(connection: BrokerConnection, names: Iterable[str]) -> list[KnownTransaction]:
    reader = connection.ask(_DESCRIBE, 0, array(map(text, names)) + NO_TAGS)
    reader.skip(4)  # throttle time
    found = []
    for _ in range(reader.count()):
        (error,) = reader.unpack(">h")
        name, state = reader.text(), reader.text()
        timeout_ms, started_ms, producer_id, epoch = reader.unpack(">iqqh")
        partitions = frozenset(_partitions(reader))
        reader.tags()
        if error:
            raise KafkaProtocolError(f"Kafka does not describe transactions: error {error}")
        found.append(
            KnownTransaction(name, state, producer_id, epoch, started_ms, timeout_ms, partitions)
        )
    return found


def _partitions(reader: ResponseReader) -> Iterable[Partition]:
    for _ in range(reader.count()):
        topic = reader.text()
        for _ in range(reader.count()):
            (number,) = reader.unpack(">i")
            yield topic, number
        reader.tags()


def write_abort(connection: BrokerConnection, partition: Partition, producer: ProducerState) -> int:
    """Has the leader end the producer's open transaction, against the word of its coordinator if
    need be.

    Returns Kafka's error, 0 for none. Raises OSError, KafkaProtocolError.
    """
    topic, number = partition
    # The partition has seen no coordinator yet if the producer's first transaction hangs.
    coordinator = max(producer.coordinator_epoch, 0)
    places = array([text(topic) + array([struct.pack(">i", number)]) + NO_TAGS])
    marker = struct.pack(">qhb", producer.producer_id, producer.epoch, _ABORT) + places
    marker += struct.pack(">i", coordinator) + NO_TAGS
    reader = connection.ask(_WRITE_MARKERS, _WRITE_MARKERS_VERSION, array([marker]) + NO_TAGS)
    errors = []
    for _ in range(reader.count()):
        reader.skip(8)  # the producer's id
        for _ in range(reader.count()):
            reader.text()
            for _ in range(reader.count()):
                _, error = reader.unpack(">ih")
                reader.tags()
                errors.append(error)
            reader.tags()
        reader.tags()
    if len(errors) != 1:
        raise KafkaProtocolError(f"Kafka does not tell whether {topic}[{number}] took the end")
    return errors[0]
