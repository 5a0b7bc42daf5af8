"""Where a queue subscription puts what nobody could process: set by REST and by consumers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from anabranch.wire import anabranch_pb2 as pb
from support import steady
from support.binary_consumer import client_of
from support.http import PATIENT, HttpNode, with_http
from support.memory_cluster import MemoryCluster, memory_cluster
from support.scalable import HOME, TOPIC, created, refused

NAME = "public/default/orders"
JOBS = f"{TOPIC}/subscriptions/jobs"
POLICY = f"{JOBS}/deadLetterPolicy"
DLQ = "topic://public/default/orders-jobs-DLQ"
QUEUE = pb.ScalableConsumerType.QUEUE


async def _queue(node: HttpNode) -> None:
    await created(node)
    assert (await node.http.put(JOBS, params={"type": "QUEUE"})).status_code == 204


def test_a_policy_makes_its_topic_and_is_told_changed_and_removed() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        http = nodes[0].http
        await _queue(nodes[0])
        assert (await http.get(POLICY)).status_code == 204
        assert (await http.put(POLICY, json={})).status_code == 204
        assert (await http.get(POLICY)).json() == {"deadLetterTopic": DLQ, "maxDeliveries": 5}
        assert DLQ in (await http.get(HOME)).json()
        other = {"deadLetterTopic": "public/default/aside", "maxDeliveries": 9}
        assert (await http.put(POLICY, json=other)).status_code == 204
        assert (await http.put(POLICY, json=other)).status_code == 204, "again changes nothing"
        stats = (await http.get(f"{TOPIC}/stats")).json()["subscriptions"]["jobs"]
        assert stats["deadLetterTopic"] == "topic://public/default/aside"
        assert stats["maxDeliveries"] == 9
        assert (await http.delete(POLICY)).status_code == 204
        assert (await http.get(POLICY)).status_code == 204

    with_http(test)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"maxDeliveries": 0}, "1 to 9"),
        ({"maxDeliveries": 10}, "Kafka discards it after 10"),
        ({"deadLetterTopic": NAME}, "its own topic"),
        ({"deadLetterTopic": "persistent://public/default/a"}, "not a scalable topic"),
        ({"deadLetterTopic": "a b"}, "tenant/namespace/topic"),
    ],
)
def test_a_policy_that_could_lose_messages_is_refused(policy: dict[str, Any], said: str) -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await _queue(nodes[0])
        refused(await nodes[0].http.put(POLICY, json=policy), 412, said)
        assert (await nodes[0].http.get(POLICY)).status_code == 204

    with_http(test)


def test_what_is_no_queue_or_not_there_gets_none() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        http = nodes[0].http
        await created(nodes[0])
        refused(await http.put(POLICY, json={}), 404, "Subscription not found: jobs")
        assert (await http.put(JOBS, params={"type": "STREAM"})).status_code == 204
        refused(await http.put(POLICY, json={}), 412, "only those of type QUEUE")
        lost = {"deadLetterTopic": "public/nowhere/aside"}
        assert (await http.put(f"{JOBS}-2", params={"type": "QUEUE"})).status_code == 204
        refused(await http.put(f"{JOBS}-2/deadLetterPolicy", json=lost), 404, "public/nowhere")

    with_http(test)


def _run(test: Callable[[MemoryCluster], Awaitable[None]]) -> None:
    async def body() -> None:
        async with memory_cluster(1, **{**PATIENT, "brokerServicePort": 7000}) as cluster:
            await cluster.nodes[0].operations.topics.access.find_controller(NAME)
            await cluster.nodes[0].operations.topics.create(NAME, 1, {})
            await test(cluster)

    steady.run(body())


def test_a_consumer_brings_a_policy_along_and_others_are_told_of_it() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        async with client_of(node, "a") as first, client_of(node, "b") as second:
            before = await first.subscribe(kind=QUEUE, subscription="jobs")
            assert not before.assignment.HasField("dead_letter")
            policy = pb.DeadLetterPolicy(deliveries_max=3)
            answer = await second.subscribe(kind=QUEUE, subscription="jobs", dead_letter=policy)
            told = answer.assignment.dead_letter
            assert (told.topic, told.deliveries_max) == (DLQ, 3)
            again = await first.subscribe(kind=QUEUE, subscription="jobs")
            assert again.assignment.dead_letter == told
        assert node.view.topic("public/default/orders-jobs-DLQ") is not None

    _run(test)


def test_a_consumer_of_another_kind_that_brings_one_is_refused() -> None:
    async def test(cluster: MemoryCluster) -> None:
        async with client_of(cluster.nodes[0], "a") as client:
            policy = pb.DeadLetterPolicy(deliveries_max=3)
            refusal = await client.refused(subscription="jobs", dead_letter=policy)
            assert "only those of type QUEUE" in refusal.reason
            spoilt = pb.DeadLetterPolicy(deliveries_max=10)
            refusal = await client.refused(kind=QUEUE, subscription="jobs", dead_letter=spoilt)
            assert "Kafka discards it after 10" in refusal.reason
            assert cluster.nodes[0].view.subscription(NAME, "jobs") is None, "nothing is made"

    _run(test)
