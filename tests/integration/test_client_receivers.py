"""Several receivers of one consumer, and checkpoints, on real nodes and a real Kafka."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from anabranch.client import Client, DeadlineError
from support.topic_cluster import Body, TopicCluster, run_on

pytestmark = pytest.mark.integration

_COUNT = 1_000
_WAIT_S = 40.0


def run(cluster: TopicCluster, body: Body) -> None:
    async def filled(cluster: TopicCluster, client: Client, topic: str) -> None:
        producer = await client.create_producer(f"topic://{topic}")
        for number in range(_COUNT):
            await producer.post(b"%d" % number, f"k{number % 40}")
        await producer.close()
        await body(cluster, client, f"topic://{topic}")

    run_on(cluster, filled, 2)


def test_several_receive_from_one_consumer_and_each_message_comes_once(
    cluster: TopicCluster,
) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        consumer = await client.subscribe(topic, "billing")
        seen: list[tuple[int, int, int]] = []

        async def receive() -> None:
            while len(seen) < _COUNT:
                with contextlib.suppress(DeadlineError):
                    message = await consumer.receive(0.5)
                    seen.append((message.segment_id, message.bucket, message.offset))

        await asyncio.gather(*(receive() for _ in range(3)))
        assert len(set(seen)) == len(seen) == _COUNT

    run(cluster, body)


def test_a_checkpoint_begins_with_the_one_that_was_given(cluster: TopicCluster) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        async with await client.subscribe_checkpoint(topic, "lake") as first:
            for _ in range(_COUNT):
                await first.receive(_WAIT_S)
            given = first.checkpoint()
        async with await client.subscribe_checkpoint(topic, "lake", checkpoint=given) as second:
            assert second.checkpoint() == given

    run(cluster, body)
