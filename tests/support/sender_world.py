"""Producers, partitions that seal and connections that lose answers, in memory: for `sender`."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import ExitStack
from random import Random

from anabranch.client import DeliveryError, Segment, TopicLayout, UnknownOutcomeError
from anabranch.client._producer.batch import BatchLimits, PendingMessage, ProducerId, RecordBatch
from anabranch.client._producer.outcomes import AppendOutcome, outcome_of
from anabranch.client._producer.partition_writer import PartitionWriter
from anabranch.client._producer.sender import Barrier, Sender
from anabranch.client._producer.settlement import is_stored
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import SegmentInfo, legacy_segment, parents_of
from anabranch.core.hashing import hash32, segment_hash
from anabranch.core.partitioners import Partitioner
from anabranch.devkit.causality import CausalityViolation, Span, turned_round
from anabranch.wire.kafka.producer_state import ProducerState
from anabranch.wire.kafka.producing import KafkaCode

Place = tuple[int, int]  # segment, bucket


class Partition:
    """A Kafka partition: records with who wrote them, whether it takes more, and what it knows of
    each producer: under which epoch, and the number of its last message here.
    """

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes, bytes]] = []
        self.sealed = False
        self.leads = False  # it refuses the first batch, since it does not yet
        self._last: dict[int, tuple[int, int]] = {}

    def append(self, number: int, producer: ProducerId, batch: RecordBatch) -> int:
        """Stores a batch as Kafka does for an idempotent producer; returns its error code."""
        if self.sealed:
            return KafkaCode.MESSAGE_TOO_LARGE  # it looks at the size before the number
        if not self.leads:
            self.leads = True
            return KafkaCode.LEADER_NOT_AVAILABLE
        epoch, last = self._last.get(producer.id, (producer.epoch, -1))
        if producer.epoch == epoch and batch.sequence <= last:
            return KafkaCode.DUPLICATE_SEQUENCE_NUMBER
        if batch.sequence != last + 1:
            return KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self._last[producer.id] = (producer.epoch, batch.sequence + batch.count - 1)
        for message in batch.messages():
            assert isinstance(message.key, bytes)
            assert message.value is not None
            self.records.append((number, message.key, message.value))
        return KafkaCode.NONE

    def states(self) -> list[ProducerState]:
        """What its leader tells of producers."""
        return [ProducerState(who, *known) for who, known in self._last.items()]


class Producer:
    """A shell of `Sender` without I/O, which appends a batch when it is told to."""

    def __init__(self, number: int, world: SenderWorld) -> None:
        self.number = number
        self.world = world
        self.sender: Sender[PartitionWriter] = Sender(world.pushed(), self, math.inf)
        self.sent: dict[bytes, list[bytes]] = defaultdict(list)
        self.behind: deque[TopicLayout] = deque()  # layouts pushed and not yet seen
        self.unknown: set[tuple[object, object]] = set()  # keys and values that were given up
        self.unsettled: set[tuple[object, object]] = set()
        self.waits: list[
            tuple[Barrier, set[tuple[object, object]]]
        ] = []  # each with what is before

    def send(self, key: bytes) -> None:
        value = b"%d:%d" % (self.number, len(self.sent[key]))
        self.sent[key].append(value)
        self.unsettled.add((key, value))
        self.world.history.sent(key, value)
        easily = self.sender.router.known(key)
        assert easily is None or easily is self.sender.router.route(key)
        waits = self if self.world.random.random() < 0.5 else None
        self.sender.send(PendingMessage(key, value, on_delivery=waits))

    def wait(self, until_over: ExitStack) -> None:
        """Somebody waits for what was sent so far."""
        self.waits.append((until_over.enter_context(self.sender.barrier()), set(self.unsettled)))

    # --- what the sender has done -----------------------------------------------------------

    def make(self, incarnation: int, segment: Segment, bucket: int) -> PartitionWriter:
        limits = BatchLimits(messages=self.world.random.choice((1, 3, 100)))
        return PartitionWriter(incarnation, segment, bucket, limits, copies=1)

    def begun(self, writer: PartitionWriter) -> None:
        pass

    def resolve(self, writer: PartitionWriter) -> None:
        partition = self.world.partition_of(writer)
        try:
            found = is_stored(writer, partition.states())
        except UnknownOutcomeError as error:
            self.sender.unresolved(writer, str(error))
        else:
            self.sender.resolved(writer, found)

    def stored(self, _writer: PartitionWriter, message: PendingMessage) -> None:
        self.unsettled.remove((message.key, message.value))
        assert isinstance(message.key, bytes)
        assert message.value is not None
        self.world.history.acked(message.key, message.value)

    def failed(self, message: PendingMessage, _error: Exception) -> None:
        self.unsettled.remove((message.key, message.value))
        self.unknown.add((message.key, message.value))

    def moved(self, writer: PartitionWriter, messages: Sequence[PendingMessage]) -> None:
        pass

    # --- what happens to it -------------------------------------------------------------------

    def see_layout(self) -> None:
        if self.behind:
            self.sender.update(self.behind.popleft(), 0.0)

    def busy(self) -> list[PartitionWriter]:
        """Those that have something to append."""
        return [writer for writer in self.sender.router.writers() if writer.outstanding]

    def transmit(self, writer: PartitionWriter, answers_lost: bool) -> None:
        """The next batch of a writer reaches its partition; its answer may be lost."""
        if writer.producer is None:
            writer.producer = ProducerId(next(self.world.ids), 0)
        batch = writer.take()
        if batch is None:
            return
        partition = self.world.partition_of(writer)
        above = [self.world.layout.segments[each] for each in writer.segment.info.parent_ids]
        if any(part.is_legacy and part.is_active for part in above):
            raise AssertionError(f"{writer} takes keys whose adopted topic may still take them")
        answer = partition.append(self.number, writer.producer, batch)
        if answers_lost:
            self.world.late.append((partition, self.number, writer.producer, batch))
            self.sender.unanswered(writer, in_doubt=True)
            return
        match outcome_of(answer):
            case AppendOutcome.STORED:
                writer.acked()
                for message in batch.messages():
                    self.stored(writer, message)
            case AppendOutcome.SEALED:
                self.sender.refused(writer, 0.0)
            case AppendOutcome.NOT_YET:
                self.sender.unanswered(writer, in_doubt=False)
            case _:
                raise AssertionError(f"Kafka answers {answer}")

    def give_up(self, writer: PartitionWriter) -> None:
        """The time of what is under way is up; some of it may have arrived, or arrive just now."""
        if self.world.random.random() < 0.5 and writer.producer is not None:
            batch = writer.take()  # its answer comes too late
            if batch is not None and self.world.random.random() < 0.5:
                self.world.partition_of(writer).append(self.number, writer.producer, batch)
        self.sender.give_up(writer, "its time was up", DeliveryError("its time was up"))

    @property
    def is_idle(self) -> bool:
        return not self.sender.router.leaving and not self.busy() and not self.behind


class Histories:
    """When each message of a key was sent and acknowledged, by whichever sender."""

    def __init__(self) -> None:
        self._instants = itertools.count()
        self._spans: dict[bytes, dict[bytes, Span]] = defaultdict(dict)

    def sent(self, key: bytes, value: bytes) -> None:
        self._spans[key][value] = Span(next(self._instants))

    def acked(self, key: bytes, value: bytes) -> None:
        spans = self._spans[key]
        spans[value] = Span(spans[value].sent, next(self._instants))

    def turned(self, found: dict[bytes, list[bytes]]) -> list[CausalityViolation[bytes]]:
        return [
            each for key, values in found.items() for each in turned_round(values, self._spans[key])
        ]


class Stranger:
    """A client of Kafka that knows nothing of seals: it writes where the layout last committed."""

    def __init__(self, number: int, world: SenderWorld) -> None:
        self._number = number
        self._world = world
        self._sent = 0

    def send(self, key: bytes) -> None:
        """One message, which is there and acknowledged, or refused and forgotten."""
        position = hash32(key)
        part = self._world.layout.find_active_segment(segment_hash(position))
        target = self._world.partitions[part.segment_id, part.bucket(key, position)]
        if target.sealed:
            return
        self._sent += 1
        value = b"%d:%d" % (self._number, self._sent)
        self._world.history.sent(key, value)
        target.leads = True
        target.records.append((self._number, key, value))
        self._world.history.acked(key, value)


class SenderWorld:
    """One topic, its partitions, and its producers; all choices come from `random`."""

    def __init__(
        self, random: Random, producers: int, gives_up: bool = False, *, adopted: bool = False
    ) -> None:
        self.random = random
        self.gives_up = gives_up
        self.history = Histories()
        self.layout = SegmentLayout.initial(random.choice((1, 2, 3)), 4)
        if adopted:
            partitioner = random.choice(tuple(Partitioner))
            old = legacy_segment("old", "", random.choice((1, 3, 5)), partitioner.value)
            self.layout = SegmentLayout(0, 1, (old,))
        self.partitions: dict[Place, Partition] = {}
        self.ids = itertools.count()
        # Appends without an answer, which may reach their partition again, at any time.
        self.late: list[tuple[Partition, int, ProducerId, RecordBatch]] = []
        self.children: tuple[SegmentInfo, ...] = ()
        self.parents: tuple[int, ...] = ()
        self.sealing = False
        self._make(self.layout.active)
        self.producers = [Producer(number, self) for number in range(producers)]
        self.stranger = Stranger(-1, self)

    def partition_of(self, writer: PartitionWriter) -> Partition:
        """Where that writer appends."""
        return self.partitions[writer.segment.segment_id, writer.bucket]

    def begin_producer(self) -> None:
        """One more, which begins with the newest layout."""
        self.producers.append(Producer(len(self.producers), self))

    def _make(self, parts: tuple[SegmentInfo, ...]) -> None:
        for part in parts:
            for bucket in range(part.buckets):
                self.partitions[part.segment_id, bucket] = Partition()

    def pushed(self) -> TopicLayout:
        def seen(part: SegmentInfo) -> Segment:
            return Segment(part, f"t{part.segment_id}")

        return TopicLayout(
            "public/default/orders",
            incarnation=1,
            epoch=self.layout.epoch,
            segments={each: seen(part) for each, part in self.layout.segments.items()},
            children=tuple(seen(part) for part in self.children),
            parents_under_way=frozenset(self.parents),
            sealing=self.sealing,
        )

    def _push(self) -> None:
        for producer in self.producers:
            producer.behind.append(self.pushed())

    def operate(self) -> None:
        """The next step of the operation under way, or the first of a new one."""
        if not self.parents:
            self._begin()
        elif not self.sealing:
            self.sealing = True
            self._push()
        else:
            places = [
                (parent, bucket)
                for parent in self.parents
                for bucket in range(self.layout.segments[parent].buckets)
            ]
            open_ones = [place for place in places if not self.partitions[place].sealed]
            if open_ones:
                self.partitions[self.random.choice(open_ones)].sealed = True
            else:
                self._commit()

    def _begin(self) -> None:
        active = self.layout.active
        at = self.random.randrange(len(active))
        what = self.random.random()
        if active[at].is_legacy:
            self.children = self.layout.prepare_children(self.random.randrange(1, 5))
            self.parents = parents_of(self.children)
        elif what < 0.15:
            self.children = self.layout.prepare_children(self.random.choice((1, 2, 3, 5, 8)))
            self.parents = parents_of(self.children)
            if not self.children:
                return
        elif what < 0.45 and at + 1 < len(active):
            self.parents = (active[at].segment_id, active[at + 1].segment_id)
            self.children = self.layout.merge_children(*self.parents)
        elif what < 0.6:
            self.parents = (active[at].segment_id,)
            self.children = self.layout.rebucket_children(*self.parents, active[at].buckets % 5 + 1)
        elif len(active) < 8:
            self.parents = (active[at].segment_id,)
            self.children = self.layout.split_children(*self.parents)
        else:
            return
        self._make(self.children)
        self._push()

    def _commit(self) -> None:
        ends = {
            parent: tuple(
                len(self.partitions[parent, bucket].records)
                for bucket in range(self.layout.segments[parent].buckets)
            )
            for parent in self.parents
        }
        self.layout = self.layout.replaced(self.parents, self.children, ends, 0)
        self.parents, self.children, self.sealing = (), (), False
        self._push()

    def step(self, keys: list[bytes]) -> None:
        """Something happens."""
        producer = self.random.choice(self.producers)
        busy = producer.busy()
        match self.random.randrange(10):
            case 0 | 1 | 2 | 3:
                producer.send(self.random.choice(keys))
            case 4 | 5 | 6:
                if busy:
                    producer.transmit(self.random.choice(busy), self.random.random() < 0.2)
                    producer.sender.advance()
            case 7:
                producer.see_layout()
                producer.sender.advance()
                if self.late and not self.gives_up:
                    partition, number, who, batch = self.random.choice(self.late)
                    partition.append(number, who, batch)
            case _:
                if self.random.random() < 0.5:
                    self.operate()
                elif self.gives_up and self.random.random() < 0.2 and busy:
                    producer.give_up(self.random.choice(busy))
                    producer.sender.advance()

    def settle(self, rounds_max: int = 10_000) -> None:
        """Ends the operation under way and lets everything arrive."""
        while self.parents:
            self.operate()
        for _ in range(rounds_max):
            if all(producer.is_idle for producer in self.producers):
                return
            for producer in self.producers:
                producer.see_layout()
                for writer in producer.busy():
                    producer.transmit(writer, answers_lost=False)
                producer.sender.advance()
        raise AssertionError("it does not come to rest")

    def stored(self, by: int | None = None) -> dict[bytes, list[bytes]]:
        """Values by key, of everybody or of one producer, as a consumer gets them in order."""
        values: dict[bytes, list[bytes]] = defaultdict(list)
        for place in sorted(self.partitions):
            for number, key, value in self.partitions[place].records:
                if by in (None, number):
                    values[key].append(value)
        return values

    def received(self, producer: Producer) -> dict[bytes, list[bytes]]:
        return self.stored(producer.number)
