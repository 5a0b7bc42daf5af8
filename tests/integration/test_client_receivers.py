"""Several receivers of one consumer, and checkpoints, on real nodes and a real Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterator

import pytest

from anabranch.channel.embedded.kafka import EmbeddedKafka
from anabranch.client.client import Client
from anabranch.client.errors import DeadlineError
from support.topic_cluster import TopicCluster, topic_cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

_COUNT = 1_000
_WAIT_S = 10.0
_names = (f"public/default/orders-{number}" for number in itertools.count())
Body = Callable[[TopicCluster, Client, str], Awaitable[None]]


@pytest.fixture(scope="module")
def cluster(
    kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TopicCluster]:
    folder = tmp_path_factory.mktemp("nodes")
    with topic_cluster(kafka, f"{folder.name}.receivers.", folder) as running:
        yield running


def run(cluster: TopicCluster, body: Body) -> None:
    async def test() -> None:
        topic = next(_names)
        await cluster.create(topic, 2)
        async with Client(cluster.url) as client:
            producer = await client.create_producer(f"topic://{topic}")
            for number in range(_COUNT):
                await producer.post(b"%d" % number, f"k{number % 40}")
            await producer.close()
            await body(cluster, client, f"topic://{topic}")

    asyncio.run(asyncio.wait_for(test(), 25))


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
