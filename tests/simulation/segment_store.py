"""Kafka's side of scalable topics, simulated: partitions that can be sealed, and groups' offsets.

Every request takes its time, may be lost, may be carried out although its answer is lost, and then
also late; a seal reaches each of Kafka's brokers at a moment of its own, and there all partitions.
Where there are copies, one whose broker has not obeyed yet may come to lead, for a while.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, unique
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import msgspec

from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.subscriptions.known_positions import mark_of
from anabranch.core.topics import tasks
from anabranch.core.topics.kafka_names import kafka_topic
from anabranch.wire.kafka.producer_state import ProducerState
from simulation.process import Process
from simulation.scheduler import Action

if TYPE_CHECKING:
    from simulation.topic_world import TopicWorld

LATE_S_MAX = 6.0  # how late a request whose sender has given up is carried out
TIMEOUT_S = 1.0
BEHIND_S_MAX = 1.0  # one broker in what it has read of Kafka's metadata, and another one


class Message(msgspec.Struct, frozen=True):
    """The `sequence`th message of a key, from 1 on."""

    key: str
    sequence: int


class Batch(msgspec.Struct, frozen=True):
    """Messages of one producer for one partition; `first` numbers them there, without gaps, from 1
    on in each epoch.
    """

    producer: int
    epoch: int
    first: int
    messages: tuple[Message, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.messages) - 1


@unique
class Answer(Enum):
    """What a producer hears; UNKNOWN stands for hearing nothing in time."""

    STORED = "stored"
    SEALED = "refused: the partition takes nothing any more"
    GAP = "refused: earlier messages of this producer are missing"
    FENCED = "refused: the producer has a newer epoch"
    GONE = "there is no such partition"
    UNKNOWN = "unknown"


class Partition:
    """One bucket of one segment."""

    __slots__ = (
        *("begin", "copies_obey", "last", "messages", "opened", "owners", "sealed", "times_ms"),
    )

    def __init__(self) -> None:
        self.messages: list[Message] = []  # with those that retention has removed
        self.begin = 0  # the first offset that retention has left
        self.times_ms: list[int] = []
        # For each message its producer, with the epoch and the number.
        self.owners: list[tuple[int, int, int]] = []
        self.last: dict[int, tuple[int, int]] = {}  # producer -> its epoch and highest number there
        self.sealed = False  # its leader obeys
        self.copies_obey = False  # and so will whoever leads later
        self.opened = 0  # how often its seal was lifted: no seal from before that comes so late

    def append(self, batch: Batch, now_ms: int) -> Answer:
        """As Kafka does for an idempotent producer; the size is looked at before the number."""
        if self.sealed:
            return Answer.SEALED
        epoch, last = self.last.get(batch.producer, (0, 0))
        if batch.epoch < epoch:
            return Answer.FENCED
        expected = last + 1 if batch.epoch == epoch else 1
        if batch.first > expected:
            return Answer.GAP
        if batch.first == expected:
            self.messages += batch.messages
            self.times_ms += [now_ms] * len(batch.messages)
            numbers = range(batch.first, batch.last + 1)
            self.owners += [(batch.producer, batch.epoch, number) for number in numbers]
            self.last[batch.producer] = (batch.epoch, batch.last)
        return Answer.STORED


Place = tuple[str, int]  # Kafka topic and partition


class Committed(NamedTuple):
    """Kafka's position of a group in one partition, and its metadata in two parts: the mark, and
    the map of what is done above the position.
    """

    offset: int
    mark: str = ""
    map: str = ""


class SegmentStore:
    """All partitions and committed offsets of one run, and the requests on their way to them."""

    def __init__(self, world: TopicWorld) -> None:
        self.partitions: dict[Place, Partition] = {}
        self.committed: dict[tuple[str, Place], Committed] = {}
        # How far it ever was, by mark too: who has committed may see it overwritten.
        self.reached: dict[tuple[str, str, Place], int] = {}
        self._deleted: set[Place] = set()  # once, whatever a late request has made since
        self._going: set[str] = set()  # topics, which Kafka deletes as a whole
        self._world = world
        self._sched = world.sched

    # --- the network --------------------------------------------------------------------

    def latency_s(self) -> float:
        return self._world.cluster.quick_s()

    def call(
        self, reply: Callable[[bool], None], act: Action, *, late_s_max: float = LATE_S_MAX
    ) -> None:
        """Carries `act` out and then calls `reply(True)`; `reply(False)` is a time-out."""
        rng, chance = self._sched.rng, self._sched.chance
        plan = self._world.plan
        out_s, back_s = min(self.latency_s(), late_s_max), self.latency_s()
        if not self._world.faults_over and chance(plan.kafka_fails):
            fate = rng.random()
            if fate < 0.6:  # carried out all the same: at once, or when nobody waits any more
                late_s = rng.uniform(0.0, late_s_max) if fate < 0.3 else out_s
                self._sched.after(late_s, act)
            self._sched.after(TIMEOUT_S, partial(reply, False))
            return

        def arrive() -> None:
            act()
            self._sched.after(back_s, partial(reply, True))

        self._sched.after(out_s, arrive)

    # --- producers and consumers ----------------------------------------------------------

    def produce(self, place: Place, batch: Batch, done: Callable[[Answer, int], None]) -> None:
        """Appends a batch; `done` gets the answer and, if it is stored, its last offset."""
        answers: list[tuple[Answer, int]] = []

        def act() -> None:
            answers.append(self._append(place, batch))

        self.call(lambda in_time: done(*(answers[0] if in_time else (Answer.UNKNOWN, -1))), act)

    def _append(self, place: Place, batch: Batch) -> tuple[Answer, int]:
        partition = self.partitions.get(place)
        if partition is None or place[0] in self._going:
            return Answer.GONE, -1
        before = len(partition.messages)
        answer = partition.append(batch, self._world.cluster.log_ms())
        if answer is Answer.GAP and place in self._deleted:
            return Answer.GONE, -1  # what is there now is another topic of that name
        fresh = partition.messages[before:]
        if fresh:
            self._world.checks.appended(place, fresh)
            self._world.stored(place)
        if answer is not Answer.STORED:
            return answer, -1
        return answer, partition.owners.index((batch.producer, batch.epoch, batch.last))

    def producers(self, place: Place, done: Callable[[list[ProducerState] | None], None]) -> None:
        """What the leader knows of producers; None: not known."""
        found: list[list[ProducerState]] = []

        def act() -> None:
            partition = self.partitions.get(place)
            if partition is not None:
                known = partition.last.items()
                found.append([ProducerState(who, epoch, last - 1) for who, (epoch, last) in known])

        self.call(lambda in_time: done(found[0] if in_time and found else None), act)

    def believed(self, group: str, begun_at: int, place: Place) -> int | None:
        """What the group has committed for that life of its subscription."""
        told = self.committed.get((group, place))
        return told.offset if told is not None and told.mark == mark_of(begun_at) else None

    def commit(
        self,
        group: str,
        positions: Mapping[Place, Committed],
        done: Callable[[bool], None],
        *,
        has_maps: bool = False,
    ) -> None:
        """Commits them in one request. Without maps, what is done above them is forgotten."""

        def act() -> None:
            for place, told in positions.items():
                self.committed[group, place] = told
                key = (group, told.mark, place)
                self.reached[key] = max(self.reached.get(key, 0), told.offset)
                if not has_maps:
                    self._world.checks.running.overwritten(group, place)

        # Kafka takes a connection's requests in order, and soon: none overtakes a later one.
        self.call(done, act, late_s_max=TIMEOUT_S / 2)

    def remove(self, place: Place, before_ms: int) -> None:
        """Retention takes what is older, read or not."""
        partition = self.partitions[place]
        begin = max(partition.begin, bisect_left(partition.times_ms, before_ms))
        self._world.checks.removed(partition.messages[partition.begin : begin])
        partition.begin = begin

    def position(
        self,
        group: str,
        begun_at: int,
        place: Place,
        otherwise: int,
        done: Callable[[int | None], None],
    ) -> None:
        """Where a consumer of the group begins; None: not known."""
        found: list[int] = []
        self.call(
            lambda in_time: done(found[0] if in_time else None),
            lambda: found.append(
                otherwise if (at := self.believed(group, begun_at, place)) is None else at
            ),
        )

    # --- controllers ----------------------------------------------------------------------

    def carry_out(
        self,
        process: Process,
        task: tasks.Task,
        done: Callable[[tasks.TaskDone | tasks.TaskFailed], None],
    ) -> None:
        """Does what a controller's task says, one request after another, while it lives."""
        life = process.life

        def end(result: tasks.TaskDone | tasks.TaskFailed) -> None:
            process.run_in(life, partial(done, result))

        refuses = isinstance(task, tasks.MakeSegments) and not self._world.faults_over
        if refuses and self._sched.chance(self._world.plan.kafka_refuses):
            refused = tasks.TaskFailed("Kafka refuses to make the topic", for_good=True)
            self._sched.after(self.latency_s(), partial(end, refused))
            return
        changed: list[str] = []  # what others have done to an adopted topic
        steps = self._steps(task, changed)

        def answered(in_time: bool) -> None:
            if in_time:
                process.run_in(life, go_on)
            else:
                end(tasks.TaskFailed("Kafka did not answer"))

        def go_on() -> None:
            if changed:
                end(tasks.TaskFailed(changed[0], for_good=True))
                return
            step = next(steps, None)
            if step is None:
                done(tasks.TaskDone(self._ends(task)))
            else:
                self.call(answered, step)

        # Not at once: who asked is still at work.
        self._sched.after(0.0, partial(process.run_in, life, go_on))

    def _steps(self, task: tasks.Task, changed: list[str]) -> Iterator[Action]:
        places = self._places(task)
        if isinstance(task, tasks.SealSegments):
            for topic in dict.fromkeys(topic for topic, _ in places):
                there = [place for place in places if place[0] == topic]
                yield partial(self._seal, there, self._opened(there))
            for place in places:
                while not self.is_sealed(place):
                    yield lambda: None  # a probe that was not refused, or a copy that lags
            if task.opened is not None:
                yield partial(self._open, task.opened, self._opened(self._of([task.opened])))
            return
        if isinstance(task, tasks.MakeSegments):
            adopted = [each for each in (*task.segments, *task.legacy) if each.is_legacy]
            if adopted:
                yield partial(self._world.old.compare, adopted, changed)
            places = [place for place in places if place not in self._of(adopted)]
        change = self._delete if isinstance(task, tasks.DeleteSegments) else self._make
        for place in places:
            yield partial(change, place)

    def _places(self, task: tasks.Task) -> list[Place]:
        return [
            (kafka_topic("", task.topic, task.incarnation, part), bucket)
            for part in task.segments
            for bucket in range(part.buckets)
        ]

    @staticmethod
    def _of(adopted: list[SegmentInfo]) -> set[Place]:
        return {(part.legacy_topic, bucket) for part in adopted for bucket in range(part.buckets)}

    def begin(self, place: Place) -> None:
        """Somebody who is none of ours makes it, empty, in place of what was there."""
        self.partitions[place] = Partition()
        self.committed = {key: told for key, told in self.committed.items() if key[1] != place}
        self.reached = {key: end for key, end in self.reached.items() if key[2] != place}

    def _make(self, place: Place) -> None:
        self._world.old.made(place)
        self._going.discard(place[0])
        self.partitions.setdefault(place, Partition())

    def _opened(self, places: Iterable[Place]) -> int:
        found = (self.partitions.get(place) for place in places)
        return max((each.opened for each in found if each is not None), default=0)

    def _open(self, sealed: SegmentInfo, opened: int) -> None:
        """Lifts a seal, on all brokers, unless that was done."""
        places = sorted(self._of([sealed]))
        if self._opened(places) != opened or not any(self.is_sealed(place) for place in places):
            return
        self._world.checks.opened(sealed)
        for place in places:
            partition = self.partitions[place]
            partition.sealed = partition.copies_obey = False
            partition.opened += 1

    def _seal(self, places: list[Place], opened: int) -> None:
        """A topic's configuration is changed; Kafka's brokers hear of it a bit later."""
        if self._opened(places) != opened:
            return
        self._world.old.sealed(places[0][0])
        count = self._world.plan.kafka_brokers
        for broker in range(count):
            led = [place for place in places if self._leader(place) == broker]
            late_s = self._sched.rng.uniform(0.0, BEHIND_S_MAX) if count > 1 else 0.0
            self._sched.after(late_s + self.latency_s(), partial(self._refuse, led, opened))
            if self._world.plan.kafka_copies > 1:
                self._sched.after(BEHIND_S_MAX + late_s, partial(self._obey, led, opened))

    def _leader(self, place: Place) -> int:
        return (crc32(place[0].encode()) + place[1]) % self._world.plan.kafka_brokers

    def _refuse(self, places: list[Place], opened: int) -> None:
        if self._opened(places) != opened:
            return
        for place in places:
            partition = self.partitions.get(place)
            if partition is not None:
                partition.sealed = True
        if places and self._world.plan.kafka_copies > 1 and not self._world.faults_over:
            lagging = self._sched.rng.choice(places)
            self._sched.after(
                self._sched.rng.uniform(0.0, BEHIND_S_MAX), partial(self._lead, lagging, opened)
            )

    def _lead(self, place: Place, opened: int) -> None:
        """A copy leads whose broker has not put the seal into force, and will in a moment."""
        partition = self.partitions.get(place)
        if partition is not None and partition.sealed and not partition.copies_obey:
            partition.sealed = False
            self._sched.after(
                self._sched.rng.uniform(0.0, BEHIND_S_MAX), partial(self._obey, [place], opened)
            )

    def _obey(self, places: list[Place], opened: int) -> None:
        if self._opened(places) != opened:
            return
        for place in places:
            partition = self.partitions.get(place)
            if partition is not None:
                partition.sealed = partition.copies_obey = True

    def is_sealed(self, place: Place) -> bool:
        """Whether it takes nothing, whoever leads it."""
        partition = self.partitions.get(place)
        if partition is None:
            return True
        return partition.sealed and (partition.copies_obey or self._world.plan.kafka_copies == 1)

    def _ends(self, task: tasks.Task) -> tuple[int, ...]:
        if not isinstance(task, tasks.SealSegments):
            return ()
        found = (self.partitions.get(place) for place in self._places(task))
        return tuple(len(each.messages) if each is not None else 0 for each in found)

    def _delete(self, place: Place) -> None:
        self._world.old.deleted(place)
        self._world.checks.deleted(place)
        self._deleted.add(place)
        self._going.add(place[0])
        self.partitions.pop(place, None)
