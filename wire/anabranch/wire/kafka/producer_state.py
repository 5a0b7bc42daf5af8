"""What a partition's leader knows of a producer: how many of its messages the partition has stored,
and whether it has a transaction open there.

Kafka keeps, per partition and idempotent producer, the sequence number of the last message stored.
Numbers begin at 0 and have no gap, so it tells exactly how many were stored. librdkafka has no call
for it (DescribeProducers, KIP-664), so it is asked for here, over a connection of its own. That
needs no header in the messages and reads none of them. A Kafka that cannot be asked so (`can_ask`)
gets a header in each message instead.

A follower answers that question as well, by what it has copied so far, and a broker that was killed
by what it had then. So whoever is asked must first tell, as only a leader does, that the partition
ends where it was sealed (ListOffsets): what it knows of a producer then is all there will ever be.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple

from anabranch.wire.kafka.protocol import (
    BrokerConnection,
    KafkaProtocolError,
    ResponseReader,
    text,
)
from anabranch.wire.varint import varint

SEQUENCES: Final = 2**31  # then they begin at 0 again
_DESCRIBE_PRODUCERS: Final = 61
_LIST_OFFSETS: Final = 2
_LIST_OFFSETS_VERSION: Final = 6
_LATEST: Final = -1
_NOT_AVAILABLE: Final = 78  # a new leader does not know yet what is committed
_PASSING: Final = (5, 6, 7)  # no leader, not the leader, timed out
_NOT_YET: Final = (3, *_PASSING)  # or it does not know the partition
_AGAIN_S: Final = 0.002


class ProducerState(NamedTuple):
    """`last_sequence`: of the last message that the partition stored of the producer.

    `transaction_start`: the first offset of its open transaction; -1 for none, as for all else.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int = -1
    coordinator_epoch: int = -1
    transaction_start: int = -1


def ask(
    leader: tuple[str, int],
    partition: tuple[str, int],
    end: int,
    kafka: Mapping[str, Any],
    timeout_s: float,
) -> list[ProducerState]:
    """All producers that the leader knows of a partition that was sealed at `end`. Blocks.

    Raises OSError when the leader is out of reach, or another one is, or it does not have the whole
    partition yet; KafkaProtocolError when it does not answer the question.
    """
    topic, number = partition
    with closing(BrokerConnection(leader, kafka, timeout_s)) as connection:
        _check_end(connection, topic, number, end)
        (found,) = describe(connection, topic, [number])
    if found.error in _PASSING:
        raise ConnectionAbortedError(f"{topic}[{number}] moves to another leader")
    if found.error:
        raise KafkaProtocolError(
            f"Kafka does not tell the producers of {topic}[{number}]: error {found.error} "
            f"{found.message}; it takes the right to read the topic"
        )
    return found.states


def await_leading(
    leader: tuple[str, int],
    topic: str,
    partitions: Sequence[int],
    kafka: Mapping[str, Any],
    timeout_s: float,
) -> None:
    """Returns when the broker leads those partitions, or says why it will not tell. Blocks.

    A topic is in Kafka's metadata before its leaders lead. Raises OSError, TimeoutError when that
    takes longer, KafkaProtocolError.
    """
    deadline = time.monotonic() + timeout_s
    with closing(BrokerConnection(leader, kafka, timeout_s)) as connection:
        while True:
            found = describe(connection, topic, partitions)
            partitions = [each.partition for each in found if each.error in _NOT_YET]
            if not partitions:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{leader[0]}:{leader[1]} does not lead {topic}{partitions}")
            time.sleep(_AGAIN_S)


def _check_end(connection: BrokerConnection, topic: str, partition: int, end: int) -> None:
    """Raises ConnectionAbortedError unless the broker leads it and all up to `end` is committed."""
    question = struct.pack(">ib", -1, 0) + b"\x02" + text(topic) + b"\x02"
    question += struct.pack(">iiq", partition, -1, _LATEST) + b"\0\0\0"
    told = _ends(connection.ask(_LIST_OFFSETS, _LIST_OFFSETS_VERSION, question))
    if [found for found, *_ in told] != [partition]:
        raise KafkaProtocolError(f"Kafka does not tell the end of {topic}[{partition}]")
    ((_, error, found_end),) = told
    if error in (*_PASSING, _NOT_AVAILABLE):
        raise ConnectionAbortedError(f"{topic}[{partition}] moves to another leader")
    if error:
        raise KafkaProtocolError(
            f"Kafka does not tell the end of {topic}[{partition}]: error {error}; it takes the "
            "right to read the topic"
        )
    if found_end < end:  # ends of transactions may lie behind it
        raise ConnectionAbortedError(
            f"{topic}[{partition}] stands at {found_end}, before its sealed end, {end}"
        )


def _ends(reader: ResponseReader) -> list[tuple[int, int, int]]:
    """Of each partition of an answer its number, an error, and its end."""
    reader.skip(4)  # throttle time
    found = []
    for _ in range(reader.count()):
        reader.text()  # topic
        for _ in range(reader.count()):
            partition, error, _, end, _ = reader.unpack(">ihqqi")
            reader.tags()
            found.append((partition, error, end))
        reader.tags()
    return found


class PartitionProducers(NamedTuple):
    """The producers that a partition knows, or Kafka's error."""

    partition: int
    error: int
    message: str
    states: list[ProducerState]


def describe(
    connection: BrokerConnection, topic: str, partitions: Sequence[int]
) -> list[PartitionProducers]:
    """DescribeProducers, version 0. Raises KafkaProtocolError unless it tells of all, once."""
    numbers = varint(len(partitions) + 1) + struct.pack(f">{len(partitions)}i", *partitions)
    topics = b"\x02" + text(topic) + numbers
    found = _answer(connection.ask(_DESCRIBE_PRODUCERS, 0, topics + b"\0\0"))
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
            states = []
            for _ in range(reader.varint() - 1):
                states.append(ProducerState(*reader.unpack(">qiiqiq")))
                reader.tags()
            reader.tags()
            found.append(PartitionProducers(partition, error, message, states))
        reader.tags()
    return found
