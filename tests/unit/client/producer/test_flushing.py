"""What a flush waits for while others go on sending, with librdkafka's mock of Kafka."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.client import DeadlineError, DeliveryResult, ProducerSettings
from support.mock_kafka import MockKafka
from support.still_watch import lone_producer
from support.waiting import WAIT_S


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
