"""A stream consumer, simulated: its real decisions, in a process with a clock of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from anabranch.broker.topics.subscriptions.consumers import ConsumerRequest
from anabranch.channel.kafka.offsets import EARLIEST, LATEST
from anabranch.client._consumer.assignment import Assignment, SegmentBucket
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.holding import Holding
from anabranch.core.entities.subscription import SubscriptionKind
from anabranch.core.subscriptions.draining import Bucket
from anabranch.core.subscriptions.known_positions import mark_of
from anabranch.core.topics.kafka_names import kafka_group
from simulation.connections import Connection
from simulation.process import Process
from simulation.scheduler import Action, Life
from simulation.segment_store import Committed, Message, Place

if TYPE_CHECKING:
    from simulation.topic_world import TopicWorld

ACT_S = 0.2
ANSWER_S = 1.0  # a question that is not answered by then is asked elsewhere
TURN_S_MAX = 0.05  # until a task runs that was woken up
AT_ONCE = 4  # messages delivered in one go
CLOSE_S = 8.0
BACK_MS = 10_000  # how far back a subscription is put at most


class Reader:
    """What is read for one fetch."""

    __slots__ = ("asking", "holding", "offset", "place")

    def __init__(self, holding: Holding, place: Place, offset: int | None) -> None:
        self.holding = holding
        self.place = place
        self.offset = offset
        self.asking = False


class Consumer(Life):
    """A consumer's name, and the process that serves under it, if one does."""

    kind = SubscriptionKind.STREAM
    runs = False  # handlers, rather than that it receives

    def __init__(
        self, world: TopicWorld, topic: str, subscription: str, name: str, rate: float
    ) -> None:
        super().__init__(world.sched)
        self.topic, self.subscription, self.name = topic, subscription, name
        self.alive = False
        self.cut_until = 0.0
        self.core: ConsumerCore
        self._lapses = 0  # of former lives
        self._start_ms = EARLIEST
        self._world = world
        self._rate = rate
        self._epoch_s = 0.0
        self._begin()

    def _begin(self) -> None:
        self._instance = self._sched.rng.getrandbits(40)
        self._epoch_s = self._sched.rng.uniform(0.0, 1e6)
        self.core = self._made_core()
        self._connection: Connection | None = None
        self._attempt: int | None = None
        self._asked_at = 0.0
        self._retry_at = 0.0
        self._readers: dict[int, Reader] = {}
        self._working: dict[Place, deque[tuple[Holding, int, float]]] = {}
        self._committing: dict[int, str] = {}  # holdings, and for which life of the subscription
        self._commit_at = 0.0
        self._close_by: float | None = None
        self._is_fenced = False
        self._keeps_share = False
        self._act_planned = False

    def _made_core(self) -> ConsumerCore:
        return ConsumerCore(self._world.plan.settle_s)

    @property
    def group(self) -> str:
        """The life of the subscription that it reads for, by the name that its Kafka group would
        have if it were the first; "" before it knows.
        """
        assignment = self.core.assignment
        if assignment is None:
            return ""
        return kafka_group("", self.topic, self.subscription, assignment.begun_at)

    def __repr__(self) -> str:
        return f"{self.subscription}/{self.name}#{self.life}"

    # --- life ---------------------------------------------------------------------------

    def start(self) -> None:
        if self.alive:
            return
        self.alive = True
        self.life += 1
        self._stop.end()
        self._begin()
        self._sched.note(f"{self} starts")
        self.later(0.0, self._beat)

    def crash(self) -> None:
        if not self.alive:
            return
        self._sched.note(f"{self} crashes")
        self.alive = False
        self._lapses += self.core.lapses
        if self._connection is not None:
            self._connection.end(by_consumer=True)

    def close(self) -> None:
        """Leaves in good order, if it can in time."""
        if self.alive and self._close_by is None:
            self._sched.note(f"{self} closes")
            self._keeps_share = self._sched.chance(0.5)
            self.run_in(self.life, self._close)

    def _close(self) -> None:
        self._close_by = self.local_now() + CLOSE_S
        self.core.close(self.local_now())
        self._act()

    def fenced(self) -> None:
        """Another process is to have its name."""
        self._is_fenced = self._keeps_share = True
        if self._close_by is None:
            self._close()

    def left(self) -> None:
        """Its controller counts on it no more, as it asked, or since another has its name."""
        if (self._close_by is None or self._is_fenced) and self not in self._world.twins:
            self.begin_anew("is fenced")
        else:
            self.crash()

    def local_now(self) -> float:
        return self._epoch_s + self._sched.now * self._rate

    def run_in(self, life: int, action: Action) -> None:
        """Runs in that life, unless it is over; waits while the process is paused."""
        if not self.alive or life != self.life:
            return
        if self._stop.is_on:
            self._stop.defer(partial(self.run_in, life, action))
            return
        action()
        if self.alive:
            self._world.checks.consumer_acted(self)

    def serving(self) -> dict[Place, Holding]:
        """What this consumer may serve at this very instant, paused or not, by its own clock."""
        if not self.is_in_session():
            return {}
        return {
            (holding.kafka_topic, holding.place.bucket): holding
            for holding in self.core.holdings.values()
            if holding.is_held
        }

    @property
    def is_paused(self) -> bool:
        return self._stop.is_on

    @property
    def still_until(self) -> float:
        """The end of the last time that it stood still."""
        return self._stop.until

    @property
    def lapses(self) -> int:
        """How many of its sessions ended because no controller answered."""
        return self._lapses + (self.core.lapses if self.alive else 0)

    def is_in_session(self) -> bool:
        """Whether its session lasts, by its own clock."""
        return self.alive and self.core.is_alive(self.local_now())

    def _beat(self) -> None:
        self._act()
        if self.alive:
            self.later(ACT_S, self._beat)

    def wake(self) -> None:
        """There may be something to read."""
        if self.alive and not self._act_planned:
            self._act_planned = True
            self.later(self._world.store.latency_s(), self._act)

    def wake_for(self, place: Place) -> None:
        """Something new is stored there."""
        if self.alive and any(each.place == place for each in self._readers.values()):
            self.wake()

    def lost_node(self, process: Process) -> None:
        """That process has ended, and its connections with it."""
        if self._connection is not None and self._connection.process is process:
            self._connection.end(by_consumer=False)

    def _act(self) -> None:
        self._act_planned = False
        now = self.local_now()
        self.core.tick(now)
        self._deliver(now)
        self._work(now)
        self._commit(now)
        self._talk(now)

    # --- the session --------------------------------------------------------------------

    def _talk(self, now: float) -> None:
        if self._close_by is not None and now > self._close_by:
            self.crash()
            return
        connection = self._connection
        if connection is not None and self._asked_at and now - self._asked_at > ANSWER_S:
            connection.end(by_consumer=True)
            self.disconnected(connection)
        elif self.core.needs_subscribe and self._attempt is None:
            if now >= self._retry_at:
                self._subscribe(now)
        elif self.core.report_due(now) and connection is not None:
            report = self.core.begin_report(now)
            if report is not None:
                self._asked_at = now
                told = (report.released, report.drained, _by_bucket(report.committed))

                def tell(connection: Connection, number: int) -> None:
                    host = self._world.hosts[connection.process.name]
                    counted = host.report(connection.number, *told)
                    answered = partial(self._report_answered, connection, number, counted)
                    connection.down(partial(self._see, answered))

                connection.up(partial(tell, connection, report.number))
        elif self._close_by is not None and connection is not None and self.core.holds_nothing:
            connection.up(partial(self._leave, connection))

    def _leave(self, connection: Connection) -> None:
        host = self._world.hosts[connection.process.name]
        host.leave(connection.number, keeps_share=self._keeps_share)

    def _subscribe(self, now: float) -> None:
        self._retry_at = now + self._sched.rng.uniform(0.1, 0.6)
        process = self._world.controller_heard_of(self.topic)
        if process is None:
            return
        if self._connection is not None:
            self._connection.end(by_consumer=True)
        connection = self._connection = Connection(self._world, self, process)
        order = self.core.begin_subscribe(now)
        self._attempt, self._asked_at = order.number, now
        asked = ConsumerRequest(
            topic=self.topic,
            subscription=self.subscription,
            kind=self.kind,
            consumer=self.name,
            instance=self._instance,
            begun_at=order.begun_at,
            holdings=order.holdings,
            drained=order.drained,
            start_ms=self._start_ms,
        )
        committed = _by_bucket(order.committed)
        connection.up(
            lambda: self._world.hosts[process.name].subscribe(connection, asked, committed)
        )

    def begin_anew(self, why: str = "finds its subscription gone") -> None:
        self._sched.note(f"{self} {why}")
        self.crash()
        self._sched.after(1.0, self.start)

    def disconnected(self, connection: Connection) -> None:
        if connection is not self._connection:
            return
        connection.is_open = False
        self._connection, self._attempt, self._asked_at = None, None, 0.0
        self.core.on_disconnected()

    def assigned(self, connection: Connection, told: Assignment) -> None:
        if connection is not self._connection:
            return
        if connection.is_answered:
            self.core.on_assignment(told, self.local_now())
            self.wake()
        else:
            connection.is_answered = True
            self._see(partial(self._subscribed, connection, told))

    def _see(self, action: Action) -> None:
        """An answer wakes the task that waits for it: pushes that came later may be seen first."""
        rng = self._sched.rng
        self.later(0.0 if rng.random() < 0.5 else rng.uniform(0.0, TURN_S_MAX), action)

    def _subscribed(self, connection: Connection, told: Assignment) -> None:
        if connection is not self._connection or self._attempt is None:
            return
        number, self._attempt, self._asked_at = self._attempt, None, 0.0
        if not self.core.on_subscribed(number, told, self.local_now()):
            connection.end(by_consumer=True)
            self.disconnected(connection)
        self.wake()

    def _report_answered(self, connection: Connection, number: int, counted: bool) -> None:
        if connection is not self._connection:
            return
        self._asked_at = 0.0
        if counted:
            self.core.on_reported(number, self.local_now())
        else:
            connection.end(by_consumer=True)
            self.disconnected(connection)

    # --- the data -----------------------------------------------------------------------

    def _deliver(self, now: float) -> None:
        fetches = self.core.fetches
        for number in [number for number in self._readers if number not in fetches]:
            del self._readers[number]
        for number, holding in list(fetches.items()):
            reader = self._readers.get(number)
            if reader is None:
                fetch = holding.fetch
                start = fetch.start if fetch is not None else None
                place = (holding.kafka_topic, holding.place.bucket)
                reader = self._readers[number] = Reader(holding, place, start)
            if reader.offset is None:
                self._ask_position(number, reader)
            else:
                self._read(number, reader, now)

    def _ask_position(self, number: int, reader: Reader) -> None:
        if reader.asking or self._committing:
            return  # one thread asks Kafka, as in `GroupOffsets`: a commit on its way ends first
        reader.asking = True
        life = self.life

        def known(offset: int | None) -> None:
            self.run_in(life, partial(self._positioned, number, reader, offset))

        fetch = reader.holding.fetch
        otherwise = fetch.otherwise if fetch is not None else 0
        told = self.core.assignment
        if told is not None:
            self._world.store.position(told.group_id, told.begun_at, reader.place, otherwise, known)

    def _positioned(self, number: int, reader: Reader, offset: int | None) -> None:
        reader.asking = False
        if offset is not None:
            reader.offset = offset
            self.core.on_position(number, offset)
        self.wake()

    def _read(self, number: int, reader: Reader, now: float) -> None:
        partition = self._world.store.partitions.get(reader.place)
        if partition is None or reader.offset is None:
            return
        reader.offset = max(reader.offset, partition.begin)
        end = reader.holding.end_offset  # what lies behind it is another segment's
        stop = reader.offset + AT_ONCE
        fresh = partition.messages[reader.offset : stop if end is None else min(stop, end)]
        for message in fresh:
            holding = self.core.may_deliver(number, now)
            if holding is None:
                return
            self._world.checks.delivered(self, holding, reader.place, reader.offset, message)
            reader.offset += 1
            holding.deliver(reader.offset)
            self._taken(holding, reader.place, reader.offset, message, now)
        if len(fresh) == AT_ONCE:
            self.wake()
        elif not fresh:
            self.core.on_reached(number, reader.offset)

    def _taken(
        self, holding: Holding, place: Place, end: int, message: Message, now: float
    ) -> None:
        done_at = now + self._world.working_s()
        self._working.setdefault(place, deque()).append((holding, end, done_at))

    def _work(self, now: float) -> None:
        """The application acknowledges in order what it is through with."""
        for queue in self._working.values():
            while queue and queue[0][2] <= now:
                holding, end, _ = queue.popleft()
                self.core.acknowledge(holding, end, now)

    def _commit(self, now: float) -> None:
        if now < self._commit_at and not self.core.commit_urgent(now):
            return
        told = self.core.assignment
        if told is None or any(each != self.group for each in self._committing.values()):
            return  # what it commits for a former life is over first
        self._commit_at = now + 0.5
        for holding, end in self.core.commits(now):
            if id(holding) in self._committing:
                continue
            self._committing[id(holding)] = self.group
            place = (holding.kafka_topic, holding.place.bucket)
            answer = partial(self._commit_answered, self.life, self.group, holding, end)
            said = {place: Committed(end, mark_of(told.begun_at))}
            self._world.store.commit(told.group_id, said, answer)

    def _commit_answered(
        self, life: int, group: str, holding: Holding, end: int, in_time: bool
    ) -> None:
        self.run_in(life, partial(self._committed, group, holding, end, in_time))

    def _committed(self, group: str, holding: Holding, end: int, in_time: bool) -> None:
        self._committing.pop(id(holding), None)
        if in_time:
            self._world.checks.confirmed(group, holding, end)
            self.core.on_committed(holding, end, self.local_now())
        self.wake()


def _by_bucket(committed: Mapping[SegmentBucket, int]) -> dict[Bucket, int]:
    return {(place.segment_id, place.bucket): at for place, at in committed.items()}


class LateReader(Consumer):
    """Its subscription is made in the midst of a run, again whenever it was deleted, and begins
    anywhere. It reads now and then only.
    """

    def start(self) -> None:
        if self.alive:
            return
        now_ms, rng = self._world.cluster.log_ms(), self._sched.rng
        self._start_ms = rng.choice((EARLIEST, LATEST, now_ms - rng.randrange(BACK_MS)))
        super().start()
        self._sched.after(rng.uniform(1.0, 10.0), partial(self._rest, self.life))

    def _rest(self, life: int) -> None:
        if self.life == life:
            self.close()
            self._sched.after(self._sched.rng.uniform(CLOSE_S, 20.0), self.start)
