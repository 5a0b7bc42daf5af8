"""Where a queue subscription puts what nobody could process: set by REST and by consumers."""

from __future__ import annotations

from typing import Any

from anabranch.wire import anabranch_pb2 as pb
from support.binary_consumer import client_of
from support.http import http_nodes
from support.kept_topic import NAME, kept_topic
from support.scalable import HOME, TOPIC, created, refused

JOBS = f"{TOPIC}/subscriptions/jobs"
POLICY = f"{JOBS}/deadLetterPolicy"
DLQ = "topic://public/default/orders-jobs-DLQ"
QUEUE = pb.ScalableConsumerType.QUEUE


async def test_a_policy_makes_its_topic_and_is_told_changed_and_removed() -> None:
    async with http_nodes() as (nodes, _):
        http = nodes[0].http
        await created(nodes[0])
        assert (await http.put(JOBS, params={"type": "QUEUE"})).status_code == 204
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


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"maxDeliveries": 0}, "1 to 9"),
    ({"maxDeliveries": 10}, "Kafka discards it after 10"),
    ({"deadLetterTopic": NAME}, "its own topic"),
    ({"deadLetterTopic": "persistent://public/default/a"}, "not a scalable topic"),
    ({"deadLetterTopic": "a b"}, "tenant/namespace/topic"),
)


async def test_a_stream_has_dead_letters_whose_attempts_its_consumers_count() -> None:
    async with http_nodes() as (nodes, _):
        http = nodes[0].http
        await created(nodes[0])
        assert (await http.put(JOBS, params={"type": "STREAM"})).status_code == 204
        refused(await http.put(POLICY, json={"maxDeliveries": 3}), 412, "Retry.attempts_max")
        assert (await http.put(POLICY, json={})).status_code == 204
        assert (await http.get(POLICY)).json() == {"deadLetterTopic": DLQ, "maxDeliveries": 0}
        assert (await http.delete(POLICY)).status_code == 204
        assert (await http.get(POLICY)).status_code == 204


async def test_a_policy_that_could_lose_messages_or_be_used_by_nobody_is_refused() -> None:
    async with http_nodes() as (nodes, _):
        http = nodes[0].http
        await created(nodes[0])
        refused(await http.put(POLICY, json={}), 404, "Subscription not found: jobs")
        assert (await http.put(JOBS, params={"type": "CHECKPOINT"})).status_code == 204
        refused(await http.put(POLICY, json={}), 412, "only queues and streams")
        lost = {"deadLetterTopic": "public/nowhere/aside"}
        assert (await http.put(f"{JOBS}-2", params={"type": "QUEUE"})).status_code == 204
        policy = f"{JOBS}-2/deadLetterPolicy"
        refused(await http.put(policy, json=lost), 404, "public/nowhere")
        for given, said in REFUSED:
            refused(await http.put(policy, json=given), 412, said)
        assert (await http.get(policy)).status_code == 204


async def test_a_consumer_brings_a_policy_along_and_others_are_told_of_it() -> None:
    async with kept_topic() as kept:
        async with client_of(kept.node, "a") as first, client_of(kept.node, "b") as second:
            before = await first.subscribe(kind=QUEUE, subscription="jobs")
            assert not before.assignment.HasField("dead_letter")
            policy = pb.DeadLetterPolicy(deliveries_max=3)
            answer = await second.subscribe(kind=QUEUE, subscription="jobs", dead_letter=policy)
            told = answer.assignment.dead_letter
            assert (told.topic, told.deliveries_max) == (DLQ, 3)
            again = await first.subscribe(kind=QUEUE, subscription="jobs")
            assert again.assignment.dead_letter == told
        assert kept.node.view.topic("public/default/orders-jobs-DLQ") is not None


async def test_a_consumer_of_another_kind_that_brings_one_is_refused() -> None:
    async with kept_topic() as kept, client_of(kept.node, "a") as client:
        policy = pb.DeadLetterPolicy(deliveries_max=3)
        refusal = await client.refused(
            kind=pb.ScalableConsumerType.CHECKPOINT, subscription="jobs", dead_letter=policy
        )
        assert "only queues and streams" in refusal.reason
        refusal = await client.refused(subscription="jobs", dead_letter=policy)
        assert "Retry.attempts_max" in refusal.reason
        spoilt = pb.DeadLetterPolicy(deliveries_max=10)
        refusal = await client.refused(kind=QUEUE, subscription="jobs", dead_letter=spoilt)
        assert "Kafka discards it after 10" in refusal.reason
        assert kept.node.view.subscription(NAME, "jobs") is None, "nothing is made"
