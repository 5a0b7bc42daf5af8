"""Segments lie where they were placed, and move, on a Kafka of three brokers in two racks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from anabranch.channel.errors import BrokersDrainedError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.segments.admin import SegmentAdmin, SegmentSettings
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.channel.segments.survey import BrokerSurveyor
from anabranch.client import Client, Producer
from anabranch.core.placement.room import Copies, KafkaBroker, Room
from anabranch.devkit.kafka.brokers import KafkaBrokers
from support import channel
from support.several_brokers import leaders, under_load
from support.topic_cluster import TopicCluster, run_on, topic_cluster
from support.waiting import eventually

pytestmark = pytest.mark.integration

_TOPICS_MAX: Final = 9
_WAIT_S = 60.0
_RACKS = {1: "a", 2: "a", 3: "b"}
_EVEN = tuple(KafkaBroker(number, rack) for number, rack in _RACKS.items())


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBrokers]:
    folder = tmp_path_factory.mktemp("brokers")
    with KafkaBrokers(folder, 3, racks=[*_RACKS.values()]) as running:
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
        self._admin.create([SegmentTopic(name, partitions)], _WAIT_S, room)
        self._admin.await_leaders([SegmentTopic(name, partitions)], _WAIT_S)
        surveyor = BrokerSurveyor(self._connection, self._prefix)
        found: list[tuple[Copies, ...]] = []

        def led() -> bool:
            survey = surveyor.look(_WAIT_S)
            if survey is None or len(survey.segments.get(place, ())) != partitions:
                return False
            found.append(survey.segments[place])
            return all(each.leader is not None for each in found[-1])

        channel.until(led, f"{name} is led")
        return found[-1]

    def racks(self) -> dict[int, str]:
        """As Kafka tells them."""
        survey = BrokerSurveyor(self._connection, self._prefix).look(_WAIT_S)
        assert survey is not None
        return dict(survey.racks)

    def close(self) -> None:
        self._admin.close()


def test_new_segments_lie_where_there_is_room(brokers: KafkaBrokers, topic_prefix: str) -> None:
    segments = Segments(brokers, topic_prefix, 2)
    try:
        assert segments.racks() == _RACKS
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


def test_what_is_drained_gets_nothing_or_nothing_is_made(
    brokers: KafkaBrokers, topic_prefix: str
) -> None:
    segments = Segments(brokers, topic_prefix, 2)
    try:
        kept = segments.make(3, Room(1, _EVEN, frozenset({2, 9})))
        assert {broker for each in kept for broker in each.replicas} == {1, 3}
        with pytest.raises(BrokersDrainedError, match=r"only 1 may get new segments.*: 1, 2 are"):
            segments.make(1, Room(1, _EVEN, frozenset({1, 2})))
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
def nodes(
    brokers: KafkaBrokers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TopicCluster]:
    """Two nodes, with one copy of everything, that look at Kafka often."""
    folder = tmp_path_factory.mktemp("nodes")
    with topic_cluster(brokers, f"{folder.name}.", folder, *_SETTINGS) as running:
        yield running


@pytest.fixture
def surveying_nodes(brokers: KafkaBrokers, tmp_path: Path) -> Iterator[TopicCluster]:
    """Such that also look often at how far subscriptions are, and delete what all have read."""
    often = "scalableTopicSurveyIntervalSeconds=1"
    with topic_cluster(brokers, f"{tmp_path.name}.", tmp_path, *_SETTINGS, often) as running:
        yield running


def test_a_segment_is_relocated_under_ordered_traffic(nodes: TopicCluster) -> None:
    async def body(nodes: TopicCluster, client: Client, topic: str) -> None:
        async def disturb(producer: Producer) -> None:
            async def moved(segment: int, **query: object) -> set[int]:
                await nodes.call("POST", f"{topic}/relocate/{segment}", params=query)
                parts = (await nodes.call("GET", f"{topic}/stats"))["segments"]
                child = parts[str(segment + 1)]
                return set(leaders(nodes.kafka, child["kafkaTopic"]).values())

            first = set(leaders(nodes.kafka, producer.layout.segments[0].kafka_topic).values())
            assert len(first) == 2
            second = await moved(0)  # away from both, and there is one more
            assert second == {1, 2, 3} - first
            (only,) = second
            third = await moved(1, off=[only])
            assert third == {1, 2, 3} - second
            assert await nodes.active(topic) == [2]

        await under_load(nodes.kafka, client, topic, disturb, repeats=False)
        # What else the next test drains would never be empty: nobody reads this topic any more.
        await nodes.call("DELETE", topic, params={"force": True})

    run_on(nodes, body)


def test_a_broker_is_drained_under_ordered_traffic_and_leads_nothing_in_the_end(
    nodes: TopicCluster,
) -> None:
    """Two topics, of which one has no traffic; what is sealed goes once it is read."""
    idle = "public/default/idle"

    async def body(nodes: TopicCluster, client: Client, topic: str) -> None:
        await nodes.create(idle, 4)

        async def share(broker: int) -> dict[str, Any]:
            found = await nodes.rest("GET", "/admin/v2/kafka/brokers")
            return next(each for each in found if each["brokerId"] == broker)

        async def disturb(producer: Producer) -> None:
            home = producer.layout.segments[0].kafka_topic
            victim = leaders(nodes.kafka, home)[0]
            assert (await share(victim))["drained"] is False
            await nodes.rest("PUT", f"/admin/v2/kafka/brokers/{victim}/drain")

            async def left() -> bool:
                return bool((await share(victim))["activeReplicas"] == 0)

            await eventually(left, _WAIT_S)
            await nodes.split(topic, (await nodes.active(topic))[0])  # nor does what is made now
            for name in (topic, idle):
                parts = (await nodes.call("GET", f"{name}/stats"))["segments"].values()
                for part in parts:
                    if part["state"] == "ACTIVE":
                        assert victim not in leaders(nodes.kafka, part["kafkaTopic"]).values()
            drained.append(victim)

        await under_load(nodes.kafka, client, topic, disturb, repeats=False)
        (victim,) = drained

        async def empty() -> bool:  # nobody reads `idle`, and `billing` has read the other one
            return bool((await share(victim))["sealedLeaders"] == 0)

        await eventually(empty, _WAIT_S)
        await nodes.rest("DELETE", f"/admin/v2/kafka/brokers/{victim}/drain")
        assert (await share(victim))["drained"] is False

    drained: list[int] = []
    run_on(nodes, body)


def test_a_drained_broker_keeps_what_a_subscription_without_consumers_has_yet_to_read(
    surveying_nodes: TopicCluster,
) -> None:
    """And nothing that all of them have read, though nobody is there to say so."""

    async def body(nodes: TopicCluster, client: Client, unread: str) -> None:
        async def share() -> dict[str, Any]:
            found = await nodes.rest("GET", "/admin/v2/kafka/brokers")
            return next(each for each in found if each["brokerId"] == victim)

        async def segments(topic: str) -> dict[str, Any]:
            return dict((await nodes.call("GET", f"{topic}/stats"))["segments"])

        async def left() -> bool:
            return bool((await share())["activeReplicas"] == 0)

        async def gone() -> bool:
            return "0" not in await segments(read)

        async def empty() -> bool:
            return bool((await share())["sealedLeaders"] == 0)

        async def written(topic: str) -> set[int]:
            """Who leads its buckets, to which messages are written."""
            await _read(client, topic, 0)  # what nobody is subscribed to is deleted at once
            producer = await client.create_producer(topic)
            for number in range(10):
                await producer.send(b"%d" % number, b"key")
            led = leaders(nodes.kafka, producer.layout.segments[0].kafka_topic)
            await producer.close()
            return {*led.values()}

        # Both are to have something on the broker that is drained; where, goes by load.
        leading, common, read = await written(unread), set[int](), ""
        for number in range(_TOPICS_MAX):
            read = f"public/default/read-{number}"
            await nodes.create(read)
            common = leading & await written(read)
            if common:
                break
        victim = min(common)
        await _read(client, unread, 9)
        await _read(client, read, 10)

        await nodes.rest("PUT", f"/admin/v2/kafka/brokers/{victim}/drain")
        await eventually(left, _WAIT_S)
        await eventually(gone, _WAIT_S)
        assert (await segments(unread))["0"]["state"] == "SEALED"
        assert not await empty()
        assert await _read(client, unread, 1) == [b"9"]
        await eventually(empty, _WAIT_S)

        await nodes.rest("DELETE", f"/admin/v2/kafka/brokers/{victim}/drain")
        for topic in (unread, read):
            await nodes.call("DELETE", topic, params={"force": True})

    run_on(surveying_nodes, body)


async def _read(client: Client, topic: str, count: int) -> list[bytes]:
    """What a consumer of `billing` reads and acknowledges before it leaves."""
    values = []
    async with await client.subscribe(topic, "billing") as consumer:
        for _ in range(count):
            message = await consumer.receive(_WAIT_S)
            values.append(bytes(message.value))
            consumer.acknowledge(message)
        await consumer.flush(_WAIT_S)
    return values
