"""Producers, partitions that seal and connections that lose answers, in memory: for `flows`."""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import ExitStack
from random import Random

from anabranch.client.barriers import Barrier, Barriers
from anabranch.client.errors import UnknownOutcomeError
from anabranch.client.flows import Flow, FlowTable, Held, Step
from anabranch.client.settlement import first_of
from anabranch.client.topic_layout import Segment, TopicLayout
from anabranch.core.layout import SegmentLayout
from anabranch.core.segments import SegmentInfo

Place = tuple[int, int]  # segment, bucket


class Partition:
    """A Kafka partition: records with who wrote them by which flow; whether it takes more."""

    def __init__(self) -> None:
        self.records: list[tuple[int, Flow, bytes, bytes]] = []
        self.sealed = False
        self.leads = False  # the first append finds that it does not yet


class Append:
    """One message on its way; `offset` once the partition has it."""

    def __init__(self, held: Held) -> None:
        self.held = held
        self.offset = -1
        self.tries = 0


class Sender:
    """A producer without I/O: its flows, and per flow what librdkafka would have under way."""

    def __init__(self, number: int, world: FlowWorld) -> None:
        self.number = number
        self.world = world
        self.table: FlowTable[Flow] = FlowTable(world.pushed(), Flow)
        self.under_way: dict[Flow, deque[Append]] = defaultdict(deque)
        self.sent: dict[bytes, list[bytes]] = defaultdict(list)
        self.behind: deque[TopicLayout] = deque()  # layouts pushed and not yet seen
        self.unknown: set[tuple[object, object]] = set()  # keys and values that were given up
        self.unsettled: set[tuple[object, object]] = set()
        self.barriers = Barriers()
        self.waits: list[
            tuple[Barrier, set[tuple[object, object]]]
        ] = []  # each with what is before

    def send(self, key: bytes) -> None:
        value = b"%d:%d" % (self.number, len(self.sent[key]))
        self.sent[key].append(value)
        self.unsettled.add((key, value))
        self._append(Held(key, value))

    def _append(self, held: Held) -> None:
        flow = self.table.routes.get(held.key or b"")
        if flow is None or not flow.ready:
            flow = self.table.route(held.key)
        if not flow.may_append:
            flow.held.append(held)
            return
        flow.sent()
        self.under_way[flow].append(Append(held))
        self.barriers.appended(held, flow)

    def wait(self, until_over: ExitStack) -> None:
        """Somebody waits for what was sent so far."""
        barrier = until_over.enter_context(self.barriers.opened(self.table.flows()))
        self.waits.append((barrier, set(self.unsettled)))

    def _settled(self, held: Held) -> None:
        self.barriers.settled(held)
        self.unsettled.remove((held.key, held.value))

    def see_layout(self) -> None:
        if self.behind:
            self.table.update(self.behind.popleft())

    def transmit(self, flow: Flow, answers_lost: bool) -> None:
        """The oldest append of a flow reaches its partition; its answer may be lost."""
        queue = self.under_way[flow]
        if not queue:
            return
        first = queue[0]
        first.tries += 1
        partition = self.world.partitions[flow.segment.segment_id, flow.bucket]
        if not partition.leads and not partition.sealed:
            partition.leads = True
            if len(queue) > 1:  # the next one is stored, and taken for the proof of this one
                queue.popleft()
                flow.acked(-1)
                self._settled(first.held)
            return
        if first.offset < 0 and not partition.sealed:
            first.offset = len(partition.records)
            key, value = first.held.key, first.held.value
            assert isinstance(key, bytes)
            assert value is not None
            partition.records.append((self.number, flow, key, value))
        if answers_lost:
            return
        queue.popleft()
        if partition.sealed and (first.offset < 0 or first.tries > 1):
            # Kafka refuses by size before it looks whether it has the batch already.
            self.table.close(flow)
            flow.was_refused(first.held, in_doubt=first.tries > 1)
            self.barriers.refused(first.held, flow)
        else:
            flow.acked(first.offset)
            self._settled(first.held)
            self._open_up(flow)

    def give_up(self, flow: Flow) -> None:
        """The time of what is under way is up; some of it may have arrived, or arrive just now."""
        queue = self.under_way[flow]
        partition = self.world.partitions[flow.segment.segment_id, flow.bucket]
        arriving = self.world.random.randrange(len(queue) + 1) if partition.leads else 0
        for place, append in enumerate(queue):
            key, value = append.held.key, append.held.value
            assert isinstance(key, bytes)
            assert value is not None
            if place < arriving and append.offset < 0 and not partition.sealed:
                partition.records.append((self.number, flow, key, value))
            flow.failed()
            self._settled(append.held)
            self.unknown.add((key, value))
        queue.clear()
        if flow.open and self.world.random.random() < 0.5:
            for held in self.table.renew(flow):
                self._append(held)
        elif flow.open:  # as when Kafka refuses a message for a reason of its own
            self._open_up(flow)

    def _open_up(self, flow: Flow) -> None:
        if flow.may_append:
            messages = list(flow.held)
            flow.held.clear()
            for held in messages:
                self._append(held)

    def advance(self) -> None:
        """What the dispatcher does between two polls."""
        for flow in list(self.table.leaving):
            step = flow.step(self.table.layout)
            if step is Step.RESOLVE:
                records = self.world.partitions[flow.segment.segment_id, flow.bucket].records
                tail = records[flow.last_offset + 1 :]
                beyond = sum(by is flow for _, by, _, _ in tail) - flow.unlocated
                try:
                    known = flow.resolved(first_of(len(flow.refused), beyond, flow.forgone))
                except UnknownOutcomeError:
                    known = flow.fail_refused()
                    self.unknown.update((held.key, held.value) for held in known)
                for held in known:
                    self._settled(held)
                step = flow.step(self.table.layout)
            if step is Step.MOVE:
                for held in self.table.leave(flow):
                    self._append(held)

    @property
    def is_idle(self) -> bool:
        return not self.table.leaving and not any(self.under_way.values()) and not self.behind


class FlowWorld:
    """One topic, its partitions, and its senders; all choices come from `random`."""

    def __init__(self, random: Random, senders: int, gives_up: bool = False) -> None:
        self.random = random
        self.gives_up = gives_up
        self.layout = SegmentLayout.initial(random.choice((1, 2, 3)), 4)
        self.partitions: dict[Place, Partition] = {}
        self.children: tuple[SegmentInfo, ...] = ()
        self.parents: tuple[int, ...] = ()
        self.sealing = False
        self._make(self.layout.active)
        self.senders = [Sender(number, self) for number in range(senders)]

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
        for sender in self.senders:
            sender.behind.append(self.pushed())

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
        if self.random.random() < 0.5 and at + 1 < len(active):
            self.parents = (active[at].segment_id, active[at + 1].segment_id)
            self.children = self.layout.merge_children(*self.parents)
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
        sender = self.random.choice(self.senders)
        match self.random.randrange(10):
            case 0 | 1 | 2 | 3:
                sender.send(self.random.choice(keys))
            case 4 | 5 | 6:
                busy = [flow for flow, queue in sender.under_way.items() if queue]
                if busy:
                    sender.transmit(self.random.choice(busy), self.random.random() < 0.2)
                    sender.advance()
            case 7:
                sender.see_layout()
                sender.advance()
            case _:
                if self.random.random() < 0.5:
                    self.operate()
                elif self.gives_up and self.random.random() < 0.2:
                    busy = [flow for flow, queue in sender.under_way.items() if queue]
                    if busy:
                        sender.give_up(self.random.choice(busy))
                        sender.advance()

    def settle(self, rounds_max: int = 10_000) -> None:
        """Ends the operation under way and lets everything arrive."""
        while self.parents:
            self.operate()
        for _ in range(rounds_max):
            if all(sender.is_idle for sender in self.senders):
                return
            for sender in self.senders:
                sender.see_layout()
                for flow in list(sender.under_way):
                    sender.transmit(flow, answers_lost=False)
                sender.advance()
        raise AssertionError("it does not come to rest")

    def received(self, sender: Sender) -> dict[bytes, list[bytes]]:
        """A sender's values by key, in the order in which a consumer gets them."""
        values: dict[bytes, list[bytes]] = defaultdict(list)
        for place in sorted(self.partitions):
            for writer, _, key, value in self.partitions[place].records:
                if writer == sender.number:
                    values[key].append(value)
        return values
