"""What a producer's ways of sending have in common, with librdkafka's mock of Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch import client as sdk
from support.mock_kafka import MockKafka
from support.still_watch import lone_producer
from support.waiting import WAIT_S, until

_TURNS = 50  # of the event loop, in which nothing more must be sent


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with MockKafka("t0") as broker:
        yield broker


@asynccontextmanager
async def sending_to(
    kafka: MockKafka, settings: sdk.ProducerSettings
) -> AsyncIterator[sdk.Producer]:
    producer = await lone_producer(kafka.servers, settings)
    try:
        yield producer
    finally:
        await producer.abandon()


@pytest.mark.parametrize(
    ("values", "messages_max", "bytes_max"),
    [(["v" * 300_000], 7, 10**9), ([b"v" * 300_000, "v"], 10**6, 1_000_000)],
)
async def test_send_many_fills_the_buffer_and_no_more(
    kafka: MockKafka,
    monkeypatch: pytest.MonkeyPatch,
    values: list[Any],
    messages_max: int,
    bytes_max: int,
) -> None:
    monkeypatch.setattr("anabranch.client._producer.producer._ABANDON_S", 0.01)
    settings = sdk.ProducerSettings(buffer_messages_max=messages_max, buffer_bytes_max=bytes_max)
    async with sending_to(kafka, settings) as producer:
        await producer.send(b"first", b"key")
        kafka.stand_still()
        pairs = ((b"key", values[number % len(values)]) for number in range(1_000))
        sending = asyncio.create_task(producer.send_many(pairs))
        under_way = producer._under_way
        await until(lambda: under_way.count >= messages_max or under_way.bytes >= bytes_max)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        assert under_way.count <= messages_max
        assert under_way.bytes < bytes_max + 300_000, "more than the message that filled it"
        sending.cancel()


async def test_send_many_goes_on_where_it_stopped_once_there_is_room(kafka: MockKafka) -> None:
    settings = sdk.ProducerSettings(buffer_messages_max=33, buffer_bytes_max=1_000)
    async with sending_to(kafka, settings) as producer:
        pairs = [(b"key-%d" % (number % 9), b"v" * (number % 100)) for number in range(2_000)]
        assert await producer.send_many(iter(pairs)) == 2_000
        await producer.flush(WAIT_S)
        partitions = producer._dispatcher.router.writers()
        assert sum(partition.acked_count for partition in partitions) == 2_000


async def test_a_message_that_kafkas_client_has_no_room_for_fails_and_leaves_no_trace(
    kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise BufferError("Local: Queue full")

    async with sending_to(kafka, sdk.ProducerSettings()) as producer:
        await producer.send(b"first", b"key")
        monkeypatch.setattr(producer._routes[b"key"], "produce", full)
        with pytest.raises(sdk.BufferFullError, match="buffer_bytes_max"):
            await producer.send(b"one", b"key")
        for _ in range(2):
            producer.send_nowait(b"two", b"key")
        await producer.send_many([(b"key", b"three")])
        with pytest.raises(sdk.DeliveryError, match=r"^3 messages failed"):
            await producer.flush(WAIT_S)
        assert (producer.under_way, producer._under_way.bytes) == (0, 0)
        assert not producer._dispatcher.awaited
        monkeypatch.undo()
        await producer.send(b"goes on", b"key")


def _ways(producer: sdk.Producer) -> dict[str, Callable[[Any], Awaitable[Any]]]:
    async def nowait(key: Any) -> None:
        producer.send_nowait(b"x", key)

    async def told(key: Any) -> None:
        producer.send_nowait(b"x", key, on_delivery=lambda *_: None)

    return {
        "send": lambda key: producer.send(b"x", key),
        "post": lambda key: producer.post(b"x", key),
        "send_nowait": nowait,
        "send_nowait, told": told,
        "send_many": lambda key: producer.send_many([(key, b"x")]),
    }


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, str, None])
async def test_each_kind_of_key_is_taken_again_and_again_by_each_way_of_sending(
    kafka: MockKafka, kind: Callable[[bytes], Any] | None
) -> None:
    async with sending_to(kafka, sdk.ProducerSettings()) as producer:
        for number, (name, send) in enumerate(_ways(producer).items()):
            text = b"key-%d" % number
            for turn in range(3):
                key = None if kind is None else text.decode() if kind is str else kind(text)
                try:
                    await send(key)
                except Exception as error:
                    raise AssertionError(f"{name}, turn {turn}") from error
                await producer.flush(WAIT_S)
        assert (producer.under_way, producer._under_way.bytes) == (0, 0)
        assert not producer._dispatcher.awaited


@pytest.mark.parametrize("key", [5, (b"key",)])
async def test_what_can_be_no_key_is_refused_alike_by_each_way_of_sending(
    kafka: MockKafka, key: Any
) -> None:
    async with sending_to(kafka, sdk.ProducerSettings()) as producer:
        for send in _ways(producer).values():
            with pytest.raises(sdk.SerializationError, match=f"key .* is a {type(key).__name__}"):
                await send(key)


async def test_a_fault_in_one_look_at_kafka_s_reports_leaves_nobody_waiting(
    kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sending_to(kafka, sdk.ProducerSettings()) as producer:
        poll = producer._dispatcher.poll
        faults = [RuntimeError("the test says so") for _ in range(5)]

        def faulty() -> None:
            if faults:
                raise faults.pop()
            poll()

        monkeypatch.setattr(producer._dispatcher, "poll", faulty)
        assert (await asyncio.wait_for(producer.send(b"v", b"k"), WAIT_S / 2)).offset == 0
        assert not faults
