"""Backlogs, and putting subscriptions somewhere else, through HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from anabranch.broker.topics.operations import TopicOperations
from anabranch.channel.errors import KafkaAccessError, KafkaUnreachableError
from anabranch.core.names import Namespace
from anabranch.core.topic_lists.sorted_names import SortedNames
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter
from support.binary_consumer import client_of
from support.http import HttpNode, with_http
from support.memory_cluster import MemoryCluster, until
from support.scalable import (
    BILLING,
    TOPIC,
    billing,
    created,
    refused,
    split_with_records,
    stats,
)

SERVED = {"brokerServicePort": 7000}


async def subscribed(node: HttpNode, kind: str = "STREAM") -> str:
    """The subscription's Kafka group."""
    answer = await node.http.put(BILLING, params={"type": kind})
    assert answer.status_code == 204, answer.text
    return str((await billing(node))["groupId"])


async def seek(node: HttpNode, **params: Any) -> None:
    answer = await node.http.post(f"{BILLING}/seek", params=params)
    assert (answer.status_code, answer.content) == (204, b""), answer.text


def test_the_backlog_is_what_kafka_holds_and_the_group_has_not_committed() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        parent, first, _ = await split_with_records(nodes[0], cluster)
        group = await subscribed(nodes[0])
        cluster.positions.groups[group] = {(parent, 0): 5, (parent, 1): 1, (first, 0): 2}
        cluster.positions.begins = {(parent, 2): 4}
        cluster.segments.ends[parent][3] = 9  # a probe of a sealed segment is no message
        await nodes[0].http.put(f"{TOPIC}/subscriptions/another")  # so that it is asked anew
        found = await billing(nodes[0])
        assert found["segments"] == {"0": 0 + 4 + 1 + 5, "1": 1 + 3, "2": 6}
        assert (found["msgBacklog"], found["backlogUnknown"]) == (20, "")
        answer = await nodes[0].http.get(f"{TOPIC}/segments/1/stats")
        assert answer.status_code == 200
        body = answer.json()
        del body["load"]
        assert body == {
            "hashRange": {"start": 0, "end": 32767},
            "name": "segment://public/default/orders/0000-7fff-1",
            "state": "ACTIVE",
            "kafkaTopic": first,
            "entryBuckets": 2,
            "kafkaLeaders": [],
            "kafkaReplicas": [],
            "segmentId": 1,
            "parentIds": [0],
            "childIds": [],
            "subscriptions": {"another": 6, "billing": 4},
        }
        refused(await nodes[0].http.get(f"{TOPIC}/segments/9/stats"), 404, "Segment not found: 9")

    with_http(test)


def test_kafka_is_asked_once_for_many_who_want_to_know_at_once() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await created(nodes[0])
        await nodes[0].http.put(BILLING)
        for _ in range(5):
            await stats(nodes[0])
        assert cluster.positions.calls.count("committed") == 1

    with_http(test)


def test_a_backlog_that_only_kafka_knows_is_said_to_be_unknown() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await created(nodes[0])
        await subscribed(nodes[0], "QUEUE")
        found = await billing(nodes[0])
        assert (found["msgBacklog"], found["segments"]) == (None, {"0": None})
        assert "kafka-share-groups.sh" in found["backlogUnknown"]

    with_http(test)


def test_the_backlog_of_a_checkpoint_subscription_is_what_its_consumers_have_not_saved() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await created(nodes[0])
        (kafka,) = cluster.segments.ends
        cluster.segments.ends[kafka] = [5, 5, 0, 0]
        group = await subscribed(nodes[0], "CHECKPOINT")
        cluster.positions.groups[group] = {(kafka, 0): 3}
        await nodes[0].http.put(f"{TOPIC}/subscriptions/another")  # so that it is asked anew
        assert (await billing(nodes[0]))["msgBacklog"] == 2 + 5

    with_http(test)


def test_a_kafka_that_does_not_answer_makes_the_backlog_unknown_and_nothing_else() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await created(nodes[0])
        cluster.positions.failure = KafkaUnreachableError("Kafka does not answer")
        await nodes[0].http.put(BILLING)
        found = await stats(nodes[0])
        assert found["activeSegments"] == 1
        assert found["subscriptions"]["billing"]["msgBacklog"] is None
        assert found["subscriptions"]["billing"]["backlogUnknown"] == "Kafka does not answer"

    with_http(test)


def test_statistics_are_told_by_the_controller_which_is_found_when_there_is_none() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await created(nodes[0])
        unit = next(n for n, _ in nodes[0].node.operations.owned(nodes[0].id) if "0x" in n)
        await nodes[0].node.operations.unload(unit)
        assert not [n for n, _ in nodes[0].node.operations.owned(nodes[0].id) if "0x" in n]
        assert (await stats(nodes[0]))["activeSegments"] == 1
        assert unit in [n for n, _ in nodes[0].node.operations.owned(nodes[0].id)]

    with_http(test)


def test_a_seek_to_a_time_begins_every_bucket_at_its_first_message_of_it() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await split_with_records(nodes[0], cluster)
        former = await subscribed(nodes[0])
        await seek(nodes[0], timestamp=2)
        group = (await billing(nodes[0]))["groupId"]
        assert group != former
        assert cluster.positions.groups == {}  # the log says where it begins, at once
        await until(lambda: former in cluster.segments.deleted_groups)
        assert (await billing(nodes[0]))["segments"] == {"0": 12, "1": 2, "2": 2}

        await seek(nodes[0], timestamp=4)  # the children have nothing as late
        found = await billing(nodes[0])
        assert found["segments"] == {"0": 4, "1": 0, "2": 0}
        assert found["drainedSegments"] == []

        await seek(nodes[0], timestamp=5)  # nor has the parent
        assert (await billing(nodes[0]))["drainedSegments"] == [0]

        await seek(nodes[0], position="earliest")
        found = await billing(nodes[0])
        assert (found["msgBacklog"], found["drainedSegments"]) == (32, [])

    with_http(test)


def test_skipping_everything_leaves_nothing_to_read_but_what_comes_later() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        _, first, _ = await split_with_records(nodes[0], cluster)
        await subscribed(nodes[0])
        answer = await nodes[0].http.post(f"{BILLING}/skip-all")
        assert (answer.status_code, answer.content) == (204, b"")
        cluster.segments.ends[first][1] += 2
        found = await billing(nodes[0])
        assert found["segments"] == {"0": 0, "1": 2, "2": 0}
        assert found["drainedSegments"] == [0]

    with_http(test)


def test_consumers_of_a_subscription_that_is_put_elsewhere_begin_there_in_its_new_group() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        node = nodes[0]
        await split_with_records(node, cluster)
        async with client_of(node.node, "a") as client:
            await client.subscribe()
            former = client.assigned[-1].group_id
            await client.report(drained={0: [0, 1, 2, 3]})
            await until(lambda: client.held == {1: [0, 1], 2: [0, 1]})
            await seek(node, timestamp=1)
            await until(lambda: bool(client.closed))
            assert "put somewhere else" in client.closed[0]
            await client.subscribe(holdings={1: [0, 1], 2: [0, 1]}, group=former)
            assert client.assigned[-1].group_id != former
            assert client.held == {0: [0, 1, 2, 3]}
            assert (await billing(node))["consumers"] == [{"consumerName": "a", "connected": True}]

    with_http(test, **SERVED)


def test_a_queue_is_put_anywhere_while_nobody_consumes_it() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await split_with_records(nodes[0], cluster)
        former = await subscribed(nodes[0], "QUEUE")
        await seek(nodes[0], position="earliest")
        first = (await billing(nodes[0]))["groupId"]
        assert first != former
        assert cluster.segments.share_groups == {former, first}
        assert first not in cluster.positions.queues  # Kafka's own setting says it
        answer = await nodes[0].http.post(f"{BILLING}/skip-all")
        assert answer.status_code == 204, answer.text
        found = await billing(nodes[0])
        assert found["groupId"] not in (former, first)
        assert found["drainedSegments"] == [0]
        assert {left for _, left in cluster.positions.queues[found["groupId"]].values()} == {0}
        cluster.positions.told = False  # SASL guards Kafka
        refused(await nodes[0].http.post(f"{BILLING}/skip-all"), 412, "kafka-share-groups.sh")
        assert (await billing(nodes[0]))["groupId"] == found["groupId"]
        async with client_of(nodes[0].node, "a") as client:
            await client.subscribe(kind=pb.ScalableConsumerType.QUEUE)
            answer = await nodes[0].http.post(f"{BILLING}/seek", params={"position": "earliest"})
            refused(answer, 409, "close a first")
            assert (await billing(nodes[0]))["groupId"] == found["groupId"]

    with_http(test, **SERVED)


def test_a_seek_that_cannot_be_done_changes_nothing_and_says_why() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        http = nodes[0].http
        refused(await http.post(f"{BILLING}/skip-all"), 404, "Scalable topic not found")
        await created(nodes[0])
        refused(await http.post(f"{BILLING}/skip-all"), 404, "Subscription not found: billing")
        former = await subscribed(nodes[0])
        refused(await http.post(f"{BILLING}/seek"), 412, "timestamp=")
        both = f"{BILLING}/seek?timestamp=1&position=latest"
        refused(await http.post(both), 412, "timestamp=")
        refused(await http.post(f"{BILLING}/seek", params={"timestamp": "noon"}), 400, "timestamp")
        refused(await http.post(f"{BILLING}/seek", params={"position": "here"}), 404, "position")
        cluster.positions.failure = KafkaUnreachableError("Kafka does not answer")
        refused(await http.post(f"{BILLING}/skip-all"), 503, "Kafka does not answer")
        denied = KafkaAccessError("kafka:9092", "to find offsets of topic t", "denied")
        cluster.positions.failure = denied
        refused(await http.post(f"{BILLING}/skip-all"), 500, "Give this node's principal")
        cluster.positions.failure = None
        assert (await billing(nodes[0]))["groupId"] == former
        checkpoint = f"{TOPIC}/subscriptions/own"
        await http.put(checkpoint, params={"type": "CHECKPOINT"})
        refused(await http.post(f"{checkpoint}/skip-all"), 412, "keep their positions themselves")

    with_http(test)


def test_a_queue_whose_new_group_cannot_be_made_yet_is_put_elsewhere_all_the_same() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await created(nodes[0])
        former = await subscribed(nodes[0], "QUEUE")
        cluster.segments.failure = KafkaUnreachableError("Kafka does not answer")
        answer = await nodes[0].http.post(f"{BILLING}/seek", params={"position": "earliest"})
        refused(answer, 503, "begins there once Kafka has made its group: Kafka does not answer")
        cluster.segments.failure = None
        assert (await billing(nodes[0]))["groupId"] != former

    with_http(test)


def test_properties_are_set_and_removed_one_by_one() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        http = nodes[0].http
        path = f"{TOPIC}/properties"
        refused(await http.get(path), 404, "Scalable topic not found")
        refused(await http.put(path, json={"a": "b"}), 404, "Scalable topic not found")
        await created(nodes[0])
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

    with_http(test)


def test_other_nodes_send_these_requests_on_to_the_controller() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        answers = [await n.http.put(TOPIC, params={"numInitialSegments": 1}) for n in nodes]
        assert sorted(answer.status_code for answer in answers) in ([204, 307], [307, 409])
        other = next(n for n, answer in zip(nodes, answers, strict=True) if answer.is_redirect)
        for verb, path in (
            ("GET", f"{TOPIC}/stats"),
            ("GET", f"{TOPIC}/segments/0/stats"),
            ("POST", f"{BILLING}/skip-all"),
            ("POST", f"{BILLING}/seek?timestamp=5"),
            ("PUT", f"{TOPIC}/properties"),
        ):
            answer = await other.http.request(verb, path, json={} if verb == "PUT" else None)
            assert answer.status_code == 307, (path, answer.text)
            assert answer.headers["Location"].endswith(path)

    with_http(test, 2)


def test_a_subscription_of_a_single_segment_is_the_topics() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        http = nodes[0].http
        segment = TOPIC.replace("scalable", "segments") + "/0000-ffff-0/subscription"
        refused(await http.put(f"{segment}/billing"), 404, "Scalable topic not found")
        await created(nodes[0])
        (kafka,) = cluster.segments.ends
        cluster.segments.ends[kafka] = [2, 1, 0, 0]
        refused(await http.put(f"{segment}/billing"), 412, "create it on the topic")
        refused(await http.get(f"{segment}/billing/backlog"), 404, "Subscription not found on seg")
        refused(await http.post(f"{segment}/billing/seek?timestamp=1"), 404, "not found on seg")
        assert (await http.delete(f"{segment}/billing")).status_code == 204
        await subscribed(nodes[0])
        assert (await http.put(f"{segment}/billing")).status_code == 204
        assert (await http.get(f"{segment}/billing/backlog")).json() == 3
        refused(await http.delete(f"{segment}/billing"), 412, "delete it on the topic")
        refused(await http.post(f"{segment}/billing/seek?timestamp=1"), 412, "on the topic")
        refused(await http.post(f"{segment}/billing/skip-all"), 412, "on the topic")
        assert (await http.post(f"{BILLING}/skip-all")).status_code == 204
        assert (await http.post(f"{segment}/billing/skip-all")).status_code == 204
        other = segment.replace("0000-ffff-0", "0000-7fff-1")
        refused(await http.get(f"{other}/billing/backlog"), 404, "Segment topic not found")
        await http.put(f"{TOPIC}/subscriptions/queue", params={"type": "QUEUE"})
        refused(await http.get(f"{segment}/queue/backlog"), 503, "kafka-share-groups.sh")

    with_http(test)


def test_the_backlogs_of_a_whole_bundle_are_cleared_and_its_subscriptions_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real_names = TopicOperations.names

    async def names_and_one_that_is_gone(
        topics: TopicOperations,
        ns: Namespace,
        wanted: Iterable[tuple[str, str]],
        limiter: AsyncDualMemoryLimiter,
    ) -> Callable[[], Awaitable[SortedNames]]:
        """One of them is deleted before its turn comes."""
        find = await real_names(topics, ns, wanted, limiter)

        async def found() -> SortedNames:
            return SortedNames(["topic://public/one/gone", *await find()])

        return found

    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        http = nodes[0].http
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
        for kafka in cluster.segments.ends:
            cluster.segments.ends[kafka] = [1, 1, 1, 1]

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

    with_http(test)
