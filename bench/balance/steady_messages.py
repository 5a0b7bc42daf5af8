"""`SteadyMessages`: numbered messages of a topic at an even pace, with the time that each took."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import Final

from anabranch.client import Client, DeliveryResult, Producer, StreamConsumer

_KEYS: Final = ("north", "east", "south", "west")  # the messages' keys, in turn
_SUBSCRIPTION: Final = "steady"
_WRONG_SHOWN: Final = 5


class MessageLedger:
    """The sent and received messages, by number. All times are of one clock, in seconds."""

    def __init__(self) -> None:
        self.due: list[float] = []  # the due time of each message
        self.failed: list[str] = []
        self._received: dict[int, float] = {}
        self._orders: dict[str, list[int]] = defaultdict(list)

    @property
    def is_complete(self) -> bool:
        """True if every sent message has come, or will not."""
        return len(self._received) + len(self.failed) >= len(self.due)

    @property
    def has_caught_up(self) -> bool:
        """True if some were sent, and nothing is under way right now."""
        return bool(self.due) and self.is_complete

    def take(self, key: str, number: int, now: float) -> None:
        """Notes that a message has come."""
        self._received.setdefault(number, now)
        self._orders[key].append(number)

    def wrong(self) -> list[str]:
        """Returns some of the faults: messages refused, lost, repeated, or out of their key's
        order.
        """
        found = list(self.failed)
        for place, key in enumerate(_KEYS):
            order, want = self._orders[key], list(range(place, len(self.due), len(_KEYS)))
            if order != want:
                at = next(
                    (
                        at
                        for at, pair in enumerate(zip(order, want, strict=False))
                        if len({*pair}) > 1
                    ),
                    min(len(order), len(want)),
                )
                found.append(f"{key}: {order[at : at + 3]} came in place of {want[at : at + 3]}")
        return found[:_WRONG_SHOWN]

    def late_ms(self, low: float, high: float) -> list[float]:
        """Returns the milliseconds from due time to receipt, for messages that were due in that
        time.
        """
        return [
            1000 * (self._received[number] - due)
            for number, due in enumerate(self.due)
            if low <= due <= high and number in self._received
        ]


class SteadyMessages:
    """The messages of one topic, with a producer and an ordered consumer.
    Times are `time.perf_counter`'s.
    """

    def __init__(
        self, topic: str, period_s: float, producer: Producer, consumer: StreamConsumer
    ) -> None:
        self.topic = topic
        self.ledger = MessageLedger()
        self._period_s = period_s
        self._producer = producer
        self._consumer = consumer

    @classmethod
    async def open(
        cls, topic: str, period_s: float, writer: Client, reader: Client
    ) -> SteadyMessages:
        """Connects producer and consumer, each by a client that others may use, too."""
        producer = await writer.create_producer(topic)
        return cls(topic, period_s, producer, await reader.subscribe(topic, _SUBSCRIPTION))

    async def send(self) -> None:
        """Sends until it is cancelled."""
        began, ledger = time.perf_counter(), self.ledger

        def settled(_: DeliveryResult | None, error: Exception | None) -> None:
            if error is not None:
                ledger.failed.append(f"not sent: {error}")

        while True:
            number = len(ledger.due)
            due = began + number * self._period_s
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            key = _KEYS[number % len(_KEYS)]
            await self._producer.post(b"%d" % number, key, on_delivery=settled)
            ledger.due.append(due)

    async def receive(self) -> None:
        """Receives until it is cancelled."""
        while True:
            batch = await self._consumer.receive_many()
            now = time.perf_counter()
            for message in batch:
                self.ledger.take(message.key.decode(), int(message.value), now)
            self._consumer.acknowledge(batch)
