"""A judge of consumers that work on keys side by side. It sees events alone: a handler begins, is
told to end, and ends; a commit is sent, and confirmed; a bucket is released or lost.

A life of a subscription lasts from one seek to the next, as a group of Kafka's does here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from anabranch.client._consumer.gaps import read
from anabranch.client._consumer.holding import Holding, Phase
from simulation.scheduler import ViolationError
from simulation.segment_store import Committed, Message, Place

if TYPE_CHECKING:
    from simulation.consumers import Consumer
    from simulation.topic_world import TopicWorld

METADATA_MAX = 4_096  # characters that Kafka takes with a commit
STILL_S = 5.0  # a session and more: who stood still meanwhile is told of its lapse too late


class Worker:
    """One life of a consumer, with one bucket in its hands."""

    __slots__ = (
        *("consumer", "done", "ended", "group", "holding", "is_lost", "is_released", "life"),
        "place",
    )

    def __init__(self, consumer: Consumer, holding: Holding, place: Place) -> None:
        self.consumer = consumer
        self.life = consumer.life
        self.group = consumer.group
        self.holding = holding
        self.place = place
        self.done: list[int] = []  # offsets, in the order of their ends
        self.ended: set[int] = set()  # whose last handler has ended by itself
        self.is_released = self.is_lost = False

    @property
    def lives(self) -> bool:
        return self.consumer.alive and self.consumer.life == self.life

    @property
    def holds(self) -> bool:
        """Whether nobody else may have the bucket."""
        is_over = self.is_released or self.is_lost
        return self.lives and not is_over and self.consumer.is_in_session()


class Handler:
    """One call of a handler, from its begin to its end."""

    __slots__ = ("ends_by", "message", "offset", "told_at", "worker")

    def __init__(self, worker: Worker, message: Message, offset: int) -> None:
        self.worker = worker
        self.message = message
        self.offset = offset
        self.told_at: float | None = None
        self.ends_by = 0.0

    def __repr__(self) -> str:
        return f"{self.message} at {self.offset} of {self.worker.place} by {self.worker.consumer}"


class Sent(msgspec.Struct, frozen=True):
    """A commit on its way: of which bucket, below which offset, with how much done, and when."""

    worker: Worker
    end: int
    count: int
    at: float
    suspect: int | None


class Bucket:
    """What came of the messages of one partition in one life of a subscription."""

    __slots__ = ("begun", "checked", "committed", "done", "last", "named", "up_to")

    def __init__(self) -> None:
        self.begun: set[int] = set()
        self.done: dict[int, Worker | None] = {}  # None: of one that receives
        self.last: dict[int, float] = {}  # what confirmed commits name: when the last was sent
        self.up_to: dict[str, int] = {}  # by key: all below is done
        self.checked = 0  # all below is done, as a commit has said
        self.committed = 0  # the highest position that is confirmed
        self.named: tuple[int, Worker] | None = None  # the suspect of the last confirmed commit


class RunningChecks:
    """The observer of all handlers that run side by side."""

    def __init__(self, world: TopicWorld) -> None:
        self._world = world
        self._buckets: dict[tuple[str, Place], Bucket] = defaultdict(Bucket)
        self._workers: dict[Holding, Worker] = {}
        self._running: dict[tuple[str, str], dict[Handler, None]] = defaultdict(dict)
        self._done: dict[tuple[str, str], set[int]] = defaultdict(set)  # of a key, by group
        self._up_to: dict[tuple[str, str], int] = {}
        self._last_begun: dict[tuple[str, str], int] = {}
        self._overwritten: dict[tuple[str, Place], float] = {}  # by Kafka's name of the group
        self._anew: set[Place] = set()  # strangers have made them anew: offsets mean nothing
        self.counts = dict.fromkeys(
            ("worked", "failed", "told", "repeated", "maps", "aside", "accused", "held_back"), 0
        )

    # --- handlers -----------------------------------------------------------------------

    def begins(
        self, consumer: Consumer, holding: Holding, place: Place, offset: int, message: Message
    ) -> Handler:
        """A handler begins."""
        worker = self._worker(consumer, holding, place)
        bucket = self._buckets[worker.group, place]
        begun = Handler(worker, message, offset)
        self._must_be_alone(begun)
        if place not in self._anew and place in self._world.store.partitions:
            self._must_be_in_order(begun, bucket)
            self._must_be_excused(begun, bucket)
        if offset in bucket.begun:
            self.counts["repeated"] += 1
        bucket.begun.add(offset)
        worker.ended.discard(offset)
        key = (worker.group, message.key)
        self._last_begun[key] = max(self._last_begun.get(key, 0), message.sequence)
        self._running[self._lane(begun)][begun] = None
        return begun

    def told_to_end(self, handler: Handler, within_s: float) -> None:
        """It is cancelled. `within_s`: for so long nobody else may work on the key."""
        handler.told_at = self._world.sched.now
        handler.ends_by = handler.told_at + within_s
        self.counts["told"] += 1

    def ends(self, handler: Handler, *, is_done: bool) -> None:
        """It has returned, or failed."""
        self._running[self._lane(handler)].pop(handler, None)
        if handler.told_at is None:
            handler.worker.ended.add(handler.offset)
        self.counts["worked" if is_done else "failed"] += 1
        if is_done:
            self._is_done(handler)

    def accused(self, consumer: Consumer, place: Place, offset: int) -> None:
        """A message is taken for what has ended processes: it ran when the last one ended."""
        named = self._buckets[consumer.group, place].named
        if named is not None and named[0] == offset and offset in named[1].ended:
            raise ViolationError(
                f"{consumer} takes {offset} of {place} for a killer, whose handler at "
                f"{named[1].consumer} has ended"
            )
        self.counts["accused"] += 1

    def put_aside(self, handler: Handler) -> None:
        """Its consumer knows that its message is a dead letter."""
        self.counts["aside"] += 1
        self._is_done(handler)

    def received(self, consumer: Consumer, place: Place, offset: int, message: Message) -> None:
        """One that receives is given a message, and others of its subscription run."""
        bucket = self._buckets[consumer.group, place]
        bucket.begun.add(offset)
        bucket.done.setdefault(offset, None)
        self._done[consumer.group, message.key].add(message.sequence)

    def begun_up_to(self, group: str, key: str) -> int:
        """The last message of a key that a handler of the group has had."""
        return self._last_begun.get((group, key), 0)

    def forget(self, place: Place) -> None:
        """A stranger makes anew what was there."""
        self._anew.add(place)

    def _worker(self, consumer: Consumer, holding: Holding, place: Place) -> Worker:
        worker = self._workers.get(holding)
        if worker is None:
            worker = self._workers[holding] = Worker(consumer, holding, place)
            holding.listeners.append(lambda: self._let_go(worker))
        return worker

    def _is_done(self, handler: Handler) -> None:
        worker = handler.worker
        worker.done.append(handler.offset)
        self._buckets[worker.group, worker.place].done[handler.offset] = worker
        self._done[worker.group, handler.message.key].add(handler.message.sequence)

    def _lane(self, handler: Handler) -> tuple[str, str]:
        """What no two work on at once: a key, over all lives of the subscription."""
        key, worker = handler.message.key, handler.worker
        origin = self._world.checks.seeks.origin(worker.group)
        is_ordered = self._world.checks.is_ordered(handler.message)
        return origin, key if is_ordered else f"{key} of {worker.place}"

    def _must_be_alone(self, begun: Handler) -> None:
        for other in self._running[self._lane(begun)]:
            if self._is_at_work(other, begun):
                raise ViolationError(f"a handler begins {begun} while another one has {other}")

    def _is_at_work(self, other: Handler, begun: Handler) -> bool:
        worker, now = other.worker, self._world.sched.now
        consumer = worker.consumer
        if not worker.lives or consumer.is_paused:
            return False
        if other.told_at is None or consumer is begun.worker.consumer:
            return True
        stood_still = consumer.still_until > other.told_at - STILL_S
        return not stood_still and now <= other.ends_by and worker.group == begun.worker.group

    def _must_be_in_order(self, begun: Handler, bucket: Bucket) -> None:
        """All before it of its key is done: in its bucket, and in what its segment replaces."""
        worker, message = begun.worker, begun.message
        checks, group = self._world.checks, worker.group
        messages = self._world.store.partitions[worker.place].messages
        at = bucket.up_to.get(message.key, 0)
        while at < begun.offset:
            if messages[at].key == message.key and not self._is_over(group, bucket, worker, at):
                raise ViolationError(f"a handler begins {begun} before {messages[at]} is done")
            at += 1
        bucket.up_to[message.key] = max(bucket.up_to.get(message.key, 0), at)
        is_whole = (worker.consumer.topic, worker.consumer.subscription) in (
            self._world.subscriptions
        )
        if is_whole and checks.is_numbered(message):
            before = self._done_up_to(group, message.key)
            if message.sequence > before + 1:
                raise ViolationError(f"a handler begins {begun} when {before} is done of its key")

    def _must_be_excused(self, begun: Handler, bucket: Bucket) -> None:
        """Again only what no commit names, of one that has lost the bucket, or has died."""
        worker, offset = begun.worker, begun.offset
        named_at = bucket.last.get(offset)
        assignment = worker.consumer.core.assignment
        if named_at is not None and assignment is not None:
            where = (assignment.group_id, worker.place)
            if named_at > self._overwritten.get(where, -1.0):
                raise ViolationError(
                    f"a handler begins {begun} again, which a commit of {named_at:.3f} names"
                )
        former = bucket.done.get(offset)
        if former is not None and former.holds:
            raise ViolationError(
                f"a handler begins {begun} again, which {former.consumer} has done"
            )

    # --- commits ------------------------------------------------------------------------

    def sent(self, consumer: Consumer, holding: Holding, place: Place, told: Committed) -> Sent:
        """A commit begins: it fits, and names nothing that is not done."""
        worker = self._worker(consumer, holding, place)
        text = f"{told.mark} {told.map}" if told.map else told.mark
        if len(text) > METADATA_MAX:
            raise ViolationError(f"{consumer} commits {len(text)} characters for {place}")
        suspect = self._must_be_done(worker, told)
        self.counts["maps"] += bool(told.map)
        return Sent(worker, told.offset, len(worker.done), self._world.sched.now, suspect)

    def confirmed(self, sent: Sent) -> None:
        """Its consumer knows that Kafka has it: all that was done when it was sent is named."""
        worker = sent.worker
        bucket = self._buckets[worker.group, worker.place]
        bucket.committed = max(bucket.committed, sent.end)
        bucket.named = None if sent.suspect is None else (sent.suspect, worker)
        for offset in worker.done[: sent.count]:
            bucket.last[offset] = sent.at

    def overwritten(self, group: str, place: Place) -> None:
        """Somebody has committed without a map, or Kafka has forgotten what was committed."""
        self._overwritten[group, place] = self._world.sched.now

    def _must_be_done(self, worker: Worker, told: Committed) -> int | None:
        """Returns the suspect that the commit names."""
        group = worker.group
        bucket = self._buckets[group, worker.place]
        partition = self._world.store.partitions.get(worker.place)
        assignment = worker.consumer.core.assignment
        if partition is None or assignment is None or worker.place in self._anew:
            return None
        topic = self._world.cluster.checks.truth.topic(worker.consumer.topic)
        if topic is None or topic.incarnation != assignment.incarnation:
            return None  # it was deleted, and a late task may have made its partition again
        end = len(partition.messages)
        done = read(told.map, assignment.group_id, worker.place, told.offset, end)
        if told.map and done is None:
            raise ViolationError(f"{worker.consumer} commits what is no map for {worker.place}")
        runs = [] if done is None else done.runs
        claimed = [*range(bucket.checked, told.offset)]
        claimed += [offset for start, stop in runs for offset in range(start, stop)]
        for offset in claimed:
            if not self._is_over(group, bucket, worker, offset):
                raise ViolationError(
                    f"{worker.consumer} commits {told.offset} of {worker.place} with {runs}: "
                    f"{partition.messages[offset]} at {offset} is not done"
                )
        bucket.checked = max(bucket.checked, told.offset)
        return None if done is None else done.suspect

    def _let_go(self, worker: Worker) -> None:
        """A bucket goes back, with all that was done of it committed; or it is lost."""
        worker.is_lost = worker.holding.phase is Phase.LOST
        worker.is_released = not worker.is_lost
        if worker.is_lost or worker.holding.end_offset == 0:
            return
        bucket = self._buckets[worker.group, worker.place]
        # Retention may move the position past a message that is being worked on.
        left = [each for each in worker.done if each not in bucket.last]
        left = [each for each in left if each >= bucket.committed]
        if left:
            raise ViolationError(
                f"{worker.consumer} releases {worker.place}, and no commit names {left[:5]}"
            )

    # --- what is over -------------------------------------------------------------------

    def _is_over(self, group: str, bucket: Bucket, worker: Worker, offset: int) -> bool:
        """Whether nobody need work on a message any more."""
        checks = self._world.checks
        message = self._world.store.partitions[worker.place].messages[offset]
        is_gone = message in checks.taken or checks.seeks.may_lack(group, message)
        return offset in bucket.done or is_gone

    def _done_up_to(self, group: str, key: str) -> int:
        done, checks = self._done[group, key], self._world.checks
        at = self._up_to.get((group, key), 0)
        while True:
            further = checks.skipped(key, at, group)
            while further + 1 in done:
                further += 1
            if further == at:
                break
            at = further
        self._up_to[group, key] = at
        return at

    def undone(self, group: str) -> list[str]:
        """What handlers of a group have begun, and none has done."""
        found = []
        for (whose, place), bucket in self._buckets.items():
            partition = self._world.store.partitions.get(place)
            if whose != group or partition is None or place in self._anew:
                continue
            for offset in sorted(bucket.begun - bucket.done.keys()):
                message = partition.messages[offset]
                if message not in self._world.checks.taken:
                    found.append(
                        f"{group} has begun {message} at {offset} of {place}, and not done"
                    )
        return found
