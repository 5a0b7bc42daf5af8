"""A producer, simulated: the real one's `Sender`, over a client of Kafka."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from anabranch.client import Segment, TopicLayout
from anabranch.client._producer.partition_writer import PendingMessage
from anabranch.client._producer.sender import Sender
from anabranch.client._producer.writer_pool import writers_of
from simulation.kafka_client import Client, Writer, stored
from simulation.scheduler import Life
from simulation.segment_store import Message
from simulation.shared_keys import is_shared

if TYPE_CHECKING:
    from simulation.topic_world import TopicWorld

WATCH_S = 0.4
SHARED = 0.1  # as many messages as of its own keys that are no answers


class Producer(Life):
    """One producer with keys of its own, and some that it shares with the others of its topic; a
    restart makes another one, with other keys of its own.
    """

    def __init__(self, world: TopicWorld, topic: str, name: str) -> None:
        super().__init__(world.sched)
        self.topic = topic
        self.name = name
        self.sent: dict[str, int] = {}
        self._world = world
        self._sender: Sender[Writer] | None = None
        self._clients: dict[tuple[int, int], Client] = {}

    @property
    def is_idle(self) -> bool:
        """Whether all that was sent is known to be stored."""
        writers = self._sender.router.writers() if self._sender is not None else []
        return not any(each.outstanding or each.held or each.refused for each in writers)

    def start(self) -> None:
        self.life += 1
        self.sent = {
            f"{self.topic}|{self.name}.{self.life}.{each}": 0
            for each in range(self._world.plan.keys)
        }
        self._sender, self._clients = None, {}
        self._stop.end()
        self._sched.note(f"producer {self.name} starts life {self.life}")
        self.later(0.0, self._watch)
        self.later(0.0, self._produce)

    def crash(self) -> None:
        """What is not stored may be lost, as its keys are."""
        self.life += 1
        self._sender = None

    # --- what it sends ------------------------------------------------------------------

    def _produce(self) -> None:
        self.later(self._sched.rng.expovariate(self._world.plan.sends_per_s), self._produce)
        if self._world.faults_over or self._sender is None:
            return
        rng, plan = self._sched.rng, self._world.plan
        if rng.random() >= plan.load.at(self._sched.now):
            return
        keys = list(self.sent)
        for _ in range(rng.choice((1, 1, 1, 4))):
            key = keys[0] if rng.random() < plan.hot_key else rng.choice(keys)
            self.sent[key] += 1
            self._sender.send(PendingMessage(key.encode(), str(self.sent[key]).encode()))
        if (shared := self._world.shared.of(self.topic)) and rng.random() < SHARED:
            self.answer(rng.choice(shared))

    def answer(self, key: str) -> bool:
        """Sends the next message of a key that others write to as well; whether it can."""
        if self._sender is None or self._stop.is_on:
            return False
        message = self._world.shared.new(key)
        self._sender.send(PendingMessage(key.encode(), str(message.sequence).encode()))
        return True

    # --- what the sender has done ----------------------------------------------------------

    def make(self, incarnation: int, segment: Segment, bucket: int) -> Writer:
        plan = self._world.plan
        number = (segment.segment_id, bucket % writers_of(segment.info.buckets, plan.kafka_brokers))
        if number not in self._clients:
            self._clients[number] = Client(self._world.new_number(), self._world.store, self)
        return Writer(incarnation, segment, bucket, self._clients[number], plan.kafka_copies)

    def append(self, writer: Writer, message: PendingMessage) -> bool:
        writer.sent(message.key, message.value)
        writer.queue.append(message)
        writer.client.pump(writer)
        return True

    def resolve(self, writer: Writer) -> None:
        ends = self._known().router.layout.segments[writer.segment.segment_id].info.end_offsets

        def done(found: int | None) -> None:
            self.run_in(life, partial(self._resolved, writer, found))

        life, first, end = self.life, writer.last_offset + 1, ends[writer.bucket]
        self._world.store.own_between(writer.place, writer.client.number, first, end, done)

    def stored(self, _writer: Writer, message: PendingMessage, *_: int) -> None:
        self.acked(stored(message))

    def failed(self, message: PendingMessage, _error: Exception) -> None:
        self._world.checks.given_up(stored(message))

    def moved(self, _writer: Writer, _messages: Sequence[PendingMessage]) -> None:
        pass

    # --- what Kafka's client tells -----------------------------------------------------------

    def acked(self, message: Message) -> None:
        if is_shared(message.key):
            self._world.shared.acked(message)

    def refused(self, writer: Writer, message: PendingMessage, in_doubt: bool) -> None:
        self._known().refused(writer, message, in_doubt, self._sched.now)

    def answered(self) -> None:
        self._known().advance()

    def _known(self) -> Sender[Writer]:
        if self._sender is None:
            raise AssertionError("a producer sends before it knows a layout")
        return self._sender

    # --- the layout -----------------------------------------------------------------------

    def _watch(self) -> None:
        """Any broker tells what it knows, which may be old; the first is asked for again soon."""
        self.later(self._sched.rng.uniform(0.0, WATCH_S), self._watch)
        layout = self._world.layout_heard_of(self.topic)
        if layout is None:
            return
        self.later(self._world.store.latency_s(), partial(self._heard, layout))

    def _heard(self, layout: TopicLayout) -> None:
        if self._sender is None:
            self._sender = Sender(layout, self, math.inf)
        elif layout.is_newer_than(self._sender.router.layout):
            self._sender.update(layout, self._sched.now)
        self._sender.advance()

    def _resolved(self, writer: Writer, found: int | None) -> None:
        if found is None:
            writer.resolving = False  # it is asked again
        else:
            self._world.settled_in_doubt += 1
            self._known().resolved(writer, [(-1, -1)] * found)
        self._known().advance()
