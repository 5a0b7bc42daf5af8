"""A producer, simulated: its real decisions on where a message goes, over a client of Kafka."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from anabranch.client.flows import Flow, FlowTable, Held, Step
from anabranch.client.topic_layout import Segment, TopicLayout
from anabranch.client.writer_pool import writers_of
from simulation.scheduler import Action, ViolationError
from simulation.segment_store import Answer, Batch, Message

if TYPE_CHECKING:
    from simulation.topic_world import TopicWorld

BATCH_MAX = 5
WATCH_S = 0.4
RETRY_S = 0.1


class Writer:
    """An idempotent client of Kafka. After a refusal it waits for the answers to all that is under
    way and begins a new epoch: what is in doubt then is sent again, and is new to Kafka.
    """

    __slots__ = ("awaited", "ends_epoch", "epoch", "lanes", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.epoch = 0
        self.ends_epoch = False
        self.awaited = 0  # answers
        self.lanes: list[Lane] = []


class Lane(Flow):
    """A flow, and the queue of its writer for its partition."""

    __slots__ = ("batch", "first", "queue", "unheard", "writer")

    def __init__(self, incarnation: int, segment: Segment, bucket: int, writer: Writer) -> None:
        super().__init__(incarnation, segment, bucket)
        self.writer = writer
        writer.lanes.append(self)
        self.queue: deque[Held] = deque()
        self.batch: tuple[Held, ...] = ()  # on its way
        self.first = 1
        self.unheard = False  # a try of the batch on its way was not answered

    @property
    def place(self) -> tuple[str, int]:
        return self.segment.kafka_topic, self.bucket


class Producer:
    """One producer with keys of its own; a restart makes another one, with other keys."""

    def __init__(self, world: TopicWorld, topic: str, name: str) -> None:
        self.topic = topic
        self.name = name
        self.life = 0
        self.sent: dict[str, int] = {}
        self._world = world
        self._sched = world.sched
        self._paused_until = 0.0
        self._table: FlowTable[Lane] | None = None
        self._writers: dict[tuple[int, int], Writer] = {}

    @property
    def is_idle(self) -> bool:
        """Whether all that was sent is known to be stored."""
        flows = self._table.flows() if self._table is not None else []
        return not any(each.outstanding or each.held or each.refused for each in flows)

    def start(self) -> None:
        self.life += 1
        self.sent = {
            f"{self.topic}|{self.name}.{self.life}.{each}": 0
            for each in range(self._world.plan.keys)
        }
        self._table, self._writers = None, {}
        self._paused_until = 0.0
        self._sched.note(f"producer {self.name} starts life {self.life}")
        self._later(0.0, self._watch)
        self._later(0.0, self._produce)

    def crash(self) -> None:
        """What is not stored may be lost, as its keys are."""
        self.life += 1
        self._table = None

    def pause(self, duration_s: float) -> None:
        self._paused_until = max(self._paused_until, self._sched.now + duration_s)

    def resume(self) -> None:
        self._paused_until = self._sched.now

    def _later(self, delay_s: float, action: Action) -> None:
        self._sched.after(delay_s, partial(self._run_in, self.life, action))

    def _run_in(self, life: int, action: Action) -> None:
        if life != self.life:
            return
        if self._sched.now < self._paused_until:
            self._sched.at(self._paused_until, partial(self._run_in, life, action))
        else:
            action()

    # --- what it sends ------------------------------------------------------------------

    def _produce(self) -> None:
        self._later(self._sched.rng.expovariate(self._world.plan.sends_per_s), self._produce)
        if self._world.calm or self._table is None:
            return
        rng, plan = self._sched.rng, self._world.plan
        if rng.random() >= plan.load.at(self._sched.now):
            return
        keys = list(self.sent)
        for _ in range(rng.choice((1, 1, 1, 4))):
            key = keys[0] if rng.random() < plan.hot_key else rng.choice(keys)
            self.sent[key] += 1
            self._send(Held(key.encode(), str(self.sent[key]).encode()))

    def _send(self, message: Held) -> None:
        self._append(self._known().route(message.key), message)

    def _append(self, lane: Lane, message: Held) -> None:
        if lane.may_append:
            lane.sent()
            lane.queue.append(message)
            self._pump(lane)
        else:
            lane.held.append(message)

    def _known(self) -> FlowTable[Lane]:
        if self._table is None:
            raise AssertionError("a producer sends before it knows a layout")
        return self._table

    def _make(self, incarnation: int, segment: Segment, bucket: int) -> Lane:
        count = writers_of(segment.info.buckets, self._world.plan.kafka_brokers)
        number = (segment.segment_id, bucket % count)
        if number not in self._writers:
            self._writers[number] = Writer(self._world.new_number())
        return Lane(incarnation, segment, bucket, self._writers[number])

    # --- Kafka's client -------------------------------------------------------------------

    def _pump(self, lane: Lane) -> None:
        if not lane.batch and lane.queue and not lane.writer.ends_epoch:
            count = min(len(lane.queue), BATCH_MAX)
            lane.batch = tuple(lane.queue.popleft() for _ in range(count))
            lane.unheard = False
            self._try(lane)

    def _try(self, lane: Lane) -> None:
        messages = tuple(_message(each) for each in lane.batch)
        life, writer = self.life, lane.writer
        writer.awaited += 1

        def done(answer: Answer, offset: int) -> None:
            self._run_in(life, partial(self._answered, lane, answer, offset))

        batch = Batch(writer.number, writer.epoch, lane.first, messages)
        self._world.store.produce(lane.place, batch, done)

    def _try_again(self, lane: Lane, epoch: int) -> None:
        if lane.writer.epoch == epoch and not lane.writer.ends_epoch:
            self._try(lane)

    def _begin_epoch(self, writer: Writer) -> None:
        writer.epoch += 1
        writer.ends_epoch = False
        for lane in writer.lanes:
            lane.first = 1
            if lane.batch:
                self._try(lane)
            else:
                self._pump(lane)

    def _answered(self, lane: Lane, answer: Answer, offset: int) -> None:
        writer = lane.writer
        writer.awaited -= 1
        match answer:
            case Answer.STORED:
                lane.first += len(lane.batch)
                for place in range(len(lane.batch)):
                    lane.acked(offset - len(lane.batch) + 1 + place)
                lane.batch = ()
                self._pump(lane)
                waiting = list(lane.held) if lane.open else []
                for _ in waiting:
                    self._append(lane, lane.held.popleft())
            case Answer.SEALED | Answer.GONE:
                for each in lane.batch:
                    lane.was_refused(each, in_doubt=lane.unheard)
                while lane.queue:
                    lane.was_refused(lane.queue.popleft(), in_doubt=False)
                lane.batch = ()
                writer.ends_epoch = True
                self._known().close(lane)
            case Answer.GAP | Answer.FENCED:
                raise ViolationError(f"{self.name} is told by {lane}: {answer.value}")
            case Answer.UNKNOWN:
                lane.unheard = True
                self._later(RETRY_S, partial(self._try_again, lane, writer.epoch))
        if writer.ends_epoch and not writer.awaited:
            self._begin_epoch(writer)
        self._advance()

    # --- the layout -----------------------------------------------------------------------

    def _watch(self) -> None:
        """Any broker tells what it knows, which may be old; the first is asked for again soon."""
        self._later(self._sched.rng.uniform(0.0, WATCH_S), self._watch)
        layout = self._world.layout_heard_of(self.topic)
        if layout is None:
            return
        delay_s = self._world.store.latency_s()
        self._later(delay_s, partial(self._heard, layout))

    def _heard(self, layout: TopicLayout) -> None:
        if self._table is None:
            self._table = FlowTable(layout, self._make)
        elif layout.is_newer_than(self._table.layout):
            self._table.update(layout)
        self._advance()

    def _advance(self) -> None:
        """Flows that leave take their next steps."""
        table = self._known()
        moved = True
        while moved:
            moved = False
            for lane in list(table.leaving):
                match lane.step(table.layout):
                    case Step.MOVE:
                        for message in table.leave(lane):
                            self._send(message)
                        moved = True
                    case Step.RESOLVE:
                        lane.resolving = True
                        self._resolve(lane)
                    case Step.GIVE_UP:
                        for message in lane.fail_refused():
                            self._world.checks.given_up(_message(message))
                        moved = True
                    case Step.NOTHING:
                        pass

    def _resolve(self, lane: Lane) -> None:
        ends = self._known().layout.segments[lane.segment.segment_id].info.end_offsets
        life = self.life

        def done(found: int | None) -> None:
            self._run_in(life, partial(self._resolved, lane, found))

        first, end = lane.last_offset + 1, ends[lane.bucket]
        self._world.store.own_between(lane.place, lane.writer.number, first, end, done)

    def _resolved(self, lane: Lane, found: int | None) -> None:
        if found is None:
            lane.resolving = False
        else:
            self._world.settled_in_doubt += 1
            lane.resolved(found)
        self._advance()


def _message(held: Held) -> Message:
    key = held.key or b""
    return Message(key if isinstance(key, str) else key.decode(), int(held.value or b""))
