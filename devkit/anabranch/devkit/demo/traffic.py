"""The demo's messages: the trace through a scalable topic, by the SDK, as users would send it.

Two producers, clients of their own, take turns at every key. Two readers share an ordered
subscription, and work on keys side by side. Two workers share a queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import gzip
import io
import itertools
import time
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from typing import Final

import msgspec

from anabranch.client import (
    Client,
    ClosedError,
    DeliveryResult,
    Message,
    Producer,
    QueueConsumer,
    StreamConsumer,
    Work,
)
from anabranch.devkit.causality import Span
from anabranch.devkit.demo.judge import Arrival, Findings, TraceMessage, check
from anabranch.wire.supervised import supervised

STREAM: Final = "demo-readers"
_QUEUE: Final = "demo-workers"
_EACH: Final = 2  # producers, readers, workers
_HANDLER_S: Final = 0.02  # for a message, as for a call to a database: 50 a second one by one
_TICK_S: Final = 0.01  # between two looks at how much is to be sent by now
_FILE: Final = "data/openstack_merges_sample.csv.gz"


class Reach(msgspec.Struct, frozen=True):
    """Addresses of nodes, and of their ports for clients; both name several with commas."""

    urls: str
    service_url: str


def load_keys() -> list[str]:
    """The sub-projects that OpenStack merged, in that order (data/README.md)."""
    packed = files(__package__).joinpath(_FILE).read_bytes()
    return [row["key"] for row in csv.DictReader(io.StringIO(gzip.decompress(packed).decode()))]


class Traffic:
    """Sends the keys again and again at `rate` messages a second, and receives what was sent."""

    def __init__(self, reach: Reach, topic: str, keys: Sequence[str], rate: float) -> None:
        self.rate = rate
        self.sent: list[TraceMessage] = []  # acknowledged ones
        self.spans: dict[int, Span] = {}  # by number: from the sending to the acknowledgement
        self.failed: list[str] = []
        self.arrivals: list[Arrival] = []  # in the order of their ends, of all readers
        self.queued: list[Arrival] = []  # the same of the workers
        self._topic = topic
        self._keys = keys
        self._client = Client(reach.service_url, kafka={})
        self._writers = [Client(reach.service_url, kafka={}) for _ in range(_EACH)]
        self._producers: list[Producer] = []
        self._consumers: list[StreamConsumer | QueueConsumer] = []
        self._receiving: list[asyncio.Task[None]] = []
        self._sending: asyncio.Task[None] | None = None
        self._turns: Counter[str] = Counter()
        self.instants = itertools.count()  # a clock that never shows the same twice

    async def start(self) -> None:
        """Connects all, and begins to send."""
        for writer in self._writers:
            self._producers.append(await writer.create_producer(self._topic))
        for number in range(_EACH):
            name = f"reader-{number}"
            reader = await self._client.subscribe(self._topic, STREAM, name)
            self._consumers.append(reader)
            self._receiving.append(supervised(self._read(name, reader), name))
        for number in range(_EACH):
            name = f"worker-{number}"
            worker = await self._client.subscribe_queue(self._topic, _QUEUE, name)
            self._consumers.append(worker)
            self._receiving.append(supervised(self._work(name, worker), name))
        self._sending = supervised(self._send(), "sender")

    def raise_fault(self) -> None:
        """Raises the error that has ended a producer or a consumer, if there is one."""
        for task in (*self._receiving, *filter(None, (self._sending,))):
            if task.done() and not task.cancelled():
                task.result()

    async def stop_sending(self) -> None:
        """Returns once each message that was sent is acknowledged, or has failed."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        for producer in self._producers:
            await producer.flush()

    @property
    def has_arrived(self) -> bool:
        """Tells whether readers and workers have as many messages as were acknowledged."""
        return min(len(self.arrivals), len(self.queued)) >= len(self.sent)

    def judged(self) -> dict[str, Findings]:
        """The judge's findings, by the place where messages arrived."""
        return {
            "readers, in order": check(self.sent, self.arrivals, self.spans),
            "workers of a queue": check(self.sent, self.queued, None),
        }

    async def close(self) -> None:
        """Ends producers and consumers. Raises what has ended a consumer."""
        for consumer in self._consumers:
            await consumer.close()
        await asyncio.gather(*self._receiving)
        for client in (*self._writers, self._client):
            await client.close()

    # --- sending ------------------------------------------------------------------------

    async def _send(self) -> None:
        due, last_s = 0.0, time.monotonic()
        for number, key in enumerate(itertools.cycle(self._keys)):
            while due < 1:
                await asyncio.sleep(_TICK_S)
                now_s = time.monotonic()
                due, last_s = due + self.rate * (now_s - last_s), now_s
            due -= 1
            await self._post(TraceMessage(number, key, self._turns[key]))
            self._turns[key] += 1

    async def _post(self, message: TraceMessage) -> None:
        producer = self._producers[message.turn % _EACH]
        await producer.room()
        sent = next(self.instants)
        self.spans[message.number] = Span(sent)

        def settled(_: DeliveryResult | None, error: Exception | None) -> None:
            if error is not None:
                self.failed.append(f"message {message.number} of {message.key}: {error}")
                return
            self.spans[message.number] = Span(sent, next(self.instants))
            self.sent.append(message)

        await producer.post(msgspec.json.encode(message), message.key, on_delivery=settled)

    # --- receiving ----------------------------------------------------------------------

    async def _read(self, name: str, reader: StreamConsumer) -> None:
        async def handle(message: Message, _: Work) -> None:
            await asyncio.sleep(_HANDLER_S)
            self.arrivals.append(_arrival(name, message))

        await reader.run(handle)

    async def _work(self, name: str, worker: QueueConsumer) -> None:
        with contextlib.suppress(ClosedError):
            while True:
                batch = await worker.receive_many()
                self.queued += [_arrival(name, each) for each in batch]
                worker.acknowledge_all()


def _arrival(name: str, received: Message) -> Arrival:
    message = msgspec.json.decode(received.value, type=TraceMessage)
    return Arrival(message, name, received.segment_id, received.bucket, received.offset)
