"""A producer, simulated: the real one's `Sender` and writers, over a simulated Kafka."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from anabranch.client import Segment, TopicLayout
from anabranch.client._producer.batch import BatchLimits, PendingMessage, ProducerId, RecordBatch
from anabranch.client._producer.partition_writer import PartitionWriter
from anabranch.client._producer.sender import Sender
from anabranch.client._producer.settlement import is_stored
from anabranch.wire.kafka.producer_state import ProducerState
from simulation.scheduler import Life, ViolationError
from simulation.segment_store import Answer, Message, Place
from simulation.segment_store import Batch as KafkaBatch
from simulation.shared_keys import is_shared

if TYPE_CHECKING:
    from simulation.topic_world import TopicWorld

WATCH_S = 0.4
_BATCH_MAX = 5
_RETRY_S = 0.1
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
        self._sender: Sender[PartitionWriter] | None = None

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
        self._sender = None
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
        if rng.random() >= plan.load.at(self._sched.now) or not self._can_send():
            return
        keys = list(self.sent)
        for _ in range(rng.choice((1, 1, 1, 4))):
            key = keys[0] if rng.random() < plan.hot_key else rng.choice(keys)
            self.sent[key] += 1
            self._sender.send(PendingMessage(key.encode(), str(self.sent[key]).encode()))
        if (shared := self._world.shared.of(self.topic)) and rng.random() < SHARED:
            self.answer(rng.choice(shared))

    def _can_send(self) -> bool:
        """Whether it is known where an adopted topic's writers put a key."""
        active = self._known().router.layout.active
        return all(part.info.partitioner or not part.info.is_legacy for part in active)

    def answer(self, key: str) -> bool:
        """Sends the next message of a key that others write to as well; whether it can."""
        if self._sender is None or self._stop.is_on or not self._can_send():
            return False
        message = self._world.shared.new(key)
        self._sender.send(PendingMessage(key.encode(), str(message.sequence).encode()))
        return True

    # --- what the sender has done ----------------------------------------------------------

    def make(self, incarnation: int, segment: Segment, bucket: int) -> PartitionWriter:
        copies = self._world.plan.kafka_copies
        limits = BatchLimits(messages=_BATCH_MAX)
        return PartitionWriter(incarnation, segment, bucket, limits, copies=copies)

    def begun(self, writer: PartitionWriter) -> None:
        self._pump(writer)

    def resolve(self, writer: PartitionWriter) -> None:
        def done(states: list[ProducerState] | None) -> None:
            self.run_in(life, partial(self._resolved, writer, states))

        life = self.life
        self._world.store.producers(_place(writer), done)

    def stored(self, _writer: PartitionWriter, message: PendingMessage) -> None:
        self._acked(message)

    def failed(self, message: PendingMessage, _error: Exception) -> None:
        self._world.checks.given_up(_stored(message))

    def moved(self, _writer: PartitionWriter, _messages: Sequence[PendingMessage]) -> None:
        pass

    # --- what goes to Kafka -------------------------------------------------------------------

    def _pump(self, writer: PartitionWriter) -> None:
        """Sends the next batch, if none is on its way."""
        if writer.producer is None:
            writer.producer = ProducerId(self._world.new_number(), 0)
        batch = writer.take()
        if batch is None:
            return

        def done(answer: Answer, _offset: int) -> None:
            self.run_in(life, partial(self._answered, writer, batch, answer))

        life = self.life
        messages = tuple(map(_stored, batch.messages()))
        at_kafka = KafkaBatch(writer.producer.id, 0, batch.sequence + 1, messages)
        self._world.store.produce(_place(writer), at_kafka, done)

    def _answered(self, writer: PartitionWriter, batch: RecordBatch, answer: Answer) -> None:
        match answer:
            case Answer.STORED:
                writer.acked()
                for message in batch.messages():
                    self._acked(message)
                self._pump(writer)
            case Answer.SEALED:
                self._known().refused(writer, self._sched.now)
            case Answer.GAP | Answer.FENCED:
                raise ViolationError(f"{self.name} is told by {writer}: {answer.value}")
            case Answer.GONE | Answer.UNKNOWN:
                self._known().unanswered(writer, in_doubt=answer is Answer.UNKNOWN)
                self.later(_RETRY_S, partial(self._pump, writer))
        self._known().advance()

    def _acked(self, message: PendingMessage) -> None:
        stored = _stored(message)
        if is_shared(stored.key):
            self._world.shared.acked(stored)

    def _known(self) -> Sender[PartitionWriter]:
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

    def _resolved(self, writer: PartitionWriter, states: list[ProducerState] | None) -> None:
        if states is None:
            writer.resolving = False  # it is asked again
        else:
            self._world.settled_in_doubt += 1
            self._known().resolved(writer, is_stored(writer, states))
        self._known().advance()


def _place(writer: PartitionWriter) -> Place:
    return writer.segment.kafka_topic, writer.bucket


def _stored(message: PendingMessage) -> Message:
    """As it is stored."""
    key = message.key or b""
    return Message(key if isinstance(key, str) else key.decode(), int(message.value or b""))
