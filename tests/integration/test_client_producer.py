"""The SDK's producer on a real Kafka, while segments split and merge at moments of our choosing."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable

import pytest

from anabranch.channel.embedded.kafka import EmbeddedKafka
from anabranch.client import Client, Producer
from support.hand_made_topic import HandMadeTopic

pytestmark = pytest.mark.integration

_KEYS = [b"key-%d" % number for number in range(200)]


class Traffic:
    """Sends numbered values of all keys until it is stopped."""

    def __init__(self, producer: Producer, pause_s: float = 0.001) -> None:
        self.sent: dict[bytes, list[bytes]] = defaultdict(list)
        self._producer = producer
        self._pause_s = pause_s
        self._count = 0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            for key in _KEYS[:: 1 + self._count % 7]:
                self._count += 1
                value = b"%d" % self._count
                await self._producer.post(value, key)
                self.sent[key].append(value)
            await asyncio.sleep(self._pause_s)

    async def stop(self) -> dict[bytes, list[bytes]]:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._producer.flush(30)
        return dict(self.sent)


Body = Callable[[HandMadeTopic, Client], Awaitable[None]]


def run(kafka: EmbeddedKafka, prefix: str, body: Body, segments: int = 1, buckets: int = 4) -> None:
    async def test() -> None:
        async with (
            HandMadeTopic(
                prefix, kafka.bootstrap_servers, segments=segments, buckets=buckets
            ) as topic,
            Client(topic.url) as client,
        ):
            await body(topic, client)

    asyncio.run(test())


def test_a_message_comes_back_with_where_it_is(kafka: EmbeddedKafka, topic_prefix: str) -> None:
    async def body(topic: HandMadeTopic, client: Client) -> None:
        producer = await client.create_producer("topic://public/default/orders")
        first = await producer.send(b"one", "key", event_time_ms=1_700_000_000_000)
        second = await producer.send(b"two", b"key", headers={"h": b"x"})

        assert (first.topic, first.offset, second.offset) == ("topic://public/default/orders", 0, 1)
        assert first.timestamp_ms == 1_700_000_000_000
        assert (first.segment_id, first.bucket) == (second.segment_id, second.bucket)
        messages = topic.read()[first.segment_id, first.bucket]
        assert [(m.key(), m.value()) for m in messages] == [(b"key", b"one"), (b"key", b"two")]
        assert ("h", b"x") in (messages[1].headers() or [])

    run(kafka, topic_prefix, body, segments=4)


def test_no_message_is_lost_repeated_or_reordered_by_splits_and_merges(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    async def body(topic: HandMadeTopic, client: Client) -> None:
        producer = await client.create_producer("public/default/orders")
        traffic = Traffic(producer)
        await asyncio.sleep(0.05)
        await topic.split(0)
        await topic.split(1)
        await topic.split(2)
        await topic.merge(3, 4)
        await asyncio.sleep(0.05)
        await topic.merge(5, 6)
        await asyncio.sleep(0.05)
        sent = await traffic.stop()
        assert topic.by_key() == sent

    run(kafka, topic_prefix, body)


def test_a_producer_that_hears_of_the_seal_only_from_kafka_waits_for_the_layout(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    async def body(topic: HandMadeTopic, client: Client) -> None:
        producer = await client.create_producer("public/default/orders")
        traffic = Traffic(producer)
        await asyncio.sleep(0.05)
        children = topic.layout.split_children(0)
        await topic.make(children)
        topic.parents, topic.children = (0,), children
        ends = await topic.seal()  # before any push
        await asyncio.sleep(0.05)
        topic.start_sealing()
        await asyncio.sleep(0.05)
        topic.commit(ends)
        await asyncio.sleep(0.05)
        sent = await traffic.stop()
        assert topic.by_key() == sent

    run(kafka, topic_prefix, body)
