"""Consumers of the three kinds that come and go, one after the other in each process."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Final

from anabranch.client import BucketLostError, Client, ClientError, DeadLetterPolicy
from faults.history import History
from faults.parts import CHECKPOINTED, QUEUE, STREAM, TOPIC, Role
from faults.sink import Effect, Sink

LIFE_S: Final = (5.0, 20.0)
AGAIN_S: Final = 0.5
RELEASED: Final = 0.02  # of a queue's messages
REJECTED: Final = 0.002
LATER_S: Final = 1.0
BATCH: Final = 50

_One = Callable[[Client, str], Awaitable[None]]


class Consumers:
    """Those of one process. Each is closed after some time, and followed by one of another name."""

    def __init__(
        self, service_url: str, sink: Sink, history: History, name: str, seed: int
    ) -> None:
        self._service_url = service_url
        self._history = history
        self._name = name
        self._random = random.Random(f"{seed} {name}")
        self._sink = sink

    async def run(self, role: Role) -> None:
        """Until it is cancelled."""
        match role:
            case Role.STREAM:
                await self._come_and_go(STREAM, self._stream)
            case Role.QUEUE:
                await asyncio.gather(
                    self._come_and_go(QUEUE, self._queue), self._read_dead_letters()
                )
            case Role.CHECKPOINT:
                await self._come_and_go(CHECKPOINTED, self._checkpoint)
            case _:
                raise ValueError(f"{role} is no kind of consumer")

    async def _come_and_go(self, subscription: str, one: _One) -> None:
        name = self._left_open()
        while True:
            name = name or f"{self._name}-{time.monotonic_ns()}"
            try:
                async with Client(self._service_url) as client:
                    await one(client, name)
                self._history.say("closed", subscription=subscription, consumer=name)
                name = ""
            except ClientError as error:
                self._history.say("consumer_failed", consumer=name, why=str(error))
                await asyncio.sleep(AGAIN_S)

    def _left_open(self) -> str:
        """The name of the one that was killed, every other time: it gets its buckets sooner."""
        opened = ""
        for line in self._history.past:
            if line["what"] == "opened":
                opened = line["consumer"]
            elif line["what"] == "closed":
                opened = ""
        return opened if self._random.random() < 0.5 else ""

    def _opened(self, role: Role, subscription: str, name: str) -> float:
        """Says so; returns until when it lives."""
        self._history.say("opened", kind=role.value, subscription=subscription, consumer=name)
        return time.monotonic() + self._random.uniform(*LIFE_S)

    async def _stream(self, client: Client, name: str) -> None:
        async with await client.subscribe(TOPIC, STREAM, name) as consumer:
            until = self._opened(Role.STREAM, STREAM, name)
            async for message in consumer:
                self._history.say(
                    "received",
                    subscription=STREAM,
                    consumer=name,
                    key=(message.key or b"").decode(),
                    number=int(message.value),
                    place=[message.segment_id, message.bucket, message.offset],
                )
                consumer.acknowledge(message)
                if time.monotonic() > until:
                    return

    # --- queue ----------------------------------------------------------------------------

    async def _queue(self, client: Client, name: str) -> None:
        policy = DeadLetterPolicy()
        async with await client.subscribe_queue(TOPIC, QUEUE, name, dead_letter=policy) as consumer:
            until = self._opened(Role.QUEUE, QUEUE, name)
            async for message in consumer:
                told = {
                    "subscription": QUEUE,
                    "consumer": name,
                    "key": (message.key or b"").decode(),
                    "number": int(message.value),
                }
                place = [message.segment_id, message.bucket, message.offset]
                self._history.say("received", place=place, **told)
                chance = self._random.random()
                if chance < REJECTED:
                    consumer.reject(message, error="it is not wanted")
                elif chance < RELEASED:
                    consumer.release(message, delay_s=LATER_S)
                elif consumer.acknowledge(message):
                    self._history.say("finished", **told)
                if time.monotonic() > until:
                    return

    async def _read_dead_letters(self) -> None:
        """What was put aside is finished as well. The topic is made when the first one comes."""
        letters = f"{TOPIC}-{QUEUE}-DLQ"
        while True:
            try:
                async with (
                    Client(self._service_url) as client,
                    await client.subscribe(letters, STREAM) as consumer,
                ):
                    async for message in consumer:
                        self._history.say(
                            "finished",
                            subscription=QUEUE,
                            consumer="",
                            key=(message.key or b"").decode(),
                            number=int(message.value),
                        )
                        consumer.acknowledge(message)
            except ClientError as error:
                self._history.say("again", why=str(error))
                await asyncio.sleep(AGAIN_S)

    # --- checkpoint -----------------------------------------------------------------------

    async def _checkpoint(self, client: Client, name: str) -> None:
        """Stores effects and positions in one transaction for each bucket."""
        begun: dict[tuple[int, int], int | None] = {}

        async def position_of(segment_id: int, bucket: int) -> int | None:
            place = segment_id, bucket
            begun[place] = self._sink.position(*place)
            return begun[place]

        async with await client.subscribe_checkpoint(
            TOPIC, CHECKPOINTED, name, position_of=position_of
        ) as consumer:
            until = self._opened(Role.CHECKPOINT, CHECKPOINTED, name)
            while time.monotonic() < until:
                effects: defaultdict[tuple[int, int], list[Effect]] = defaultdict(list)
                for message in await consumer.receive_many(BATCH):
                    key, number = (message.key or b"").decode(), int(message.value)
                    self._history.say(
                        "received",
                        subscription=CHECKPOINTED,
                        consumer=name,
                        key=key,
                        number=number,
                        place=[message.segment_id, message.bucket, message.offset],
                    )
                    effects[message.segment_id, message.bucket].append(
                        (key, number, message.offset)
                    )
                checkpoint = consumer.checkpoint()
                for place, found in effects.items():
                    position = checkpoint.position(*place)
                    if position is None:
                        continue  # another consumer has the bucket by now, and receives them again
                    if not self._sink.store(place, begun[place], position, found):
                        self._history.say("overtaken", consumer=name, place=place)
                        return
                    begun[place] = position
                try:
                    consumer.saved(checkpoint)
                except BucketLostError:
                    self._history.say("repeats", consumer=name)
