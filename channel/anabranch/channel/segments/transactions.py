"""Open transactions that keep sealed segments from being read.

librdkafka tells if one is open: Kafka gives out nothing from the first one's beginning on, and
calls that the end. Kafka's own `kafka-transactions.sh` tells whose it is, and can end it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import closing

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.offsets import (
    LATEST,
    Answers,
    PartitionOffset,
    PartitionOffsets,
    Place,
)
from anabranch.channel.kafka.propagation import values_of
from anabranch.channel.segments.seal_settings import is_sealed

_ASKING = "to look for open transactions"


class StableEnds:
    """Blocking questions, each with a deadline, for use by one thread."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        # It reads committed messages, so the end is the beginning of the first open transaction.
        self._stable = PartitionOffsets(connection, connection.consumer())

    def close(self) -> None:
        """Ends the client that asks."""
        self._stable.close()

    def held(self, ends: Mapping[Place, int], deadline_s: float) -> dict[Place, int]:
        """Returns the buckets that a transaction holds back below these ends, and from where on.

        Raises KafkaRefusedError, or KafkaUnreachableError.
        """
        starts = _offsets(self._connection, self._stable.ask(ends, LATEST, deadline_s))
        return {place: start for place, start in starts.items() if start < ends[place]}


def held_in_sealed(
    connection: KafkaConnection, admin: AdminClient, head: str, deadline_s: float
) -> dict[Place, int]:
    """Returns those of all sealed segments whose Kafka topics begin so; else as `StableEnds.held`.

    Transactions come and go in segments that take messages. So Kafka is asked only about segments
    with an open one whether they are sealed.
    """
    deadline = time.monotonic() + deadline_s
    try:
        topics = admin.list_topics(timeout=deadline_s).topics
    except KafkaException as error:
        raise connection.explained(error, _ASKING) from None
    places = [
        (name, number)
        for name, topic in topics.items()
        if name.startswith(head)
        for number in topic.partitions
    ]
    with closing(PartitionOffsets(connection)) as asked:
        told = asked.ask(places, LATEST, _left_s(deadline))
    ends = _offsets(connection, told)
    with closing(StableEnds(connection)) as stable:
        held = stable.held(ends, _left_s(deadline))
    sealed = _sealed(connection, admin, {topic for topic, _ in held}, deadline)
    return {place: start for place, start in held.items() if place[0] in sealed}


def _offsets(connection: KafkaConnection, told: Answers) -> dict[Place, int]:
    """The offsets of partitions that are there. Raises as `StableEnds.held`."""
    found = {}
    for place, each in told.items():
        if isinstance(each, PartitionOffset):
            found[place] = each.offset
        elif each.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise connection.explained(KafkaException(each), _ASKING)
    return found


def _sealed(
    connection: KafkaConnection, admin: AdminClient, topics: Collection[str], deadline: float
) -> set[str]:
    asked = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
    told = admin.describe_configs(asked) if asked else {}
    doing = "to tell which segments are sealed"
    try:
        return {
            each.name
            for each in asked
            if is_sealed(values_of(told[each].result(_left_s(deadline))))
        }
    except FutureTimeoutError:
        raise connection.unreachable(doing) from None
    except KafkaException as error:
        raise connection.explained(error, doing) from None


def _left_s(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
