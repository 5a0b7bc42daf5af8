"""A consumer over all topics, simulated: the SDK's own decisions on which topics it has
(`client/_many/membership.py`) and whose turn it is (`turns.py`), with a consumer for each topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.client._consumer.assignment import Assignment, Holding
from anabranch.client._many.membership import MemberState, OrderKind, TopicMembership
from anabranch.client._many.turns import TopicTurns
from anabranch.client._topics.topic_list import ToldTopics
from anabranch.core.names import full_name
from simulation.connections import Connection
from simulation.consumers import AT_ONCE, SETTLE_S, Consumer, Reader
from simulation.scheduler import Life, ViolationError
from simulation.segment_store import Message, Place

if TYPE_CHECKING:
    from simulation.topic_world import TopicWorld

SUBSCRIPTION = "many"
OPENING_MAX = 2
OPEN_S = 3.0  # a topic that is not subscribed to by then is tried again later
LIST_S = 0.3
DRIVE_S = 0.1
FAULTS = ("crash", "restart", "pause", "cut", "stale")


class Part(Consumer):
    """One topic's consumer; what it may give out, the whole one says."""

    def __init__(self, world: TopicWorld, whole: ManyReader, topic: str, rate: float) -> None:
        self.is_open = False
        self.taken = 0
        self._whole = whole
        super().__init__(world, topic, SUBSCRIPTION, "all", rate)

    def start(self) -> None:
        self.is_open = False
        super().start()
        self.later(OPEN_S, self._must_be_open)

    def crash(self) -> None:
        super().crash()
        self._whole.part_ended(self)

    @property
    def in_flight(self) -> bool:
        """As that of the SDK's ordered consumers."""
        return any(each.is_held and each.in_flight for each in self.core.holdings.values())

    def give(self) -> None:
        """What has come is given out, some of it."""
        self._deliver(self.local_now())
        self._work(self.local_now())

    def begin_anew(self) -> None:
        """Its subscription is gone, and with it this consumer."""
        self._fails()

    def _must_be_open(self) -> None:
        if not self.is_open:
            self._fails()

    def _fails(self) -> None:
        self._whole.part_failed(self)
        if not self.is_open:
            self.crash()

    def _subscribed(self, connection: Connection, told: Assignment) -> None:
        super()._subscribed(connection, told)
        if not self.is_open and connection is self._connection:
            self.is_open = True
            self._whole.part_opened(self)

    def _read(self, number: int, reader: Reader, now: float) -> None:
        if self._whole.giving is self:
            super()._read(number, reader, now)
        else:
            self._whole.part_readable(self)

    def _taken(
        self, holding: Holding, place: Place, end: int, message: Message, now: float
    ) -> None:
        self.taken += 1
        self._whole.must_have(self)
        super()._taken(holding, place, end, message, now)


class ManyReader(Life):
    """Its process: one clock, one membership, and a part for each topic there may be."""

    def __init__(self, world: TopicWorld, rate: float) -> None:
        super().__init__(world.sched)
        self.parts = {topic: Part(world, self, topic, rate) for topic in world.topics}
        self.giving: Part | None = None
        self.joined = self.left = 0
        self.members = TopicMembership(SETTLE_S, OPENING_MAX)
        self._world = world
        self._turns = TopicTurns(AT_ONCE)
        self._told = ToldTopics()
        self._give_planned = False
        self._deaf_until = 0.0  # it hears of no changes: its connection is lost
        self._rate = rate

    def __repr__(self) -> str:
        return f"{SUBSCRIPTION}#{self.life}"

    def local_now(self) -> float:
        return self._sched.now * self._rate

    # --- life ---------------------------------------------------------------------------

    def start(self) -> None:
        """Begins, with nothing but what Kafka and the nodes have."""
        self.life += 1
        self.members = TopicMembership(SETTLE_S, OPENING_MAX)
        self._turns = TopicTurns(AT_ONCE)
        self._told = ToldTopics()
        self._give_planned = False
        self._stop.end()
        self.later(0.0, self._hear)
        self.later(0.0, self._drive)

    def strike(self, kind: str, duration_s: float) -> None:
        """Something goes wrong with it."""
        self._sched.note(f"fault {kind} {self} for {duration_s:.1f} s")
        match kind:
            case "pause":
                self.pause(duration_s)
                for part in self.parts.values():
                    part.pause(duration_s)
            case "cut":
                for part in self.parts.values():
                    part.cut_until = self._sched.now + duration_s
            case "stale":
                self._deaf_until = self._sched.now + duration_s
            case _:
                self._crash()
                self._sched.after(0.1 if kind == "restart" else duration_s, self.start)

    def calm(self) -> None:
        """The faults are over."""
        self._deaf_until = 0.0
        self.resume()
        for part in self.parts.values():
            part.cut_until = 0.0
            part.resume()

    def _crash(self) -> None:
        self.life += 1  # nothing comes of what was planned
        self.members = TopicMembership(SETTLE_S, OPENING_MAX)
        for part in self.parts.values():
            part.crash()

    # --- topics -------------------------------------------------------------------------

    def _hear(self) -> None:
        """What some node tells of which topics there are; whoever it is may be behind."""
        self.later(LIST_S, self._hear)
        heard = None
        if self._sched.now >= self._deaf_until:
            heard = self._world.topics_heard_of()
        if heard is None:
            return
        change, now = self._told.replace(map(full_name, heard)), self.local_now()
        self.members.unlisted(change.removed, now)
        self.members.listed(change.added, now)
        for topic in change.removed:
            self._turns.leave(topic)
        self._do()

    def _drive(self) -> None:
        self.later(DRIVE_S, self._drive)
        self._do()

    def _do(self) -> None:
        now = self.local_now()
        for topic in self.members.draining:
            if not self.parts[topic].in_flight:
                self.members.settled(topic, now)
        for order in self.members.orders(now):
            part = self.parts[order.topic]
            self._sched.note(f"{self} {order.kind.name} {order.topic}")
            if order.kind is OrderKind.OPEN:
                part.start()
            elif part.alive and part.is_open:
                self.left += 1
                part.close()
            else:
                part.crash()
                self.part_ended(part)

    def part_opened(self, part: Part) -> None:
        """As ordered."""
        self.joined += 1
        self.members.opened(part.topic, self.local_now())
        self.part_readable(part)

    def part_failed(self, part: Part) -> None:
        """It could not be opened, or goes on no more."""
        self.members.failed(part.topic, self.local_now())
        self._turns.leave(part.topic)

    def part_ended(self, part: Part) -> None:
        """Nothing of it is left."""
        self.members.closed(part.topic, self.local_now())

    # --- messages -----------------------------------------------------------------------

    def part_readable(self, part: Part) -> None:
        """There may be something to give out."""
        if self.members.state(part.topic) is MemberState.OPEN:
            self._turns.ready(part.topic)
            if not self._give_planned:
                self._give_planned = True
                self.later(self._world.store.latency_s(), self._give)

    def _give(self) -> None:
        self._give_planned = False
        while self._turns:
            topic, _ = self._turns.next()
            part = self.parts[topic]
            before = part.taken
            self.giving = part
            part.run_in(part.life, part.give)
            self.giving = None
            self._turns.took(topic, part.taken - before)
            if part.taken > before:
                break
        if self._turns:
            self._give_planned = True
            self.later(self._world.store.latency_s(), self._give)

    def must_have(self, part: Part) -> None:
        """Of a topic that is not here, or goes, nothing is given out."""
        state = self.members.state(part.topic)
        if state is not MemberState.OPEN:
            raise ViolationError(f"{self} gives out of {part.topic}, which is {state}")
        if part.topic not in self._told.topics:
            raise ViolationError(f"{self} gives out of {part.topic}, which the list has no more")

    # --- after the faults ---------------------------------------------------------------

    def unsettled(self) -> list[str]:
        """What keeps it from having the topics that there are, in words."""
        truth = self._world.cluster.checks.truth
        found = []
        for name in self.parts:
            topic = truth.topic(name)
            wanted = MemberState.OPEN if topic is not None and topic.is_open else None
            if self.members.state(name) is not wanted:
                found.append(f"{self} has {name} as {self.members.state(name)}, not {wanted}")
        return found
