"""Producers, partitions that seal and connections that lose answers, in memory: for `sender`."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import ExitStack
from random import Random

from anabranch.client import Segment, TopicLayout, UnknownOutcomeError
from anabranch.client._producer.partition_writer import PartitionWriter, PendingMessage
from anabranch.client._producer.sender import Barrier, Sender
from anabranch.client._producer.settlement import first_of
from anabranch.core.hashing import bucket_of, hash32, segment_hash
from anabranch.core.topics.layout import SegmentLayout
from anabranch.core.topics.segment import SegmentInfo
from anabranch.devkit.causality import CausalityViolation, Span, turned_round

Place = tuple[int, int]  # segment, bucket


class Partition:
    """A Kafka partition: records, with who wrote them by which writer; whether it takes more."""

    def __init__(self) -> None:
        self.records: list[tuple[int, PartitionWriter, bytes, bytes]] = []
        self.sealed = False
        self.leads = False  # the first append finds that it does not yet

    def store(self, number: int, writer: PartitionWriter, message: PendingMessage) -> int:
        """One more record; returns its offset."""
        assert isinstance(message.key, bytes)
        assert message.value is not None
        self.records.append((number, writer, message.key, message.value))
        return len(self.records) - 1


class Append:
    """One message on its way; `offset` once the partition has it."""

    def __init__(self, message: PendingMessage) -> None:
        self.message = message
        self.offset = -1
        self.tries = 0


class Producer:
    """A shell of `Sender` without I/O: per writer, what librdkafka would have under way."""

    def __init__(self, number: int, world: SenderWorld) -> None:
        self.number = number
        self.world = world
        self.sender: Sender[PartitionWriter] = Sender(world.pushed(), self, math.inf)
        self.under_way: dict[PartitionWriter, deque[Append]] = defaultdict(deque)
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
        self.sender.send(PendingMessage(key, value))

    def wait(self, until_over: ExitStack) -> None:
        """Somebody waits for what was sent so far."""
        self.waits.append((until_over.enter_context(self.sender.barrier()), set(self.unsettled)))

    # --- what the sender has done -----------------------------------------------------------

    def make(self, incarnation: int, segment: Segment, bucket: int) -> PartitionWriter:
        return PartitionWriter(incarnation, segment, bucket)

    def append(self, writer: PartitionWriter, message: PendingMessage) -> bool:
        writer.sent(message.key, message.value)
        self.under_way[writer].append(Append(message))
        return True

    def resolve(self, writer: PartitionWriter) -> None:
        records = self.world.partitions[writer.segment.segment_id, writer.bucket].records
        tail = records[writer.last_offset + 1 :]
        beyond = sum(by is writer for _, by, _, _ in tail) - writer.unlocated
        try:
            found = first_of(len(writer.refused), beyond, writer.forgone)
        except UnknownOutcomeError as error:
            self.sender.unresolved(writer, str(error))
        else:
            self.sender.resolved(writer, [(-1, -1)] * found)

    def stored(self, _writer: PartitionWriter, message: PendingMessage, *_: int) -> None:
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

    def transmit(self, writer: PartitionWriter, answers_lost: bool) -> None:
        """The oldest append of a writer reaches its partition; its answer may be lost."""
        queue = self.under_way[writer]
        if not queue:
            return
        partition = self.world.partitions[writer.segment.segment_id, writer.bucket]
        if partition.sealed and self.world.random.random() < 0.3:
            self._refuse_out_of_turn(writer)
            return
        first = queue[0]
        first.tries += 1
        if not partition.leads and not partition.sealed:
            partition.leads = True
            if len(queue) > 1:  # the next one is stored, and taken for the proof of this one
                queue.popleft()
                writer.acked(-1)
                self.stored(writer, first.message)
            return
        if first.offset < 0 and not partition.sealed:
            first.offset = partition.store(self.number, writer, first.message)
        if answers_lost:
            return
        queue.popleft()
        if partition.sealed and (first.offset < 0 or first.tries > 1):
            # Kafka refuses by size before it looks whether it has the batch already.
            self.sender.refused(writer, first.message, first.tries > 1, 0.0)
        else:
            writer.acked(first.offset)
            self.stored(writer, first.message)

    def _refuse_out_of_turn(self, writer: PartitionWriter) -> None:
        """A sealed partition puts an append off, as while a replica is missing, and refuses a later
        one meanwhile.
        """
        queue = self.under_way[writer]
        later = self.world.random.choice(
            [append for append in queue if append.offset < 0] or [None]
        )
        if later is not None:
            queue.remove(later)
            self.sender.refused(writer, later.message, later.tries > 0, 0.0)

    def give_up(self, writer: PartitionWriter) -> None:
        """The time of what is under way is up; some of it may have arrived, or arrive just now."""
        queue = self.under_way[writer]
        partition = self.world.partitions[writer.segment.segment_id, writer.bucket]
        arriving = self.world.random.randrange(len(queue) + 1) if partition.leads else 0
        for place, append in enumerate(queue):
            if place < arriving and append.offset < 0 and not partition.sealed:
                partition.store(self.number, writer, append.message)
            writer.failed()
            self.sender.fail(append.message, UnknownOutcomeError("its time was up"))
        queue.clear()
        # Else as when Kafka refuses a message for a reason of its own.
        if writer.open and self.world.random.random() < 0.5:
            self.sender.send_on(self.sender.router.renew(writer))

    @property
    def is_idle(self) -> bool:
        leaving = self.sender.router.leaving
        return not leaving and not any(self.under_way.values()) and not self.behind


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
        self._partition = PartitionWriter(0, world.pushed().active[0], -1)  # nobody's

    def send(self, key: bytes) -> None:
        """One message, which is there and acknowledged, or refused and forgotten."""
        position = hash32(key)
        part = self._world.layout.find_active_segment(segment_hash(position))
        target = self._world.partitions[part.segment_id, bucket_of(position, part.buckets)]
        if target.sealed:
            return
        self._sent += 1
        value = b"%d:%d" % (self._number, self._sent)
        self._world.history.sent(key, value)
        target.leads = True
        target.records.append((self._number, self._partition, key, value))
        self._world.history.acked(key, value)


class SenderWorld:
    """One topic, its partitions, and its producers; all choices come from `random`."""

    def __init__(self, random: Random, producers: int, gives_up: bool = False) -> None:
        self.random = random
        self.gives_up = gives_up
        self.history = Histories()
        self.layout = SegmentLayout.initial(random.choice((1, 2, 3)), 4)
        self.partitions: dict[Place, Partition] = {}
        self.children: tuple[SegmentInfo, ...] = ()
        self.parents: tuple[int, ...] = ()
        self.sealing = False
        self._make(self.layout.active)
        self.producers = [Producer(number, self) for number in range(producers)]
        self.stranger = Stranger(-1, self)

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
        if what < 0.4 and at + 1 < len(active):
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
        busy = [partition for partition, queue in producer.under_way.items() if queue]
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
                for partition in list(producer.under_way):
                    producer.transmit(partition, answers_lost=False)
                producer.sender.advance()
        raise AssertionError("it does not come to rest")

    def stored(self, by: int | None = None) -> dict[bytes, list[bytes]]:
        """Values by key, of everybody or of one producer, as a consumer gets them in order."""
        values: dict[bytes, list[bytes]] = defaultdict(list)
        for place in sorted(self.partitions):
            for writer, _, key, value in self.partitions[place].records:
                if by in (None, writer):
                    values[key].append(value)
        return values

    def received(self, producer: Producer) -> dict[bytes, list[bytes]]:
        return self.stored(producer.number)
