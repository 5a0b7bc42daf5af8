"""How many of Kafka's brokers a producer reckons with: it decides who shares a Kafka producer."""

from __future__ import annotations

from confluent_kafka.admin import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata

from anabranch.client._producer.segment_writer import brokers_of
from anabranch.client._producer.writer_pool import writers_of


def metadata(*brokers: int, replicas: list[list[int]]) -> ClusterMetadata:
    found = ClusterMetadata()
    found.brokers = {number: BrokerMetadata() for number in brokers}
    found.topics = {"orders": TopicMetadata()}
    for number, some in enumerate(replicas):
        part = found.topics["orders"].partitions[number] = PartitionMetadata()
        part.replicas = some
    return found


def test_a_broker_that_is_away_and_has_a_replica_counts() -> None:
    alone = metadata(1, replicas=[[1, 2], [3, 1]])
    assert brokers_of(alone, "orders") == 3
    assert writers_of(4, brokers_of(alone, "orders")) == 4


def test_a_broker_without_a_replica_counts_too_since_children_may_be_on_it() -> None:
    assert brokers_of(metadata(1, 2, replicas=[[1]]), "orders") == 2
