"""The SDK's producer on a real Kafka, while segments split and merge at moments of our choosing."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from confluent_kafka.serialization import StringSerializer

from anabranch.client import (
    BufferFullError,
    Client,
    DeliveryError,
    MessageTooLargeError,
    Producer,
    SerializationError,
    TopicNotFoundError,
    sync,
)
from anabranch.client._producer import segment_writer
from anabranch.core.errors import InvalidInputError
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.wire.kafka import protocol
from support.broken_writer import break_for_good
from support.hand_made_topic import HandMadeTopic
from support.waiting import until

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


def test_what_a_sealed_segment_refused_arrives_as_it_was_sent(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    async def body(topic: HandMadeTopic, client: Client) -> None:
        producer = await client.create_producer("public/default/orders")
        for key in _KEYS:
            await producer.send(b"0", key)  # so that all that follows takes the short way
        children = topic.layout.split_children(0)
        await topic.make(children)
        topic.parents, topic.children = (0,), children
        ends = await topic.seal()  # before any push
        began_ms = int(time.time() * 1000)
        for number, key in enumerate(_KEYS, start=1):
            await producer.post(b"event %d" % number, key, event_time_ms=number)
            await producer.post(b"plain", key)
            await producer.post(b"", key)
            await producer.post(None, key)  # a tombstone
            await producer.post(b"named", key.decode(), headers={"h": b"x"})
        await producer.send_many((key, b"plain") for key in _KEYS)
        topic.start_sealing()
        topic.commit(ends)
        await producer.flush(30)

        there = [each for some in topic.read().values() for each in some if each.value() != b"0"]
        now_ms = int(time.time() * 1000)
        found = defaultdict(list)
        for message in there:
            found[message.key()].append(message.value())
            word, _, event_time = (message.value() or b"").partition(b" ")
            _, time_ms = message.timestamp()
            if word == b"event":
                assert time_ms == int(event_time)
            else:
                assert began_ms <= time_ms <= now_ms
            assert (("h", b"x") in (message.headers() or [])) == (word == b"named")
        for number, key in enumerate(_KEYS, start=1):
            sent = [b"event %d" % number, b"plain", b"", None, b"named", b"plain"]
            assert found[key] == sent

    run(kafka, topic_prefix, body)


def test_scripts_send_without_asyncio(kafka: EmbeddedKafka, topic_prefix: str) -> None:
    async def body(topic: HandMadeTopic, _client: Client) -> None:
        def script() -> int:
            with sync.connect(topic.url) as client:
                producer = client.create_producer("public/default/orders")
                first = producer.send(b"one", key="key")
                producer.send_many([("key", b"two"), ("key", b"three")])
                producer.flush()
                return int(first.offset)

        assert await asyncio.to_thread(script) == 0
        assert topic.by_key() == {b"key": [b"one", b"two", b"three"]}

    run(kafka, topic_prefix, body)


def test_a_message_beyond_the_limit_is_refused_by_name_and_is_no_seal(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    async def body(topic: HandMadeTopic, client: Client) -> None:
        topic.max_message_bytes = 10_000
        topic.push()
        producer = await client.create_producer("public/default/orders")
        await producer.send(b"x" * 9_000, "key")
        with pytest.raises(MessageTooLargeError, match="10000 bytes"):
            await producer.send(b"x" * 10_000, "key")
        with pytest.raises(MessageTooLargeError):
            await producer.send_many([("key", b"before"), ("key", b"x" * 10_000)])
        await producer.send(b"after", "key")

        assert [value[:6] for value in topic.by_key()[b"key"]] == [b"xxxxxx", b"before", b"after"]

    run(kafka, topic_prefix, body)


def test_batches_never_exceed_the_limit_of_the_topic(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    async def body(topic: HandMadeTopic, client: Client) -> None:
        topic.max_message_bytes = 20_000
        await topic.set_limit(topic.layout.segments[0], 20_000)
        topic.push()
        producer = await client.create_producer("public/default/orders", linger_ms=50)
        await producer.send_many([("key", b"%04d" % i + b"x" * 4_000) for i in range(100)])
        await producer.flush(30)

        assert [int(value[:4]) for value in topic.by_key()[b"key"]] == list(range(100))

    run(kafka, topic_prefix, body)


def test_a_value_that_a_serializer_refuses_harms_no_other(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    def numbers_only(value: object, _context: object) -> bytes:
        if not isinstance(value, int):
            raise ValueError("not a number")
        return b"%d" % value

    async def body(topic: HandMadeTopic, client: Client) -> None:
        producer = await client.create_producer(
            "public/default/orders",
            value_serializer=numbers_only,
            key_serializer=StringSerializer(),
        )
        await producer.send(1, "key")
        with pytest.raises(SerializationError, match="not a number"):
            await producer.send("two", "key")
        await producer.send(3, "key")

        assert topic.by_key() == {b"key": [b"1", b"3"]}

    run(kafka, topic_prefix, body)


def test_what_is_no_message_is_refused_on_every_path_and_the_others_go_on(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    wrong: list[tuple[Any, Any, dict[str, Any]]] = [
        (5, "key", {}),
        (["a"], "key", {}),
        (b"v", 5, {}),
        (b"v", ["key"], {}),
        (b"v", {}, {}),
        (b"v", "\ud800", {}),
        ("\ud800", "key", {}),
        (b"v", "key", {"headers": 5}),
        (b"v", "key", {"headers": {"a": 1}}),
        (b"v", "key", {"event_time_ms": -1}),
        (b"v", "key", {"event_time_ms": 2**70}),
        (b"v", "key", {"event_time_ms": None}),
        (b"v", "key", {"event_time_ms": 0.0}),
        (b"v", "key", {"event_time_ms": 1.5}),
    ]

    async def body(topic: HandMadeTopic, client: Client) -> None:
        producer = await client.create_producer("public/default/orders")
        await producer.send(b"1", "key")  # from here on its key takes the short way
        for value, key, more in wrong:
            with pytest.raises((SerializationError, InvalidInputError)):
                producer.send_nowait(value, key, **more)
            with pytest.raises((SerializationError, InvalidInputError)):
                await producer.post(value, key, **more)
            with pytest.raises((SerializationError, InvalidInputError)):
                await producer.send(value, key, **more)
            if not more:
                with pytest.raises((SerializationError, InvalidInputError)):
                    await producer.send_many([(key, value)])
        assert producer.under_way == 0
        for bad in (5, [5], [("key",)], [("key", b"v", b"w")]):
            with pytest.raises(InvalidInputError, match="pairs"):
                await producer.send_many(bad)  # type: ignore[arg-type]
        with pytest.raises(SerializationError):
            await producer.send_many([("key", b"2"), ("key", 5)])
        await producer.send(b"3", "key")
        assert topic.by_key() == {b"key": [b"1", b"2", b"3"]}

    run(kafka, topic_prefix, body)


def test_an_event_time_older_than_the_topic_keeps_is_named_as_the_cause(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    async def body(topic: HandMadeTopic, client: Client) -> None:
        await topic.configure(
            topic.layout.segments[0], "message.timestamp.before.max.ms", "86400000"
        )
        producer = await client.create_producer("public/default/orders")
        await producer.send(b"1", "key")

        async def send_old() -> None:
            for _ in range(1_000):  # until the partition's leader has heard of the setting
                await producer.send(b"old", "key", event_time_ms=1_000)

        with pytest.raises(DeliveryError, match="event time"):
            await send_old()
        await producer.send(b"3", "key")
        stored = topic.by_key()[b"key"]
        assert (stored[0], stored[-1]) == (b"1", b"3")

    run(kafka, topic_prefix, body)


def test_a_full_buffer_is_said_to_be_full_and_empties(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    async def body(topic: HandMadeTopic, client: Client) -> None:
        producer = await client.create_producer(
            "public/default/orders", buffer_messages_max=10, buffer_bytes_max=10_000
        )
        for number in range(10):
            producer.send_nowait(b"%d" % number, "key")
        with pytest.raises(BufferFullError):
            producer.send_nowait(b"10", "key")
        await producer.room()
        producer.send_nowait(b"x" * 20_000, "key")
        assert producer.under_way <= 10
        with pytest.raises(BufferFullError):
            producer.send_nowait(b"y", "key")
        await producer.flush(30)

        assert len(topic.by_key()[b"key"]) == 11

    run(kafka, topic_prefix, body)


def test_messages_go_on_by_another_client_of_kafka_when_one_takes_nothing_more(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    async def body(topic: HandMadeTopic, client: Client) -> None:
        producer = await client.create_producer("public/default/orders")
        sent: list[bytes] = []
        for turn in range(3):
            values = [b"%d-%d" % (turn, number) for number in range(4)]
            for each in producer._dispatcher.writers:
                if turn:
                    break_for_good(each)
            if turn == 1:
                await producer.send_many((b"key", value) for value in values)
            else:
                for value in values:
                    producer.send_nowait(value, b"key")
            await producer.flush()
            sent += values
        assert topic.by_key() == {b"key": sent}

    run(kafka, topic_prefix, body, buckets=1)


def test_messages_without_a_key_go_round_the_open_segments(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    async def body(topic: HandMadeTopic, client: Client) -> None:
        producer = await client.create_producer("public/default/orders")
        for number in range(40):
            await producer.post(b"%d" % number)
        await producer.flush(30)
        await topic.split(0)
        for number in range(40, 80):
            await producer.post(b"%d" % number)
        await producer.flush(30)
        stored = {place: len(messages) for place, messages in topic.read().items()}

        assert sum(stored.values()) == 80
        assert set(stored.values()) == {10}  # 4 buckets, then 2 segments of 2 buckets

    run(kafka, topic_prefix, body, segments=1)


def test_a_deleted_topic_is_told_to_those_who_send(kafka: EmbeddedKafka, topic_prefix: str) -> None:
    async def body(topic: HandMadeTopic, client: Client) -> None:
        producer = await client.create_producer("public/default/orders")
        await producer.send(b"one", "key")
        topic.deleted = True
        topic.push()
        await until(lambda: producer.layout.deleted)
        with pytest.raises(TopicNotFoundError, match="was deleted"):
            await producer.send(b"two", "key")
        with pytest.raises(TopicNotFoundError, match="was deleted"):
            producer.send_nowait(b"three", "key")

    run(kafka, topic_prefix, body)


def test_header_mode_settles_what_is_in_doubt_by_reading(
    kafka: EmbeddedKafka, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if Kafka were guarded by SASL; every refusal is taken for one in doubt.
    monkeypatch.setattr(protocol, "can_ask", lambda _kafka: False)
    monkeypatch.setattr(segment_writer, "_CERTAIN_SHARE", 0.0)

    async def body(topic: HandMadeTopic, client: Client) -> None:
        producer = await client.create_producer("public/default/orders")
        traffic = Traffic(producer)
        await asyncio.sleep(0.05)
        await topic.split(0)
        await topic.split(1)
        await topic.merge(3, 4)
        sent = await traffic.stop()
        assert topic.by_key() == sent

    run(kafka, topic_prefix, body)
