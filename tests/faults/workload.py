"""What goes on while things fail: run in a container of its own, by the SDK of the node's image.

Chains of cause and effect: of each key one message is sent after the other, each by another
producer than the one before, and only once that one's acknowledgement has come. So there is one
order in which a key's messages may be read, and it is known without asking the product. Meanwhile
segments are split and merged, and consumers come and go.

Everything that was asked and answered is a line of JSON in the history, with the time of this
process. On SIGTERM nothing more is sent; what was acknowledged is waited for, and then Kafka itself
is read, by a consumer that knows nothing of the product but where the segments are.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from anabranch.admin import AdminError, AsyncAdmin
from anabranch.client import Client, ClientError, Producer

TOPIC: Final = "public/default/orders"
SUBSCRIPTION: Final = "billing"
PRODUCERS: Final = 3
CONSUMERS: Final = 2
KEYS: Final = 40
DRAIN_S: Final = 180.0
RESHAPE_S: Final = 4.0  # from one split or merge to the next, about
PAUSE_S: Final = 0.02  # from a chain's acknowledgement to its next message
AGAIN_S: Final = 0.5
READ_S: Final = 60.0


class History:
    """Lines of JSON; each is on disk when it is said."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1, encoding="utf-8")

    def say(self, what: str, **fields: Any) -> None:
        self._file.write(json.dumps({"at": time.monotonic(), "what": what, **fields}) + "\n")


class Workload:
    """`seed` decides what is split and merged, and who comes and goes."""

    def __init__(self, service_url: str, http_url: str, history: History, seed: int) -> None:
        self._service_url = service_url
        self._http_url = http_url
        self._history = history
        self._random = random.Random(seed)
        self._stopping = asyncio.Event()
        self._acknowledged: set[tuple[str, int]] = set()
        self._received: set[tuple[str, int]] = set()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        async with AsyncAdmin(self._http_url) as admin, Client(self._service_url) as client:
            await self._until(lambda: admin.scalable_topics.create_scalable_topic(TOPIC, 2))
            producers = [await client.create_producer(TOPIC) for _ in range(PRODUCERS)]
            consumers = [asyncio.create_task(self._consume(number)) for number in range(CONSUMERS)]
            reshaping = asyncio.create_task(self._reshape(admin))
            self._history.say("ready")
            chains = (self._chain(f"key-{number}", producers) for number in range(KEYS))
            await asyncio.gather(*chains)
            await reshaping
            self._history.say("sent", count=len(self._acknowledged))
            await self._drained()
            for task in consumers:
                task.cancel()
            await asyncio.gather(*consumers, return_exceptions=True)
            layout = producers[0].layout
            places = [
                (part.kafka_topic, bucket)
                for part in layout.segments.values()
                for bucket in range(part.info.buckets)
            ]
            await asyncio.to_thread(self._read, layout.bootstrap_servers, places)
        self._history.say("end")

    async def _chain(self, key: str, producers: list[Producer]) -> None:
        number = 0
        while not self._stopping.is_set():
            producer = producers[number % len(producers)]
            self._history.say("send", key=key, number=number)
            try:
                found = await producer.send(b"%d" % number, key)
            except ClientError as error:
                # Stored or not: the next one has another number, so that both can be told.
                self._history.say("unsent", key=key, number=number, why=str(error))
            else:
                self._acknowledged.add((key, number))
                where = f"{found.segment_id}/{found.bucket}@{found.offset}"
                self._history.say("acknowledged", key=key, number=number, where=where)
            number += 1
            await asyncio.sleep(PAUSE_S)

    async def _consume(self, number: int) -> None:
        """One consumer after the other; each is closed after some time."""
        while True:
            name = f"consumer-{number}-{time.monotonic_ns()}"
            try:
                async with Client(self._service_url) as client:
                    consumer = await client.subscribe(TOPIC, SUBSCRIPTION, name)
                    self._history.say("opened", consumer=name)
                    async with consumer:
                        until = time.monotonic() + self._random.uniform(5, 20)
                        async for message in consumer:
                            key = (message.key or b"").decode()
                            self._received.add((key, int(message.value)))
                            self._history.say(
                                "received", consumer=name, key=key, number=int(message.value)
                            )
                            consumer.acknowledge(message)
                            if time.monotonic() > until and not self._stopping.is_set():
                                break
                self._history.say("closed", consumer=name)
            except ClientError as error:
                self._history.say("consumer_failed", consumer=name, why=str(error))
                await asyncio.sleep(AGAIN_S)

    async def _reshape(self, admin: AsyncAdmin) -> None:
        while not self._stopping.is_set():
            await asyncio.sleep(self._random.uniform(0.5, 1.5) * RESHAPE_S)
            try:
                layout = await admin.scalable_topics.get_metadata(TOPIC)
                active = sorted(
                    (part for part in layout.segments.values() if part.active),
                    key=lambda part: part.hash_range.start,
                )
                if len(active) < 2 or (len(active) < 6 and self._random.random() < 0.5):
                    chosen = self._random.choice(active)
                    self._history.say("split", segment=chosen.segment_id)
                    await admin.scalable_topics.split_segment(TOPIC, chosen.segment_id)
                else:
                    at = self._random.randrange(len(active) - 1)
                    first, second = active[at].segment_id, active[at + 1].segment_id
                    self._history.say("merge", segments=[first, second])
                    await admin.scalable_topics.merge_segments(TOPIC, first, second)
                self._history.say("reshaped")
            except AdminError as error:
                self._history.say("not_reshaped", why=str(error))

    async def _drained(self) -> None:
        deadline = time.monotonic() + DRAIN_S
        missing = True
        while missing and time.monotonic() < deadline:
            await asyncio.sleep(AGAIN_S)
            missing = not self._acknowledged <= self._received

    async def _until(self, call: Callable[[], Awaitable[object]]) -> None:
        deadline = time.monotonic() + DRAIN_S
        while True:
            try:
                await call()
                return
            except AdminError as error:
                self._history.say("again", why=str(error))
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(AGAIN_S)

    def _read(self, kafka: str, places: list[tuple[str, int]]) -> None:
        """What Kafka has, partition by partition."""
        reader = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": "of-nobody",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        for topic, partition in places:
            first, end = reader.get_watermark_offsets(TopicPartition(topic, partition), READ_S)
            reader.assign([TopicPartition(topic, partition, first)])
            deadline = time.monotonic() + READ_S
            at = first
            while at < end and time.monotonic() < deadline:
                for message in reader.consume(1_000, 1.0):
                    if message.error() is not None:
                        self._history.say(
                            "unread", place=[topic, partition], why=str(message.error())
                        )
                        continue
                    offset = message.offset() or 0  # only errors have none
                    at = offset + 1
                    self._history.say(
                        "stored",
                        place=[topic, partition, offset],
                        key=(message.key() or b"").decode(),
                        number=int(message.value() or b"-1"),
                    )
            if at < end:
                self._history.say(
                    "unread", place=[topic, partition], why=f"only up to {at} of {end}"
                )
        reader.close()


async def main() -> int:
    history = History(Path(os.environ["HISTORY"]))
    workload = Workload(
        os.environ["SERVICE_URL"], os.environ["HTTP_URL"], history, int(os.environ["SEED"])
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, workload.stop)
    try:
        await workload.run()
    except Exception as error:
        history.say("fault", why=f"{type(error).__name__}: {error}")
        raise
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
