"""A partition leader's knowledge of a producer: the number of its stored messages, and its open
transaction.

Kafka keeps, per partition and idempotent producer, the sequence number of the last stored message.
Numbers begin at 0 and have no gap, so it tells exactly how many were stored. librdkafka has no call
for it (DescribeProducers, KIP-664), so this module asks over a connection of its own. It reads no
message.

A follower answers that question as well, from its copy, and so does a broker that was killed, from
its former state. So the broker must first tell, as only a leader does, that the partition ends
where it was sealed (ListOffsets). Then it knows all that is there.

A former leader that stood still believes that it leads, for a tenth of a second until
it reads of the new one. It counts messages that its followers never had. So it must tell afterwards
that its own log does not reach beyond the committed end. Then nothing that it told of can be lost.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple

from anabranch.wire.kafka.protocol import (
    NO_TAGS,
    Ask,
    BrokerConnection,
    KafkaProtocolError,
    Partition,
    ResponseReader,
    text,
    topics,
)
from anabranch.wire.varint import varint

_DESCRIBE_PRODUCERS: Final = 61
LIST_OFFSETS: Final = 2
LIST_OFFSETS_VERSION: Final = 6
LATEST: Final = -1
_CLIENT: Final = -1  # only a leader answers it, with the committed end
_DEBUGGER: Final = -2  # any broker answers it, with the end of its own log
_NOT_AVAILABLE: Final = 78  # a new leader does not know yet what is committed
_PASSING: Final = (5, 6, 7)  # no leader, not the leader, timed out


class ProducerState(NamedTuple):
    """`last_sequence` is that of the last stored message of the producer; -1 means none."""

    producer_id: int
    epoch: int
    last_sequence: int


def ask(
    leader: tuple[str, int],
    partition: tuple[str, int],
    end: int,
    kafka: Mapping[str, Any],
    timeout_s: float,
) -> list[ProducerState]:
    """Returns all producers that the leader knows of a partition that was sealed at `end`. Blocks.

    Raises OSError if the leader is out of reach or another broker leads. It raises OSError too if
    the leader lacks a part of the partition, or has more than is committed. Raises
    KafkaProtocolError if it does not answer.
    """
    topic, number = partition
    with closing(BrokerConnection(leader, kafka, timeout_s)) as connection:
        committed = _end(connection, topic, number, _CLIENT)
        if committed < end:  # ends of transactions may lie behind it
            raise ConnectionAbortedError(
                f"{topic}[{number}] stands at {committed}, before its sealed end, {end}"
            )
        (found,) = describe(connection.ask, topic, [number])
        if found.error in _PASSING:
            raise ConnectionAbortedError(f"{topic}[{number}] moves to another leader")
        if found.error:
            raise KafkaProtocolError(
                f"Kafka does not tell the producers of {topic}[{number}]: error {found.error} "
                f"{found.message}; it takes the right to read the topic"
            )
        own = _end(connection, topic, number, _DEBUGGER)
        committed = _end(connection, topic, number, _CLIENT)
    if own > committed:
        raise ConnectionAbortedError(
            f"{topic}[{number}] reaches to {own}, and is committed up to {committed}"
        )
    return found.states


def _end(connection: BrokerConnection, topic: str, partition: int, asker: int) -> int:
    """Returns the end of the partition for that asker. Raises ConnectionAbortedError unless the
    broker leads it, and KafkaProtocolError.
    """
    question = offsets_request([(topic, partition)], LATEST, asker=asker)
    told = read_offsets(connection.ask(LIST_OFFSETS, LIST_OFFSETS_VERSION, question))
    if [each.partition for each in told] != [partition]:
        raise KafkaProtocolError(f"Kafka does not tell the end of {topic}[{partition}]")
    ((_, _, error, _, end),) = told
    if error in (*_PASSING, _NOT_AVAILABLE):
        raise ConnectionAbortedError(f"{topic}[{partition}] moves to another leader")
    if error:
        raise KafkaProtocolError(
            f"Kafka does not tell the end of {topic}[{partition}]: error {error}; it takes the "
            "right to read the topic"
        )
    return end


class ToldOffset(NamedTuple):
    """An offset of a partition, and its time if a time was asked for, or Kafka's error."""

    topic: str
    partition: int
    error: int
    timestamp_ms: int
    offset: int


def offsets_request(
    places: Iterable[Partition], at: int, *, asker: int = _CLIENT, stable: bool = False
) -> bytes:
    """Returns the body of ListOffsets, versions 6 to 9, that asks about `at`, a time or LATEST.

    `stable`: the end is where the first open transaction begins.
    """
    asked = topics(places, lambda place: struct.pack(">iiq", place[1], -1, at) + NO_TAGS)
    return struct.pack(">ib", asker, stable) + asked + NO_TAGS


def read_offsets(reader: ResponseReader) -> list[ToldOffset]:
    """Decodes the body of the answer."""
    reader.skip(4)  # throttle time
    found = []
    for _ in range(reader.count()):
        topic = reader.text()
        for _ in range(reader.count()):
            partition, error, timestamp_ms, offset, _ = reader.unpack(">ihqqi")
            reader.tags()
            found.append(ToldOffset(topic, partition, error, timestamp_ms, offset))
        reader.tags()
    return found


class ProducerActivity(NamedTuple):
    """`coordinator_epoch` is -1 unless the producer has ended a transaction. `transaction_offset`
    is the begin of its open one, or -1.
    """

    last_ms: int
    coordinator_epoch: int
    transaction_offset: int


class PartitionProducers(NamedTuple):
    """The producers that a partition knows, each with its activity, or Kafka's error."""

    partition: int
    error: int
    message: str
    states: list[ProducerState]
    activities: list[ProducerActivity]


def describe(ask: Ask, topic: str, partitions: Sequence[int]) -> list[PartitionProducers]:
    """Asks DescribeProducers, version 0.
    Raises KafkaProtocolError unless the answer has each partition once.
    """
    numbers = varint(len(partitions) + 1) + struct.pack(f">{len(partitions)}i", *partitions)
    asked = b"\x02" + text(topic) + numbers
    found = _answer(ask(_DESCRIBE_PRODUCERS, 0, asked + b"\0\0"))
    told = [each.partition for each in found]
    if sorted(told) != sorted(partitions):
        raise KafkaProtocolError(
            f"Kafka was asked for the producers of {topic}{list(partitions)}, and told of {told}"
        )
    return found


def _answer(reader: ResponseReader) -> list[PartitionProducers]:
    reader.skip(4)  # throttle time
    found = []
    for _ in range(reader.varint() - 1):
        reader.skip(reader.varint() - 1)  # topic
        for _ in range(reader.varint() - 1):
            partition, error = reader.unpack(">ih")
            message = reader.take(max(0, reader.varint() - 1)).decode(errors="replace")
            states, activities = [], []
            for _ in range(reader.varint() - 1):
                states.append(ProducerState(*reader.unpack(">qii")))
                activities.append(ProducerActivity(*reader.unpack(">qiq")))
                reader.tags()
            reader.tags()
            found.append(PartitionProducers(partition, error, message, states, activities))
        reader.tags()
    return found
