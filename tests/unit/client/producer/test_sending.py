"""What a producer takes, waits for, and tells of each message, with librdkafka's mock of Kafka."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch import client as sdk
from anabranch.client import DeadlineError, DeliveryError, DeliveryResult, ProducerSettings
from anabranch.client._producer.batch import PendingMessage
from anabranch.client._producer.messages import Callbacks
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
        assert sum(each.messages for each in producer.stats()) == 2_000


async def test_a_new_key_goes_the_short_way_once_its_bucket_has_a_writer(
    kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sending_to(kafka, sdk.ProducerSettings()) as producer:
        await producer.send_many((b"%d" % number, b"x") for number in range(100))
        monkeypatch.setattr(producer, "_take", lambda *_: pytest.fail("the long way"))
        assert await producer.send_many((b"new-%d" % number, b"x") for number in range(100)) == 100


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


@pytest.mark.parametrize("key", [5, (b"key",)])
async def test_what_can_be_no_key_is_refused_alike_by_each_way_of_sending(
    kafka: MockKafka, key: Any
) -> None:
    async with sending_to(kafka, sdk.ProducerSettings()) as producer:
        for send in _ways(producer).values():
            with pytest.raises(sdk.SerializationError, match=f"key .* is a {type(key).__name__}"):
                await send(key)


# --- what becomes of what is under way when a producer is closed ---------------------------------


_KEYS = [b"key-%d" % number for number in range(20)]


async def end(producer: sdk.Producer, fails: bool) -> None:
    async with producer:
        if fails:
            raise ZeroDivisionError
        await producer.close(0.1)


@pytest.mark.parametrize("fails", [False, True])
async def test_the_end_of_its_block_ends_each_send_and_flush(kafka: MockKafka, fails: bool) -> None:
    producer = await lone_producer(kafka.servers, sdk.ProducerSettings())
    await asyncio.gather(*[producer.send(b"first", key) for key in _KEYS])
    kafka.stand_still()
    told = Counter[int]()
    for number in range(200):

        def tell(*_: object, number: int = number) -> None:
            told[number] += 1

        producer.send_nowait(b"in flight", _KEYS[number % 20], on_delivery=tell)
    sends = [asyncio.create_task(producer.send(b"in flight", key)) for key in _KEYS]
    await until(lambda: producer.under_way == 200 + len(_KEYS))
    flushing = asyncio.create_task(producer.flush(600.0))
    await asyncio.sleep(0)
    with pytest.raises(ZeroDivisionError if fails else sdk.DeadlineError):
        await end(producer, fails)
    outcomes = await asyncio.wait_for(asyncio.gather(*sends, return_exceptions=True), WAIT_S)
    assert all(isinstance(each, sdk.DeliveryError) for each in outcomes)
    await asyncio.wait_for(flushing, WAIT_S)
    assert told == Counter(range(200))
    assert producer.under_way == 0


# --- what a flush waits for while others go on sending --------------------------------------------


async def test_a_flush_ends_with_what_was_sent_before_it_however_much_is_sent_meanwhile() -> None:
    with MockKafka("t0") as kafka:
        producer = await lone_producer(kafka.servers, ProducerSettings())
        stopped = False

        def send_another(_result: DeliveryResult | None, error: Exception | None) -> None:
            if not stopped and error is None:
                producer.send_nowait(b"more", b"key", on_delivery=send_another)

        for _ in range(20):  # each is followed by another one, so something always is under way
            producer.send_nowait(b"more", b"key", on_delivery=send_another)
        delivered = []
        for number in range(100):
            producer.send_nowait(
                b"before", b"%d" % number, on_delivery=lambda *found: delivered.append(found)
            )
        await producer.flush(WAIT_S)
        assert len(delivered) == 100
        assert producer.under_way > 0
        stopped = True
        await producer.close(WAIT_S)


async def test_a_flush_says_how_much_of_what_was_sent_before_it_is_left() -> None:
    with MockKafka("t0") as kafka:
        producer = await lone_producer(kafka.servers, ProducerSettings())
        await producer.send(b"first", b"key")
        kafka.stand_still()
        for _ in range(3):
            producer.send_nowait(b"before", b"key")
        waiting = asyncio.create_task(producer.flush(0.2))
        await asyncio.sleep(0)
        producer.send_nowait(b"after", b"key")
        with pytest.raises(DeadlineError, match=r"^3 messages"):
            await waiting
        assert producer.under_way == 4
        await producer.abandon()


# --- who is told what became of messages, and what is logged when telling them fails --------------


def test_a_failing_callback_is_logged_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    """With Kafka down a producer logged 175 traces a second."""
    now = [100.0]
    callbacks = Callbacks("topic://public/default/orders", lambda: now[0])
    told = 0

    def careless(result: DeliveryResult | None, _: Exception | None) -> None:
        nonlocal told
        told += 1
        assert result is not None

    def fail(count: int) -> None:
        for _ in range(count):
            message = PendingMessage(b"key", b"value", on_delivery=careless)
            callbacks.failed(message, DeliveryError("Kafka is down"))
            callbacks.tell()

    with caplog.at_level(logging.ERROR):
        fail(175)
        now[0] += 1.0
        fail(175)
    assert told == 350
    records = [each for each in caplog.records if each.name == Callbacks.__module__]
    assert [record.__dict__["fields"]["times"] for record in records] == [1, 175]
    assert all(record.exc_info for record in records)
