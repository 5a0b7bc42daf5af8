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
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence

from confluent_kafka import KafkaError, Message, Producer

from anabranch.client import StreamConsumer, TopicLayout
from anabranch.devkit.causality import CausalityViolation, Span, turned_round
from support.quiet import QUIET
from support.waiting import WAIT_S, eventually, until

Send = Callable[[bytes, str], Awaitable[object]]


class RefusedError(Exception):
    """Kafka refuses the message for good: it is not stored, and its sender sends no more."""


class Alternation:
    """Of each key: what was sent and acknowledged when, and in which order it was received."""

    def __init__(self, keys: int) -> None:
        # By key, of what was received: its place and number.
        self._received: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        self._keys = [f"shared-{number}" for number in range(keys)]
        self._spans: dict[int, Span] = {}
        self._sent_by: dict[int, int] = {}  # the sender's place in the turn
        self.refused: dict[int, str] = {}  # what those senders were told who send no more, by place
        self._not_stored: set[int] = set()
        self._numbers = itertools.count()
        self._instants = itertools.count()  # a clock that never shows the same twice

    async def run(self, senders: Sequence[Send]) -> None:
        """Until it is cancelled. Raises what a sender raises, but for RefusedError.

        `senders` may grow meanwhile.
        """
        async with asyncio.TaskGroup() as group:
            for key in self._keys:
                group.create_task(self._alternate(key, senders))

    async def _alternate(self, key: str, senders: Sequence[Send]) -> None:
        for count in itertools.count():
            turn = count % len(senders)
            if turn in self.refused:
                continue
            number, sent = next(self._numbers), next(self._instants)
            self._spans[number] = Span(sent)
            self._sent_by[number] = turn
            try:
                await senders[turn](b"%d" % number, key)
            except RefusedError as error:
                self.refused[turn] = str(error)
                self._not_stored.add(number)
            else:
                self._spans[number] = Span(sent, next(self._instants))

    async def receive(self, consumer: StreamConsumer) -> None:
        """Until it is cancelled."""
        while True:
            message = await consumer.receive()
            place, key = (message.segment_id, message.offset), message.key.decode()
            if key in self._keys:  # others write other keys
                self._received[key].append((*place, int(message.value)))
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

    def received_though_refused(self) -> set[int]:
        """What its sender was told is not stored."""
        there = {number for found in self._received.values() for *_, number in found}
        return self._not_stored & there

    def repeated(self) -> list[int]:
        """What was received more than once."""
        found = Counter(number for places in self._received.values() for *_, number in places)
        return sorted(number for number, times in found.items() if times > 1)

    def stored_twice(self, but_of: Container[int] = ()) -> list[int]:
        """What Kafka has at more than one place, but of senders with these places in the turn."""
        there = {each for found in self._received.values() for each in found}
        counts = Counter(number for *_, number in there)
        twice = (number for number, places in counts.items() if places > 1)
        return sorted(number for number in twice if self._sent_by[number] not in but_of)

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
    `transactional_id`, each message is a transaction. Without one it repeats a message that a
    leader has stored, but was deposed before it could say so, if the next leader refuses a retry.
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
