"""Segments are moved to other brokers of Kafka over REST."""

from __future__ import annotations

from anabranch.core.topics.kafka_placement import Copies, KafkaSurvey
from support.commands import ran
from support.http import HttpNode, on_nodes
from support.memory_cluster import MemoryCluster
from support.scalable import TOPIC, refused
from support.there import there

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
    assert (await node.http.post(f"{TOPIC}/relocate/7")).status_code == 404  # it looks at Kafka
    (elsewhere,) = await ran(str(node.http.base_url), f"topics relocate {name} --off 3")
    assert "has a copy on broker 3" in elsewhere.output
