"""Kafka's share groups, simulated: who is given which messages, under locks, and what is left.

Each member has some of the partitions, and is given messages of them in turns, however much one of
them has; of one that waits for long a message comes along with another's, since what is free is
given out within a lock. What is not settled within the lock is given out again; who is silent has
partitions and locks for a while. What must hold of it all,
seen with perfect sight, is checked here as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from anabranch.client._queue.messages import ACCEPT
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.topics.kafka_names import kafka_topic
from simulation.scheduler import ViolationError
from simulation.segment_store import Message, Place

if TYPE_CHECKING:
    from simulation.topic_world import TopicWorld

LOCK_S = 2.0
SESSION_S = 3.0  # a member that is silent for longer loses its partitions
TURN_S = LOCK_S / 2
TOLD_S_MAX = 0.5  # until a member knows of a change of its partitions


class Given(NamedTuple):
    """One message, as a member is given it."""

    place: Place
    offset: int
    message: Message


class _Member:
    __slots__ = ("last", "places", "seen_at", "topics")

    def __init__(self, now: float) -> None:
        self.seen_at = now
        self.topics: frozenset[str] = frozenset()
        self.places: list[Place] = []
        self.last: Place = ("", 0)  # whose turn it was


class _Share:
    """How far the group is in one partition."""

    __slots__ = ("fresh", "locks", "released", "turn_at")

    def __init__(self) -> None:
        self.fresh = 0  # the first that nobody was ever given
        self.turn_at = 0.0
        self.released: list[int] = []
        self.locks: dict[int, tuple[int, float]] = {}  # by offset: the member, and until when


class ShareGroup:
    """The group of one queue subscription of a topic that lasts."""

    def __init__(self, world: TopicWorld, topic: str) -> None:
        self.deliveries = 0
        self._world = world
        self._sched = world.sched
        self._topic = topic
        self._members: dict[int, _Member] = {}
        self._shares: dict[Place, _Share] = {}
        self._delivered: set[Message] = set()
        self._processed: set[Message] = set()

    # --- Kafka --------------------------------------------------------------------------

    def alive(self, number: int) -> None:
        """A member's heartbeat, on a thread of its own."""
        if number in self._members:
            self._members[number].seen_at = self._sched.now

    def subscribe(self, number: int, topics: Iterable[str]) -> None:
        """Of a new member, or one that had gone silent, too."""
        member = self._members.setdefault(number, _Member(self._sched.now))
        wanted = frozenset(topics)
        if wanted != member.topics:
            member.topics = wanted
            self._change()

    def leave(self, number: int) -> None:
        """What it had is free at once."""
        if self._members.pop(number, None) is not None:
            self._change()
        for share in self._shares.values():
            for offset in [each for each, (who, _) in share.locks.items() if who == number]:
                self._release(share, offset)

    def fetch(self, number: int, most: int) -> list[Given]:
        """Some messages of the partition whose turn it is, and one of each that waits for long."""
        self._expire()
        member = self._members.get(number)
        if member is None:
            return []
        places = member.places
        later = [place for place in places if place > member.last]
        found: list[Given] = []
        for place in [*later, *places[: len(places) - len(later)]]:
            share = self._shares.setdefault(place, _Share())
            if not found:
                found = self._acquire(place, share, number, most)
                member.last = place
            elif share.turn_at <= self._sched.now - TURN_S:
                found += self._acquire(place, share, number, 1)
        # Members may come and go so fast that whoever has a partition never gets to it.
        waiting = (each for each in self._shares if each[0] in member.topics and each not in places)
        for place in waiting:
            if self._shares[place].turn_at <= self._sched.now - LOCK_S:
                found += self._acquire(place, self._shares[place], number, 1)
        return found

    def answer(self, number: int, answers: Iterable[tuple[Given, int]]) -> None:
        """What a member says of what it has; its word on anything else is void."""
        for given, answer in answers:
            share = self._shares[given.place]
            if share.locks.get(given.offset, (0, 0.0))[0] != number:
                continue
            if answer != ACCEPT:
                self._release(share, given.offset)
                continue
            del share.locks[given.offset]
            if given.message not in self._processed:
                raise ViolationError(f"{given} was accepted, and nobody has done with it")

    def told(self, place: Place) -> tuple[int, int]:
        """Where it goes on in a partition, and how many messages it has left there."""
        share = self._shares.get(place, _Share())
        start = min([*share.released, *share.locks], default=share.fresh)
        partition = self._world.store.partitions.get(place)
        return start, self._left(place, len(partition.messages) if partition else 0)

    def _acquire(self, place: Place, share: _Share, number: int, most: int) -> list[Given]:
        partition = self._world.store.partitions.get(place)
        if partition is None:
            return []
        offsets, share.released = share.released[:most], share.released[most:]
        end = min(len(partition.messages), share.fresh + most - len(offsets))
        offsets += range(share.fresh, end)
        share.fresh = max(share.fresh, end)
        if offsets:
            share.turn_at = self._sched.now
            share.locks |= dict.fromkeys(offsets, (number, self._sched.now + LOCK_S))
        return [Given(place, offset, partition.messages[offset]) for offset in offsets]

    def _release(self, share: _Share, offset: int) -> None:
        del share.locks[offset]
        share.released = sorted([*share.released, offset])

    def _expire(self) -> None:
        now = self._sched.now
        for share in self._shares.values():
            for offset in [each for each, (_, until) in share.locks.items() if until <= now]:
                self._release(share, offset)
        silent = [n for n, each in self._members.items() if each.seen_at < now - SESSION_S]
        for number in silent:
            del self._members[number]
        if silent:
            self._change()

    def _change(self) -> None:
        """Each member hears of its partitions at a moment of its own."""
        for number in self._members:
            late_s = self._sched.rng.uniform(0.0, TOLD_S_MAX)
            self._sched.after(late_s, partial(self._assign, number))

    def _assign(self, number: int) -> None:
        """Every partition is somebody's; where there are few, several have the same one."""
        member = self._members.get(number)
        if member is None:
            return
        places = sorted(
            place for place in self._world.store.partitions if place[0] in member.topics
        )
        numbers = sorted(self._members)
        mine = numbers.index(number)
        member.places = [
            place
            for index, place in enumerate(places)
            if index % len(numbers) == mine or mine % len(places) == index
        ]

    # --- what must hold -----------------------------------------------------------------

    def delivered(self, given: Given) -> None:
        """An application is given it."""
        self.deliveries += 1
        self._delivered.add(given.message)

    def processed(self, given: Given) -> None:
        """The application has done with it, and says so."""
        self._processed.add(given.message)

    def must_have(self, topic: ScalableTopic, segment_id: int) -> None:
        """The segment is called drained."""
        part = topic.layout.segment(segment_id)
        for bucket, end in enumerate(part.end_offsets):
            place = (kafka_topic("", self._topic, topic.incarnation, part), bucket)
            left = self._left(place, end)
            if left:
                raise ViolationError(f"{place} is called drained by a queue, which has {left} left")

    def unread(self, topic: ScalableTopic, drained: Iterable[int]) -> list[str]:
        """What is to be given to somebody, to be settled, or to be called drained."""
        stored = self._world.checks.seeks.stored_of(self._topic)
        found = [f"no queue was given {each}" for each in stored - self._delivered]
        for place, partition in self._world.store.partitions.items():
            known = self._world.checks.home_of(place) == self._topic
            if known and self._left(place, len(partition.messages)):
                found.append(f"something is left of {place} for a queue")
        sealed = {part.segment_id for part in topic.segments if not part.is_active}
        return found + [f"a queue has not drained {each}" for each in sealed - set(drained)]

    def _left(self, place: Place, end: int) -> int:
        share = self._shares.get(place, _Share())
        return end - share.fresh + len(share.released) + len(share.locks)
