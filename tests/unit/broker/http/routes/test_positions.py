"""Backlogs, and putting subscriptions somewhere else, through HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.broker.topics.operations import TopicOperations
from anabranch.channel.errors import KafkaAccessError, KafkaUnreachableError
from anabranch.wire import anabranch_pb2 as pb
from support.binary_consumer import client_of
from support.http import HttpNode, on_nodes
from support.memory_cluster import MemoryCluster
from support.scalable import BILLING, TOPIC, billing, created, refused, split_with_records, stats

SERVED = {"brokerServicePort": 7000}


async def subscribed(node: HttpNode, kind: str = "STREAM") -> str:
    """The subscription's Kafka group."""
    assert (await node.http.put(BILLING, params={"type": kind})).status_code == 204
    return str((await billing(node))["groupId"])


async def seek(node: HttpNode, **params: Any) -> None:
    answer = await node.http.post(f"{BILLING}/seek", params=params)
    assert (answer.status_code, answer.content) == (204, b""), answer.text


@on_nodes()
async def test_the_backlog_is_what_kafka_holds_and_the_group_has_not_committed(
    node: HttpNode, cluster: MemoryCluster
) -> None:
    parent, first, _ = await split_with_records(node)
    group = await subscribed(node)
    cluster.positions.groups[group] = {(parent, 0): 5, (parent, 1): 1, (first, 0): 2}
    cluster.positions.begins = {(parent, 2): 4}
    cluster.segments.ends[parent][3] = 9  # a probe of a sealed segment is no message
    await node.http.put(f"{TOPIC}/subscriptions/another")  # so that it is asked anew
    found = await billing(node)
    assert found["segments"] == {"0": 0 + 4 + 1 + 5, "1": 1 + 3, "2": 6}
    assert found["positions"] == {"0": [5, 1, 0, 0], "1": [2, 0], "2": [0, 0]}
    assert (found["msgBacklog"], found["backlogUnknown"]) == (20, "")
    answer = await node.http.get(f"{TOPIC}/segments/1/stats")
    assert answer.status_code == 200
    body = answer.json()
    del body["load"]
    assert body == {
        "hashRange": {"start": 0, "end": 32767},
        "name": "segment://public/default/orders/0000-7fff-1",
        "state": "ACTIVE",
        "kafkaTopic": first,
        "entryBuckets": 2,
        "openTransactions": [],
        "openTransactionsUnknown": "",
        "findings": [],
        "segmentId": 1,
        "parentIds": [0],
        "childIds": [],
        "subscriptions": {"another": 6, "billing": 4},
    }
    refused(await node.http.get(f"{TOPIC}/segments/9/stats"), 404, "Segment not found: 9")


@on_nodes()
async def test_open_transactions_of_what_is_sealed_and_unread_are_told(
    node: HttpNode, cluster: MemoryCluster
) -> None:
    parent, first, _ = await split_with_records(node)
    cluster.positions.transactions = {(parent, 1): 2, (first, 0): 1}
    assert (await stats(node))["segments"]["0"]["openTransactions"] == []
    assert "held" not in cluster.positions.calls, "nobody has it to read"
    await subscribed(node)
    told = (await stats(node))["segments"]
    assert told["0"]["openTransactions"] == [{"bucket": 1, "startOffset": 2}]
    assert told["1"]["openTransactions"] == told["2"]["openTransactions"] == []
    cluster.positions.failure = KafkaUnreachableError("Kafka is away")
    assert (await stats(node))["openTransactionsUnknown"] == "Kafka is away"


@on_nodes()
async def test_an_unknown_backlog_has_its_reason(node: HttpNode, cluster: MemoryCluster) -> None:
    await created(node)
    (kafka,) = cluster.segments.ends
    cluster.segments.ends[kafka] = [5, 5, 0, 0]
    own = f"{TOPIC}/subscriptions/own"
    assert (await node.http.put(own, params={"type": "CHECKPOINT"})).status_code == 204
    group = (await stats(node))["subscriptions"]["own"]["groupId"]
    cluster.positions.groups[group] = {(kafka, 0): 3}
    await subscribed(node, "QUEUE")
    cluster.positions.calls.clear()
    for _ in range(5):
        found = await stats(node)
    assert cluster.positions.calls.count("committed") <= 1
    assert found["subscriptions"]["own"]["msgBacklog"] == 2 + 5
    queue = found["subscriptions"]["billing"]
    assert (queue["msgBacklog"], queue["segments"]) == (None, {"0": None})
    assert "kafka-share-groups.sh" in queue["backlogUnknown"]
    cluster.positions.failure = KafkaUnreachableError("Kafka does not answer")
    await node.http.put(f"{TOPIC}/subscriptions/another")  # so that it is asked anew
    found = await stats(node)
    assert found["activeSegments"] == 1
    another = found["subscriptions"]["another"]
    assert (another["msgBacklog"], another["backlogUnknown"]) == (None, "Kafka does not answer")


@on_nodes()
async def test_statistics_are_told_by_the_controller_that_is_found(node: HttpNode) -> None:
    await created(node)
    unit = next(n for n, _ in node.node.operations.owned(node.id) if "0x" in n)
    await node.node.operations.unload(unit)
    assert not [n for n, _ in node.node.operations.owned(node.id) if "0x" in n]
    assert (await stats(node))["activeSegments"] == 1
    assert unit in [n for n, _ in node.node.operations.owned(node.id)]
    assert not node.node.operations.topics.access.service.controllers()


@on_nodes()
async def test_a_seek_to_a_time_begins_every_bucket(node: HttpNode, cluster: MemoryCluster) -> None:
    await split_with_records(node)
    group = await subscribed(node)
    await seek(node, timestamp=2)
    assert (await billing(node))["groupId"] == group
    found = await billing(node)
    assert found["segments"] == {"0": 12, "1": 2, "2": 2}
    assert found["positions"]["0"] == [2, 2, 2, 2]

    await seek(node, timestamp=4)  # the children have nothing as late
    found = await billing(node)
    assert (found["segments"], found["drainedSegments"]) == ({"0": 4, "1": 0, "2": 0}, [])

    await seek(node, timestamp=5)  # nor has the parent
    assert (await billing(node))["drainedSegments"] == [0]

    await seek(node, position="earliest")
    found = await billing(node)
    assert (found["msgBacklog"], found["drainedSegments"]) == (32, [])


@on_nodes(**SERVED)
async def test_a_queue_is_put_anywhere_while_nobody_consumes_it(node: HttpNode) -> None:
    await split_with_records(node)
    former = await subscribed(node, "QUEUE")
    await seek(node, position="earliest")
    first = (await billing(node))["groupId"]
    assert first != former
    assert node.cluster.segments.share_groups == {former, first}
    assert first not in node.cluster.positions.queues  # Kafka's own setting says it
    assert (await node.http.post(f"{BILLING}/skip-all")).status_code == 204
    found = await billing(node)
    assert found["groupId"] not in (former, first)
    assert found["drainedSegments"] == [0]
    assert {left for _, left in node.cluster.positions.queues[found["groupId"]].values()} == {0}
    node.cluster.positions.told = False  # SASL guards Kafka
    refused(await node.http.post(f"{BILLING}/skip-all"), 412, "kafka-share-groups.sh")
    assert (await billing(node))["groupId"] == found["groupId"]
    async with client_of(node.node, "a") as client:
        await client.subscribe(kind=pb.ScalableConsumerType.QUEUE)
        answer = await node.http.post(f"{BILLING}/seek", params={"position": "earliest"})
        refused(answer, 409, "close a first")
        assert (await billing(node))["groupId"] == found["groupId"]


@on_nodes()
async def test_a_seek_that_cannot_be_done_changes_nothing_and_says_why(node: HttpNode) -> None:
    http = node.http
    refused(await http.post(f"{BILLING}/skip-all"), 404, "Scalable topic not found")
    await created(node)
    refused(await http.post(f"{BILLING}/skip-all"), 404, "Subscription not found: billing")
    former = await subscribed(node)
    refused(await http.post(f"{BILLING}/seek"), 412, "timestamp=")
    refused(await http.post(f"{BILLING}/seek?timestamp=1&position=latest"), 412, "timestamp=")
    refused(await http.post(f"{BILLING}/seek", params={"timestamp": "noon"}), 400, "timestamp")
    refused(await http.post(f"{BILLING}/seek", params={"position": "here"}), 404, "position")
    node.cluster.positions.failure = KafkaUnreachableError("Kafka does not answer")
    refused(await http.post(f"{BILLING}/skip-all"), 503, "Kafka does not answer")
    denied = KafkaAccessError("kafka:9092", "to find offsets of topic t", "denied")
    node.cluster.positions.failure = denied
    refused(await http.post(f"{BILLING}/skip-all"), 500, "Give this node's principal")
    node.cluster.positions.failure = None
    assert (await billing(node))["groupId"] == former
    checkpoint = f"{TOPIC}/subscriptions/own"
    await http.put(checkpoint, params={"type": "CHECKPOINT"})
    refused(await http.post(f"{checkpoint}/skip-all"), 412, "keep their positions themselves")


@on_nodes()
async def test_a_queue_whose_new_group_cannot_be_made_yet_is_put_elsewhere_all_the_same(
    node: HttpNode, cluster: MemoryCluster
) -> None:
    await created(node)
    former = await subscribed(node, "QUEUE")
    cluster.segments.failure = KafkaUnreachableError("Kafka does not answer")
    answer = await node.http.post(f"{BILLING}/seek", params={"position": "earliest"})
    refused(answer, 503, "begins there once Kafka has made its group: Kafka does not answer")
    cluster.segments.failure = None
    assert (await billing(node))["groupId"] != former


@on_nodes()
async def test_properties_are_set_and_removed_one_by_one(node: HttpNode) -> None:
    http = node.http
    path = f"{TOPIC}/properties"
    refused(await http.get(path), 404, "Scalable topic not found")
    refused(await http.put(path, json={"a": "b"}), 404, "Scalable topic not found")
    await created(node)
    assert (await http.put(path, json={"team": "blue", "tier": "1"})).status_code == 204
    assert (await http.put(path, json={"team": "red"})).status_code == 204
    assert (await http.get(path)).json() == {"team": "red", "tier": "1"}
    assert (await http.get(TOPIC)).json()["properties"] == {"team": "red", "tier": "1"}
    for _ in range(2):
        assert (await http.delete(path, params={"key": "tier"})).status_code == 204
    assert (await http.get(path)).json() == {"team": "red"}
    refused(await http.put(path, json={"big": "x" * 100_000}), 412, "properties have")
    refused(await http.put(path, json=["a"]), 400, "the body")
    refused(await http.delete(path), 400, "'key' is missing")


@on_nodes()
async def test_a_subscription_of_a_single_segment_is_the_topics(node: HttpNode) -> None:
    http = node.http
    segment = TOPIC.replace("scalable", "segments") + "/0000-ffff-0/subscription"
    refused(await http.put(f"{segment}/billing"), 404, "Scalable topic not found")
    await created(node)
    (kafka,) = node.cluster.segments.ends
    node.cluster.segments.ends[kafka] = [2, 1, 0, 0]
    refused(await http.get(f"{segment}/billing/backlog"), 404, "Subscription not found on seg")
    await subscribed(node)
    assert (await http.get(f"{segment}/billing/backlog")).json() == 3
    other = segment.replace("0000-ffff-0", "0000-7fff-1")
    refused(await http.get(f"{other}/billing/backlog"), 404, "Segment topic not found")
    await http.put(f"{TOPIC}/subscriptions/queue", params={"type": "QUEUE"})
    refused(await http.get(f"{segment}/queue/backlog"), 503, "kafka-share-groups.sh")


@on_nodes()
async def test_a_whole_bundle_s_backlogs_and_subscriptions(
    node: HttpNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    http, ends = node.http, node.cluster.segments.ends
    real_names = TopicOperations.names

    async def names_and_one_that_is_gone(*asked: Any) -> list[str]:
        """One of them is deleted before its turn comes."""
        return sorted(["topic://public/one/gone", *await real_names(*asked)])

    home = "/admin/v2/namespaces/public/default"
    whole = f"{home}/0x00000000_0xffffffff"
    refused(await http.post(f"{whole}/clearBacklog"), 412, "Cannot find bundle")
    await http.put("/admin/v2/namespaces/public/one", json={"numBundles": 1})
    whole = whole.replace("default", "one")
    scalable = "/admin/v2/scalable/public/one"
    for topic in ("a", "b"):
        assert (await http.put(f"{scalable}/{topic}")).status_code == 204
        for name in ("billing", "audit"):
            path = f"{scalable}/{topic}/subscriptions/{name}"
            assert (await http.put(path)).status_code == 204
    for kafka in ends:
        ends[kafka] = [1, 1, 1, 1]

    async def backlogs() -> list[dict[str, int]]:
        found = [(await http.get(f"{scalable}/{topic}/stats")).json() for topic in ("a", "b")]
        return [
            {name: each["msgBacklog"] for name, each in one["subscriptions"].items()}
            for one in found
        ]

    assert (await http.post(f"{whole}/clearBacklog/audit")).status_code == 204
    assert await backlogs() == [{"audit": 0, "billing": 4}] * 2
    assert (await http.post(f"{whole}/clearBacklog")).status_code == 204
    assert await backlogs() == [{"audit": 0, "billing": 0}] * 2
    monkeypatch.setattr(TopicOperations, "names", names_and_one_that_is_gone)
    for _ in range(2):
        assert (await http.post(f"{whole}/unsubscribe/audit")).status_code == 204
    assert await backlogs() == [{"billing": 0}] * 2
    await http.put(f"{scalable}/b/subscriptions/pool", params={"type": "QUEUE"})
    answer = await http.post(f"{whole}/clearBacklog")
    refused(answer, 412, "pool (QUEUE) of topic://public/one/b keep their positions elsewhere")
