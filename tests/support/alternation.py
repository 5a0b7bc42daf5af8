"""Senders that take turns at a key, each only after the other's message was acknowledged.

The history of it is judged by cause and effect alone (`devkit.causality`): nothing here knows how
segments are replaced.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence

from confluent_kafka import KafkaError, Message, Producer

from anabranch.client import StreamConsumer, TopicLayout
from anabranch.devkit.causality import CausalityViolation, Span, turned_round
from support.quiet import QUIET
from support.waiting import WAIT_S, eventually, until

Send = Callable[[bytes, str], Awaitable[object]]


class Alternation:
    """Of each key: what was sent and acknowledged when, and in which order it was received."""

    def __init__(self, keys: int) -> None:
        # By key, of what was received: its place and number.
        self._received: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        self._keys = [f"shared-{number}" for number in range(keys)]
        self._spans: dict[int, Span] = {}
        self._numbers = itertools.count()
        self._instants = itertools.count()  # a clock that never shows the same twice

    async def run(self, senders: Sequence[Send]) -> None:
        """Until it is cancelled. Raises what a sender raises."""
        async with asyncio.TaskGroup() as group:
            for key in self._keys:
                group.create_task(self._alternate(key, senders))

    async def _alternate(self, key: str, senders: Sequence[Send]) -> None:
        for send in itertools.cycle(senders):
            number, sent = next(self._numbers), next(self._instants)
            self._spans[number] = Span(sent)
            await send(b"%d" % number, key)
            self._spans[number] = Span(sent, next(self._instants))

    async def receive(self, consumer: StreamConsumer) -> None:
        """Until it is cancelled."""
        while True:
            message = await consumer.receive()
            place = (message.segment_id, message.offset)
            self._received[message.key.decode()].append((*place, int(message.value)))
            consumer.acknowledge(message)

    async def more(self, count: int) -> None:
        """Returns when so many more messages have been sent."""
        enough = len(self._spans) + count
        await until(lambda: len(self._spans) >= enough)

    @property
    def sent(self) -> int:
        """How many messages, acknowledged or not."""
        return len(self._spans)

    def missing(self) -> set[int]:
        """What was acknowledged and not received yet."""
        there = {number for found in self._received.values() for *_, number in found}
        return {number for number, span in self._spans.items() if span.acked < math.inf} - there

    def repeated(self) -> list[int]:
        """What was received more than once."""
        found = Counter(number for places in self._received.values() for *_, number in places)
        return sorted(number for number, times in found.items() if times > 1)

    def stored_twice(self) -> list[int]:
        """What Kafka has at more than one place."""
        there = {each for found in self._received.values() for each in found}
        counts = Counter(number for *_, number in there)
        return sorted(number for number, places in counts.items() if places > 1)

    def turned_when_delivered(self) -> list[CausalityViolation[int]]:
        """What is wrong with the order in which messages were received."""
        return self._turned(self._received.values())

    def turned_when_stored(self) -> list[CausalityViolation[int]]:
        """The same of the order in which they lie in Kafka, a segment after its parents."""
        return self._turned(sorted(found) for found in self._received.values())

    def _turned(
        self, orders: Iterable[Iterable[tuple[int, int, int]]]
    ) -> list[CausalityViolation[int]]:
        return [
            each
            for order in orders
            for each in turned_round([number for *_, number in order], self._spans)
        ]


class PlainSender:
    """A client of Kafka that appends to a key's active segment, as the newest layout has it.

    What is refused goes on once the layout names another segment: it knows of no seals. With a
    `transactional_id`, each message is a transaction.
    """

    def __init__(
        self, bootstrap_servers: str, layout: Callable[[], TopicLayout], transactional_id: str = ""
    ) -> None:
        settings = {**QUIET, "bootstrap.servers": bootstrap_servers, "linger.ms": 0}
        if transactional_id:
            settings["transactional.id"] = transactional_id
        self._producer = Producer(settings)
        self._transacts = bool(transactional_id)
        if self._transacts:
            self._producer.init_transactions(WAIT_S)
        self._layout = layout
        self._turn = threading.Lock()  # who flushes may be given what another one waits for

    async def send(self, value: bytes, key: str) -> None:
        """Returns once it is stored."""

        async def is_stored() -> bool:
            return await asyncio.to_thread(self._append, value, key) is None

        await eventually(is_stored, WAIT_S)

    def _append(self, value: bytes, key: str) -> KafkaError | None:
        part, bucket = self._layout().place(key)
        answers: list[KafkaError | None] = []

        def done(error: KafkaError | None, _: Message) -> None:
            answers.append(error)

        with self._turn:
            if self._transacts:
                self._producer.begin_transaction()
            self._producer.produce(part.kafka_topic, value, key, bucket, on_delivery=done)
            self._producer.flush(WAIT_S)
            if self._transacts and answers[0] is None:
                self._producer.commit_transaction(WAIT_S)
            elif self._transacts:
                self._producer.abort_transaction(WAIT_S)
        return answers[0]

    def close(self) -> None:
        """Ends its threads."""
        self._producer.close()
