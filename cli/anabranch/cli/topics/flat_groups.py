"""Kafka groups begin in a flattened topic where subscriptions have come to in segments.

A copy tells its origin. So a group begins in each partition at the first message that its
subscription has yet to read. Messages behind that come again, also those that it had read: a
partition has the messages of many buckets, and a group has one position in it.

All calls block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from anabranch.channel.kafka.connection import KafkaConnection, close_consumer
from anabranch.channel.kafka.offsets import EARLIEST, LATEST
from anabranch.cli.topics.flat_topic import FlatTopic, Origin, Positions

_MARK: Final = "anabranch flatten"  # of what is committed here, and may be committed anew
_KAFKA_S: Final = 30.0
_POLL_S: Final = 0.1
_AT_ONCE: Final = 1_000


def begin_groups(
    connection: KafkaConnection, topic: FlatTopic, positions: Mapping[str, Positions]
) -> Iterator[str]:
    """Commits the beginnings of the groups, which have the names of their subscriptions.

    Yields a sentence for each group. One with members, or with a position of its own, stays as it
    is. Raises KafkaRefusedError and KafkaUnreachableError.
    """
    begins, ends = topic.range(EARLIEST), topic.range(LATEST)
    starts: dict[str, list[int]] = {}
    for group in positions:
        committed = _committed(connection, topic, group)
        if any(each.offset >= 0 and each.metadata != _MARK for each in committed):
            yield f"group {group} goes on where it is: it has read {topic.name} already"
            continue
        found = (max(each.offset, first) for each, first in zip(committed, begins, strict=True))
        starts[group] = list(found)
    wanted = {group: positions[group] for group in starts}
    for group, offsets in _first_unread(connection, topic, wanted, starts, ends).items():
        yield _begin(connection, topic, group, offsets)


def _committed(connection: KafkaConnection, topic: FlatTopic, group: str) -> list[TopicPartition]:
    consumer = connection.consumer(group_id=group)
    try:
        asked = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        return list(consumer.committed(asked, timeout=_KAFKA_S))
    except KafkaException as error:
        raise connection.explained(error, f"to tell the offsets of group {group}") from None
    finally:
        close_consumer(consumer)


def _first_unread(
    connection: KafkaConnection,
    topic: FlatTopic,
    positions: Mapping[str, Positions],
    starts: Mapping[str, Sequence[int]],
    ends: Sequence[int],
) -> dict[str, list[int]]:
    """Reads the topic once for all groups, each from its starts; returns their beginnings."""
    found = {group: list(ends) for group in positions}
    searching = {
        number: {group for group in positions if starts[group][number] < end}
        for number, end in enumerate(ends)
    }
    reader = connection.consumer(is_polled=True, enable_partition_eof=True)
    try:
        reader.assign(
            [
                TopicPartition(topic.name, number, min(starts[group][number] for group in groups))
                for number, groups in searching.items()
                if groups
            ]
        )
        while any(searching.values()):
            for message in reader.consume(_AT_ONCE, _POLL_S):
                number = _partition(message)
                if not _is_behind(message, ends[number]):
                    for group in _that_have_to_read(message, searching[number], positions, starts):
                        found[group][number] = message.offset() or 0
                        searching[number].remove(group)
                else:
                    searching[number] = set()
                if not searching[number]:
                    reader.pause([TopicPartition(topic.name, number)])
    except KafkaException as error:
        raise connection.explained(error, f"to read {topic.name}") from None
    finally:
        close_consumer(reader)
    return found


def _partition(message: KafkaMessage) -> int:
    """Raises KafkaException for an error but the end of a partition."""
    error, number = message.error(), message.partition()
    if number is None or (error is not None and error.code() != KafkaError._PARTITION_EOF):
        raise KafkaException(error)
    return number


def _is_behind(message: KafkaMessage, end: int) -> bool:
    return message.error() is not None or (message.offset() or 0) >= end


def _that_have_to_read(
    message: KafkaMessage,
    groups: set[str],
    positions: Mapping[str, Positions],
    starts: Mapping[str, Sequence[int]],
) -> list[str]:
    """Returns the groups that have yet to read a message; nobody has read one that is no copy."""
    headers: Any = message.headers() or ()
    origin, number, offset = Origin.of(headers), message.partition() or 0, message.offset() or 0
    return [
        group
        for group in groups
        if offset >= starts[group][number]
        and (origin is None or origin.is_unread(positions[group]))
    ]


def _begin(
    connection: KafkaConnection, topic: FlatTopic, group: str, offsets: Sequence[int]
) -> str:
    consumer = connection.consumer(group_id=group)
    given = [
        TopicPartition(topic.name, number, offset, metadata=_MARK)
        for number, offset in enumerate(offsets)
    ]
    try:
        consumer.commit(offsets=given, asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID:
            return f"group {group} has members: stop them, and run this again"
        raise connection.explained(error, f"the offsets of group {group}") from None
    finally:
        close_consumer(consumer)
    return f"group {group} begins in {topic.name} where the subscription has come to"
