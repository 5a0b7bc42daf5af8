"""Kafka groups begin in a flattened topic where subscriptions have come to in segments.

A copy tells its origin. So a group begins in each partition at the first message that its
subscription has yet to read. Messages behind that come again, also those that it had read: a
partition has the messages of many buckets, and a group has one position in it.

All calls block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from anabranch.channel.kafka.connection import KafkaConnection, close_consumer
from anabranch.channel.kafka.offsets import LATEST
from anabranch.cli.topics.flat_topic import FlatTopic, Origin, Positions

_MARK: Final = "anabranch flatten"  # of what is committed here, and may be committed anew
_KAFKA_S: Final = 30.0


def begin_groups(
    connection: KafkaConnection, topic: FlatTopic, positions: Mapping[str, Positions]
) -> Iterator[str]:
    """Commits the beginnings of the groups, which have the names of their subscriptions.

    Yields a sentence for each group. One with members, or with a position of its own, stays as it
    is. Raises KafkaRefusedError and KafkaUnreachableError.
    """
    wanted: dict[str, Positions] = {}
    for group, each in positions.items():
        committed = _committed(connection, topic, group)
        if any(at.offset >= 0 and at.metadata != _MARK for at in committed):
            yield f"group {group} goes on where it is: it has read {topic.name} already"
        else:
            wanted[group] = each
    for group, offsets in _first_unread(topic, wanted).items():
        yield _begin(connection, topic, group, offsets)


@contextmanager
def _member(connection: KafkaConnection, group: str) -> Iterator[Consumer]:
    """A client that asks and commits for a group, without joining it.

    Raises KafkaRefusedError and KafkaUnreachableError.
    """
    consumer = connection.consumer(group_id=group)
    try:
        yield consumer
    except KafkaException as error:
        raise connection.explained(error, f"the offsets of group {group}") from None
    finally:
        close_consumer(consumer)


def _committed(connection: KafkaConnection, topic: FlatTopic, group: str) -> list[TopicPartition]:
    asked = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
    with _member(connection, group) as member:
        return list(member.committed(asked, timeout=_KAFKA_S))


def _first_unread(topic: FlatTopic, positions: Mapping[str, Positions]) -> dict[str, list[int]]:
    """Reads the topic once for all groups; returns where each begins in each partition.

    A message that is no copy was read by nobody.
    """
    if not positions:
        return {}
    ends = topic.range(LATEST)
    found = {group: list(ends) for group in positions}
    searching = {number: set(positions) for number in range(len(ends))}
    for message in topic.messages():
        number, offset = message.partition() or 0, message.offset() or 0
        if searching[number]:
            origin = Origin.of(message)
            for group in list(searching[number]):
                if origin is None or origin.is_unread(positions[group]):
                    found[group][number] = offset
                    searching[number].remove(group)
    return found


def _begin(
    connection: KafkaConnection, topic: FlatTopic, group: str, offsets: Sequence[int]
) -> str:
    given = [
        TopicPartition(topic.name, number, offset, metadata=_MARK)
        for number, offset in enumerate(offsets)
    ]
    with _member(connection, group) as member:
        try:
            for each in member.commit(offsets=given, asynchronous=False) or ():
                if each.error is not None:
                    raise KafkaException(each.error)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_MEMBER_ID:
                raise
            return f"group {group} has members: stop them, and run this again"
    return f"group {group} begins in {topic.name} where the subscription has come to"
