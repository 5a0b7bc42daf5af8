"""Segments are moved to other brokers of Kafka over REST, and brokers drained."""

from __future__ import annotations

import asyncio

from anabranch.core.placement.room import Copies, KafkaSurvey
from support.commands import ran
from support.http import HttpNode, on_nodes
from support.memory_cluster import MemoryCluster
from support.scalable import TOPIC, refused
from support.there import there
from support.waiting import eventually

THREE = {1: "", 2: "", 3: ""}


async def created(node: HttpNode, *leaders: int) -> None:
    """A topic of one segment, whose buckets have these leaders."""
    assert (await node.http.put(TOPIC, params={"numInitialSegments": 1})).status_code == 204
    (home,) = node.cluster.segments.partitions
    incarnation = int(home.rpartition(".")[2])
    copies = tuple(Copies(leader, (leader, leader % 3 + 1)) for leader in leaders)
    node.cluster.kafka.survey = KafkaSurvey(THREE, {(incarnation, 0): copies})


@on_nodes(replicationFactor=1, minInsyncReplicas=1)
async def test_a_segment_leaves_the_brokers_named(node: HttpNode, cluster: MemoryCluster) -> None:
    await created(node, 1, 2)
    stats = (await node.http.get(f"{TOPIC}/stats")).json()["segments"]["0"]
    assert stats["kafkaLeaders"] == []  # before a look
    assert (await node.http.post(f"{TOPIC}/relocate/0")).status_code == 204
    room = there(cluster.segments.rooms[-1])
    assert room.off == {1, 2}
    body = (await node.http.get(TOPIC)).json()["segments"]
    assert [each["state"] for each in body.values()] == ["SEALED", "ACTIVE"]
    assert body["1"]["hashRange"] == body["0"]["hashRange"]
    assert body["1"]["entryBucketSplits"] == body["0"]["entryBucketSplits"]
    stats = (await node.http.get(f"{TOPIC}/stats")).json()["segments"]["0"]
    assert (stats["kafkaLeaders"], stats["kafkaReplicas"]) == ([1, 2], [1, 2, 3])
    assert (await node.http.post(f"{TOPIC}/relocate/1", params={"off": 3})).status_code == 204
    room = there(cluster.segments.rooms[-1])
    assert room.off == {3}


@on_nodes(replicationFactor=1, minInsyncReplicas=1)
async def test_a_relocation_that_cannot_be_is_refused_by_name(node: HttpNode) -> None:
    where = f"{TOPIC}/relocate/0"
    await created(node, 1)
    refused(await node.http.post(where, params={"off": 9}), 404, "no broker 9: it has 1, 2, 3")
    refused(await node.http.post(where, params={"off": [1, 2, 3]}), 412, "0 of Kafka's live")
    refused(await node.http.post(where, params={"off": -1}), 400, "off")
    refused(await node.http.post(f"{TOPIC}/relocate/7"), 404, "Segment not found: 7")
    node.cluster.kafka.survey = KafkaSurvey({1: ""})
    refused(await node.http.post(where), 412, "Kafka has one broker, 1")
    node.cluster.kafka.survey = None
    refused(await node.http.post(where), 503, "does not say which brokers it has")


@on_nodes(replicationFactor=1, minInsyncReplicas=1)
async def test_the_command_leaves_to_the_node_what_it_cannot_know(node: HttpNode) -> None:
    name = TOPIC.removeprefix("/admin/v2/scalable/")
    await created(node, 1)
    survey = node.cluster.kafka.survey
    node.cluster.kafka.survey = KafkaSurvey({1: ""})
    (alone,) = await ran(str(node.http.base_url), f"topics relocate {name} --off 1")
    assert alone.exit_code == 1
    assert "Kafka has one broker, 1: segments can lie nowhere else" in alone.errors
    node.cluster.kafka.survey = survey
    assert (await node.http.get("/admin/v2/kafka/brokers")).status_code == 200
    (elsewhere,) = await ran(str(node.http.base_url), f"topics relocate {name} --off 3")
    assert "has a copy on broker 3" in elsewhere.output


DRAIN = "/admin/v2/kafka/brokers/{}/drain"


@on_nodes(replicationFactor=1, minInsyncReplicas=1)
async def test_a_broker_of_kafka_is_drained_and_given_back(node: HttpNode) -> None:
    await created(node, 1, 2)
    survey = node.cluster.kafka.survey
    (home,) = node.cluster.segments.partitions
    assert (await node.http.put(DRAIN.format(2))).status_code == 204
    assert (await node.http.put(DRAIN.format(2))).status_code == 204

    async def left() -> bool:
        return home in node.cluster.segments.sealed

    await eventually(left)
    room = there(node.cluster.segments.rooms[-1])
    assert room.off == room.drained == {2}
    assert survey is not None
    rows = (await node.http.get("/admin/v2/kafka/brokers")).json()
    assert [(row["brokerId"], row["drained"]) for row in rows] == [
        (1, False),
        (2, True),
        (3, False),
    ]
    # The survey says nothing of the new segment yet; the old one is sealed.
    assert [row["activeReplicas"] for row in rows] == [0, 0, 0]
    assert [row["sealedLeaders"] for row in rows] == [1, 1, 0]
    assert [row["sealedReplicas"] for row in rows] == [1, 2, 1]
    assert (await node.http.delete(DRAIN.format(2))).status_code == 204
    refused(await node.http.delete(DRAIN.format(2)), 404, "broker 2 of Kafka is not drained")


@on_nodes(2, replicationFactor=2, minInsyncReplicas=1)
async def test_drains_at_the_same_time_do_not_leave_too_few_brokers(nodes: list[HttpNode]) -> None:
    nodes[0].cluster.kafka.survey = KafkaSurvey(THREE)
    drains = (node.http.put(DRAIN.format(3 - at)) for at, node in enumerate(nodes))
    answers = await asyncio.gather(*drains)
    assert {each.status_code for each in answers} <= {204, 412}
    assert any("1 of Kafka's live brokers would be left" in each.text for each in answers)
    rows = (await nodes[0].http.get("/admin/v2/kafka/brokers")).json()
    assert sum(row["drained"] for row in rows) <= 1


@on_nodes(replicationFactor=2, minInsyncReplicas=1)
async def test_a_drain_that_cannot_be_is_refused_by_name(node: HttpNode) -> None:
    refused(await node.http.put(DRAIN.format(1)), 412, "Kafka has one broker, 1")
    node.cluster.kafka.survey = KafkaSurvey(THREE)
    refused(await node.http.put(DRAIN.format(9)), 404, "no broker 9: it has 1, 2, 3")
    assert (await node.http.put(DRAIN.format(3))).status_code == 204
    refused(await node.http.put(DRAIN.format(2)), 412, "1 of Kafka's live brokers would be left")
    node.cluster.kafka.survey = None
    refused(await node.http.get("/admin/v2/kafka/brokers"), 503, "which brokers it has")
