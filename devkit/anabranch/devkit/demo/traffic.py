"""The demo's messages: the trace's events through a scalable topic, by the SDK, as users would.

Two producers, clients of their own, take turns at every key. Readers share one ordered
subscription; some come late and some leave early, so that buckets move while segments do. Workers
share a queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import msgspec

from anabranch.client import (
    ClosedError,
    DeliveryResult,
    Producer,
    QueueConsumer,
    StreamConsumer,
)
from anabranch.client import Message as Received
from anabranch.core.names import full_name
from anabranch.devkit.causality import Span
from anabranch.devkit.demo.messages import Arrival, TraceMessage
from anabranch.devkit.demo.reach import OPEN, Reach
from anabranch.devkit.demo.trace import Event
from anabranch.wire.supervised import supervised

_STREAM: Final = "demo-readers"
_QUEUE: Final = "demo-workers"
_PRODUCERS: Final = 2
_ARRIVE_SECONDS_MAX: Final = 60.0
_POLL_SECONDS: Final = 0.05


_Consumer = StreamConsumer | QueueConsumer


class DemoConsumers(msgspec.Struct, frozen=True):
    """Who consumes: readers and workers from the start on, and readers who come or leave.

    `comings` and `leavings`: shares of the duration, with the reader's name.
    """

    readers: tuple[str, ...]
    workers: tuple[str, ...]
    comings: tuple[tuple[float, str], ...]
    leavings: tuple[tuple[float, str], ...]


class Traffic:
    """Sends every event in its order and time, and receives what was sent."""

    def __init__(
        self,
        url: str,
        topic: str,
        cast: DemoConsumers,
        say: Callable[[str], None],
        reach: Reach = OPEN,
    ) -> None:
        self.sent: list[TraceMessage] = []  # acknowledged ones
        self.spans: dict[int, Span] = {}  # by number: when each was sent and acknowledged
        self.failed: list[str] = []
        self.arrivals: list[Arrival] = []  # in the order of receipt, whichever reader received
        self.queued: list[Arrival] = []  # the same of the workers
        self.ack_ms: list[float] = []
        self.receive_ms: list[float] = []
        self.queue_ms: list[float] = []
        self._client = reach.client(url)
        self._writers = [reach.client(url) for _ in range(_PRODUCERS)]
        self._topic = full_name(topic)
        self._cast = cast
        self._say = say
        self._producers: list[Producer] = []
        self._consumers: dict[str, tuple[_Consumer, asyncio.Task[None]]] = {}
        self._turns: Counter[str] = Counter()
        self._instants = itertools.count()  # a clock that never shows the same twice
        self._began = 0.0

    async def start(self) -> None:
        """Connects producers and the first readers."""
        for writer in self._writers:
            self._producers.append(await writer.create_producer(self._topic))
        for name in self._cast.readers:
            await self._join(name)
        for name in self._cast.workers:
            worker = await self._client.subscribe_queue(self._topic, _QUEUE, name)
            self._begin(name, worker, self._work(name, worker))
        workers = f" and {len(self._cast.workers)} workers of a queue" if self._cast.workers else ""
        self._say(
            f"{_PRODUCERS} producers, {', '.join(self._cast.readers)}{workers} use {self._topic}"
        )

    async def run(self, events: Sequence[Event], duration_s: float) -> None:
        """Sends all; returns when everything that was acknowledged has arrived, or a minute after.

        Raises what ends a consumer.
        """
        self._began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._change_readers(duration_s))
            group.create_task(self._send(events))
        for producer in self._producers:
            await producer.flush()
        deadline = time.monotonic() + _ARRIVE_SECONDS_MAX
        while self._missing and time.monotonic() < deadline:
            for _, reading in self._consumers.values():
                if reading.done():
                    reading.result()
            await asyncio.sleep(_POLL_SECONDS)

    @property
    def _missing(self) -> bool:
        queued = len(self.queued) if self._cast.workers else len(self.sent)
        return min(len(self.arrivals), queued) < len(self.sent)

    async def close(self) -> None:
        """Ends producers and consumers, which raises what a consumer failed of."""
        for name in list(self._consumers):
            await self._leave(name)
        for client in (*self._writers, self._client):
            await client.close()

    # --- sending ------------------------------------------------------------------------

    async def _send(self, events: Sequence[Event]) -> None:
        for number, event in enumerate(events):
            delay = self._began + event.at_s - time.monotonic()
            if delay > 0:
                await asyncio.sleep(delay)
            key = event.topic.rpartition("/")[2]
            message = TraceMessage(number, key, self._turns[key])
            self._turns[key] += 1
            await self._post(message)

    async def _post(self, message: TraceMessage) -> None:
        at_ms = time.time() * 1000
        producer = self._producers[message.turn % _PRODUCERS]
        body = msgspec.json.encode({"message": message, "sentMs": at_ms})
        await producer.room()
        sent = next(self._instants)
        self.spans[message.number] = Span(sent)

        def settled(_: DeliveryResult | None, error: Exception | None) -> None:
            if error is not None:
                self.failed.append(f"message {message.number} of {message.key}: {error}")
                return
            self.spans[message.number] = Span(sent, next(self._instants))
            self.ack_ms.append(time.time() * 1000 - at_ms)
            self.sent.append(message)

        await producer.post(body, message.key, on_delivery=settled)

    # --- receiving ----------------------------------------------------------------------

    async def _change_readers(self, duration_s: float) -> None:
        changes = [(at, name, True) for at, name in self._cast.comings]
        changes += [(at, name, False) for at, name in self._cast.leavings]
        for at, name, joins in sorted(changes):
            await self._until(at * duration_s)
            await (self._join(name) if joins else self._leave(name))
            self._say(f"{name} has {'joined' if joins else 'left'}")

    async def _until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, self._began + at_s - time.monotonic()))

    async def _join(self, name: str) -> None:
        reader = await self._client.subscribe(self._topic, _STREAM, name)
        self._begin(name, reader, self._read(name, reader))

    def _begin(self, name: str, consumer: _Consumer, work: Coroutine[Any, Any, None]) -> None:
        self._consumers[name] = consumer, supervised(work, name)

    async def _leave(self, name: str) -> None:
        consumer, reading = self._consumers.pop(name)
        await consumer.close()
        await reading

    async def _read(self, name: str, reader: StreamConsumer) -> None:
        with contextlib.suppress(ClosedError):
            while True:
                batch = await reader.receive_many()
                self._take(name, batch, self.arrivals, self.receive_ms)
                reader.acknowledge(batch)

    async def _work(self, name: str, worker: QueueConsumer) -> None:
        with contextlib.suppress(ClosedError):
            while True:
                batch = await worker.receive_many()
                self._take(name, batch, self.queued, self.queue_ms)
                worker.acknowledge_all()

    @staticmethod
    def _take(
        name: str, batch: Sequence[Received], arrivals: list[Arrival], waits_ms: list[float]
    ) -> None:
        now_ms = time.time() * 1000
        for each in batch:
            body: dict[str, Any] = msgspec.json.decode(each.value)
            message = msgspec.convert(body["message"], TraceMessage)
            arrivals.append(Arrival(message, name, each.segment_id, each.bucket, each.offset))
            waits_ms.append(now_ms - body["sentMs"])
