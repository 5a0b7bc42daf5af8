"""What becomes of what is under way when a producer is closed, with librdkafka's mock of Kafka."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from anabranch import client as sdk
from anabranch.client._producer import dispatcher
from anabranch.client._producer.partition_writer import PendingMessage
from support.mock_kafka import MockKafka
from support.still_watch import lone_producer
from support.waiting import WAIT_S, until

_KEYS = [b"key-%d" % number for number in range(20)]


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with MockKafka("t0") as broker:
        yield broker


class Told:
    """A producer with something in flight to a Kafka that stands still; who is told what, where."""

    def __init__(self, producer: sdk.Producer) -> None:
        self.producer = producer
        self.count: Counter[int] = Counter()
        self.threads: set[threading.Thread] = set()
        found, fail = producer._dispatcher, producer._dispatcher.failed

        def failing(message: PendingMessage, error: sdk.ClientError) -> None:
            self.threads.add(threading.current_thread())
            fail(message, error)

        found.failed = failing  # type: ignore[method-assign]

    async def send(self, kafka: MockKafka) -> list[asyncio.Task[sdk.DeliveryResult]]:
        """Sends which never end by themselves, each with another message that tells its end."""
        await asyncio.gather(*[self.producer.send(b"first", key) for key in _KEYS])
        kafka.stand_still()
        for number in range(200):

            def told(
                _r: sdk.DeliveryResult | None, _e: Exception | None, number: int = number
            ) -> None:
                self.count[number] += 1

            self.producer.send_nowait(b"in flight", _KEYS[number % 20], on_delivery=told)
        sends = [asyncio.create_task(self.producer.send(b"in flight", key)) for key in _KEYS]
        await until(lambda: self.producer.under_way == 200 + len(_KEYS))
        return sends

    async def ends(self, sends: list[asyncio.Task[sdk.DeliveryResult]]) -> None:
        """Each was told once, on the thread of the event loop."""
        outcomes = await asyncio.wait_for(asyncio.gather(*sends, return_exceptions=True), WAIT_S)
        assert all(isinstance(each, sdk.DeliveryError) for each in outcomes)
        assert self.count == Counter(range(200))
        assert self.threads == {threading.current_thread()}
        assert self.producer.under_way == 0


async def end(producer: sdk.Producer, fails: bool) -> None:
    async with producer:
        if fails:
            raise ZeroDivisionError
        await producer.close(0.1)


@pytest.mark.parametrize("fails", [False, True])
async def test_the_end_of_its_block_ends_every_send(kafka: MockKafka, fails: bool) -> None:
    producer = await lone_producer(kafka.servers, sdk.ProducerSettings())
    told = Told(producer)
    sends = await told.send(kafka)
    with pytest.raises(ZeroDivisionError if fails else sdk.DeadlineError):
        await end(producer, fails)
    await told.ends(sends)


async def test_what_kafkas_client_does_not_report_in_time_is_failed_once_and_for_all(
    kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await lone_producer(kafka.servers, sdk.ProducerSettings())
    told = Told(producer)
    sends = await told.send(kafka)
    producer.send_nowait(b"nobody waits", _KEYS[0])
    flushing = asyncio.create_task(producer.flush(600.0))
    await asyncio.sleep(0)
    monkeypatch.setattr(dispatcher, "_LAST_REPORTS_S", 0.0)
    for writer in producer._dispatcher.writers:
        monkeypatch.setattr(writer, "poll", lambda _: 0)
    with pytest.raises(sdk.ClientError):
        await producer.close(0.1)
    await told.ends(sends)
    await asyncio.wait_for(flushing, WAIT_S)
    await until(lambda: not any(t.name == "segment-writer-close" for t in threading.enumerate()))
    await told.ends(sends)
