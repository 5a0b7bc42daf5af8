"""Segments lie where they were placed, and move, on a Kafka of three brokers in two racks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.segments.admin import SegmentAdmin, SegmentSettings
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.channel.segments.survey import BrokerSurveyor
from anabranch.client import Client, Producer
from anabranch.core.topics.kafka_placement import Copies, KafkaBroker, Room
from support import channel
from support.kafka_brokers import KafkaBrokers
from support.several_brokers import leaders, under_load
from support.there import there
from support.topic_cluster import TopicCluster, topic_cluster
from support.waiting import WAIT_S

pytestmark = pytest.mark.long

_RACKS = {1: "a", 2: "a", 3: "b"}
_EVEN = tuple(KafkaBroker(number, rack) for number, rack in _RACKS.items())


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBrokers]:
    with KafkaBrokers(tmp_path_factory.mktemp("brokers"), 3, racks=[*_RACKS.values()]) as running:
        yield running


class Segments:
    """Makes Kafka topics that are named as segments are, and looks where they lie."""

    def __init__(self, brokers: KafkaBrokers, prefix: str, copies: int) -> None:
        self._connection = KafkaConnection(brokers.bootstrap_servers)
        self._prefix = prefix
        self._admin = SegmentAdmin(self._connection, SegmentSettings(replication_factor=copies))
        self._number = 0

    def make(self, partitions: int, room: Room | None) -> tuple[Copies, ...]:
        self._number += 1
        place = (7, self._number)
        name = f"{self._prefix}segment.public.default.orders.0000-ffff-{self._number}.7"
        self._admin.create([SegmentTopic(name, partitions)], WAIT_S, room)
        self._admin.await_leaders([SegmentTopic(name, partitions)], WAIT_S)
        surveyor = BrokerSurveyor(self._connection, self._prefix)
        found: list[tuple[Copies, ...]] = []

        def led() -> bool:
            survey = surveyor.look(WAIT_S)
            if survey is None or len(survey.segments.get(place, ())) != partitions:
                return False
            found.append(survey.segments[place])
            return all(each.leader is not None for each in found[-1])

        channel.until(led, f"{name} is led")
        return found[-1]

    def racks(self) -> dict[int, str]:
        """As Kafka tells them."""
        return dict(there(BrokerSurveyor(self._connection, self._prefix).look(WAIT_S)).racks)

    def close(self) -> None:
        self._admin.close()


def test_new_segments_lie_where_there_is_room(brokers: KafkaBrokers, topic_prefix: str) -> None:
    segments = Segments(brokers, topic_prefix, 2)
    try:
        channel.until(lambda: segments.racks() == _RACKS, "each broker has told its rack")
        even = segments.make(6, Room(1, _EVEN))
        assert Counter(each.replicas[0] for each in even) == {1: 2, 2: 2, 3: 2}
        for each in even:  # one copy in each rack
            assert {_RACKS[broker] for broker in each.replicas} == {"a", "b"}
        busy = (KafkaBroker(1, "a", 9e6, 9, 9), KafkaBroker(2, "a", 9e6, 9, 9), _EVEN[2])
        (free,) = segments.make(1, Room(2, busy, expected=1e6))
        assert free.replicas[0] == 3
        elsewhere = segments.make(3, Room(3, _EVEN, off=frozenset({3})))
        assert {broker for each in elsewhere for broker in each.replicas} == {1, 2}
        unknown = segments.make(3, Room())  # before anything was surveyed
        assert Counter(each.replicas[0] for each in unknown) == {1: 1, 2: 1, 3: 1}
        assert len(segments.make(3, None)) == 3  # as Kafka likes
    finally:
        segments.close()


_SETTINGS: Final = (
    "replicationFactor=1",
    "minInsyncReplicas=1",
    "scalableTopicEntryBucketBudget=2",
    "scalableTopicLoadReportIntervalSeconds=1",
    "scalableTopicRetentionSeconds=0",
    "scalableTopicSealedRetentionSeconds=10",  # longer than a producer here takes to settle
)


@pytest.fixture(scope="module")
def cluster(
    brokers: KafkaBrokers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TopicCluster]:
    """Two nodes, with one copy of everything, that look at Kafka often."""
    folder = tmp_path_factory.mktemp("nodes")
    with topic_cluster(brokers, f"{folder.name}.", folder, *_SETTINGS) as running:
        yield running


async def test_segments_leave_a_broker_under_ordered_traffic(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    async def disturb(producer: Producer) -> None:
        victim = leaders(cluster.kafka, producer.layout.segments[0].kafka_topic)[0]
        for segment in await cluster.active(topic):
            await cluster.call("POST", f"{topic}/relocate/{segment}", params={"off": victim})
        for part in (await cluster.call("GET", f"{topic}/stats"))["segments"].values():
            if part["state"] == "ACTIVE":
                assert victim not in leaders(cluster.kafka, part["kafkaTopic"]).values()

    await under_load(cluster.kafka, client, topic, disturb, repeats=False, keeps=False)
