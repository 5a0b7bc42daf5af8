"""Kafka's client, as far as producers of the simulation need one: batches, tries and epochs."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Protocol

from anabranch.client import Segment
from anabranch.client._producer.partition_writer import PartitionWriter, PendingMessage
from simulation.scheduler import Action, ViolationError
from simulation.segment_store import Answer, Batch, Message, SegmentStore

BATCH_MAX = 5
RETRY_S = 0.1


class Owner(Protocol):
    """Who sends by a client, and is told."""

    life: int

    def later(self, delay_s: float, action: Action) -> None: ...
    def run_in(self, life: int, action: Action) -> None: ...
    def acked(self, message: Message) -> None: ...
    def refused(self, writer: Writer, message: PendingMessage, in_doubt: bool) -> None: ...
    def answered(self) -> None: ...


class Client:
    """Idempotent. After a refusal it waits for the answers to all that is under way and begins a
    new epoch: what is in doubt then is sent again, and is new to Kafka.
    """

    def __init__(self, number: int, store: SegmentStore, owner: Owner) -> None:
        self.number = number
        self._store = store
        self._owner = owner
        self._epoch = 0
        self._ends_epoch = False
        self._awaited = 0  # answers
        self._writers: list[Writer] = []

    def add(self, writer: Writer) -> None:
        self._writers.append(writer)

    def pump(self, writer: Writer) -> None:
        """Sends the next batch, if none is on its way."""
        if not writer.batch and writer.queue and not self._ends_epoch:
            count = min(len(writer.queue), BATCH_MAX)
            writer.batch = tuple(writer.queue.popleft() for _ in range(count))
            writer.unheard = False
            self._try(writer)

    def _try(self, writer: Writer) -> None:
        messages, life = tuple(map(stored, writer.batch)), self._owner.life
        self._awaited += 1

        def done(answer: Answer, offset: int) -> None:
            self._owner.run_in(life, partial(self._answered, writer, answer, offset))

        batch = Batch(self.number, self._epoch, writer.first, messages)
        self._store.produce(writer.place, batch, done)

    def _try_again(self, writer: Writer, epoch: int) -> None:
        if self._epoch == epoch and not self._ends_epoch:
            self._try(writer)

    def _begin_epoch(self) -> None:
        self._epoch += 1
        self._ends_epoch = False
        for writer in self._writers:
            writer.first = 1
            if writer.batch:
                self._try(writer)
            else:
                self.pump(writer)

    def _answered(self, writer: Writer, answer: Answer, offset: int) -> None:
        self._awaited -= 1
        batch = writer.batch
        match answer:
            case Answer.STORED:
                writer.first += len(batch)
                for place, message in enumerate(batch):
                    writer.acked(offset - len(batch) + 1 + place)
                    self._owner.acked(stored(message))
                writer.batch = ()
                self.pump(writer)
            case Answer.SEALED | Answer.GONE:
                for message in batch:
                    self._owner.refused(writer, message, writer.unheard)
                while writer.queue:
                    self._owner.refused(writer, writer.queue.popleft(), in_doubt=False)
                writer.batch = ()
                self._ends_epoch = True
            case Answer.GAP | Answer.FENCED:
                raise ViolationError(f"{self.number} is told by {writer}: {answer.value}")
            case Answer.UNKNOWN:
                writer.unheard = True
                self._owner.later(RETRY_S, partial(self._try_again, writer, self._epoch))
        if self._ends_epoch and not self._awaited:
            self._begin_epoch()
        self._owner.answered()


class Writer(PartitionWriter):
    """A partition writer, and the queue of its client for its partition."""

    __slots__ = ("batch", "client", "copies", "first", "queue", "unheard")

    def __init__(
        self, incarnation: int, segment: Segment, bucket: int, client: Client, copies: int
    ) -> None:
        super().__init__(incarnation, segment, bucket)
        self.client = client
        self.copies = copies
        client.add(self)
        self.queue: deque[PendingMessage] = deque()
        self.batch: tuple[PendingMessage, ...] = ()  # on its way
        self.first = 1
        self.unheard = False  # a try of the batch on its way was not answered

    @property
    def has_copies(self) -> bool:
        return self.copies > 1

    @property
    def place(self) -> tuple[str, int]:
        return self.segment.kafka_topic, self.bucket


def stored(message: PendingMessage) -> Message:
    """As it is stored."""
    key = message.key or b""
    return Message(key if isinstance(key, str) else key.decode(), int(message.value or b""))
