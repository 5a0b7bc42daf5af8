"""Offsets of segments and of groups, on a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import TopicPartition

from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.offsets import EARLIEST, LATEST, Place
from anabranch.channel.segments.admin import SegmentAdmin, SegmentSettings
from anabranch.channel.segments.positions import GroupPositions
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.channel import DEADLINE_S

pytestmark = pytest.mark.integration


@pytest.fixture
def connection(kafka: EmbeddedKafka) -> KafkaConnection:
    return KafkaConnection(kafka.bootstrap_servers)


@pytest.fixture
def places(connection: KafkaConnection, topic_prefix: str) -> Iterator[list[Place]]:
    """Three partitions: records of the times 1000, 2000 and 3000, one record, none."""
    admin = SegmentAdmin(connection, SegmentSettings())
    topic = SegmentTopic(f"{topic_prefix}segment", 3)
    admin.create([topic], DEADLINE_S)
    producer = connection.producer()
    for partition, timestamp in ((0, 1_000), (0, 2_000), (0, 3_000), (1, 1_000)):
        producer.produce(topic.name, b"x", partition=partition, timestamp=timestamp)
    assert producer.flush(DEADLINE_S) == 0
    yield [(topic.name, partition) for partition in range(3)]
    admin.close()


def test_offsets_are_found_by_time_and_at_both_ends(
    connection: KafkaConnection, places: list[Place]
) -> None:
    positions = GroupPositions(connection)

    def at(timestamp_ms: int) -> list[int]:
        found = positions.offsets(places, timestamp_ms, DEADLINE_S)
        return [found[place] for place in places]

    assert at(EARLIEST) == [0, 0, 0]
    assert at(LATEST) == [3, 1, 0]
    assert at(1_001) == [1, -1, -1]


def test_a_group_is_where_its_consumers_committed_last(
    connection: KafkaConnection, places: list[Place], topic_prefix: str
) -> None:
    positions = GroupPositions(connection)
    group = f"{topic_prefix}group"
    assert positions.committed(group, places, DEADLINE_S) == {}
    committed(connection, group, {places[0]: 2, places[2]: 0})
    assert positions.committed(group, places, DEADLINE_S) == {places[0]: 2, places[2]: 0}
    committed(connection, group, {places[0]: 1})
    assert positions.committed(group, places, DEADLINE_S) == {places[0]: 1, places[2]: 0}


def committed(connection: KafkaConnection, group: str, offsets: Mapping[Place, int]) -> None:
    """By a consumer that is assigned what it reads."""
    consumer = connection.consumer(group_id=group)
    given = [TopicPartition(*place, offset) for place, offset in offsets.items()]
    consumer.commit(offsets=given, asynchronous=False)
    consumer.close()


def test_what_cannot_be_answered_ends_with_its_deadline(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    positions = GroupPositions(connection)
    gone = [(f"{topic_prefix}gone", 0)]
    with pytest.raises(KafkaUnreachableError, match="find offsets of topic"):
        positions.offsets(gone, LATEST, 0.5)


def test_the_end_is_behind_what_a_transaction_has_not_committed_yet(
    connection: KafkaConnection, places: list[Place], topic_prefix: str
) -> None:
    positions = GroupPositions(connection)
    producer = connection.producer(transactional_id=f"{topic_prefix}open")
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(places[2][0], b"x", partition=places[2][1])
    assert producer.flush(DEADLINE_S) == 0
    assert positions.offsets(places[2:], LATEST, DEADLINE_S) == {places[2]: 1}
    producer.abort_transaction(DEADLINE_S)
    positions.close()
