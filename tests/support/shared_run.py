"""A run over many topics without an event loop: the product's `Schedule` and cores, and a log of
keys for each bucket. What the shell does is done here in steps that a test draws.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from anabranch import client as sdk
from anabranch.client._consumer.assignment import AssignedSegment, Assignment
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.holding import Holding
from anabranch.client._stream.intake import TopicWork
from anabranch.client._stream.schedule import Schedule, Started
from anabranch.client._stream.settings import RunSettings
from support.there import there

Key = tuple[str, int]  # a topic's
Place = tuple[str, int, int]  # a topic's bucket and offset


class Flight(NamedTuple):
    """What was read and not taken yet."""

    part: TopicWork
    number: int
    first: int
    end: int


class SharedRun:
    """`logs`: the keys of each bucket's messages, by topic. Those in `poison` always fail."""

    def __init__(
        self, rng: random.Random, logs: Mapping[str, Sequence[Sequence[int]]], settings: RunSettings
    ) -> None:
        self.now = 0.0
        self.logs = logs
        self.poison: set[Key] = set()
        self.schedule: Schedule[Place] = Schedule(settings)
        self.intake = self.schedule.intake
        self.parts: dict[str, TopicWork] = {}
        self.flights: dict[TopicWork, deque[Flight]] = {}  # of those that have some, in turn
        self.calls: list[Started[Place]] = []
        self.done: dict[Key, list[Place]] = defaultdict(list)
        self.most_queued = 0
        self._rng = rng
        self.width = settings.concurrency
        self._numbers = itertools.count(1)
        self._read_to: dict[int, int] = {}

    def open(self, topic: str) -> None:
        """Its consumer holds all buckets, which begin at their first message."""
        ends = tuple(len(keys) for keys in self.logs[topic])
        core = ConsumerCore(60.0, self._numbers)
        order = core.begin_subscribe(self.now)
        segment = AssignedSegment(0, topic, tuple(range(len(ends))), ends)
        assert core.on_subscribed(order.number, Assignment(1, 1, 1, "g", 1e9, (segment,)), self.now)
        for number in core.fetches:
            core.on_position(number, 0)
        self.parts[topic] = self.intake.join(core, topic)

    def leave(self, topic: str) -> list[Started[Place]]:
        """The topic has failed: what runs of it is cancelled."""
        part = self.parts.pop(topic)
        self.intake.leave(part)
        gone = [each for each in self.calls if each.part is part]
        self.calls = [each for each in self.calls if each.part is not part]
        for call in gone:
            error = dict.fromkeys(call.items, ValueError("its topic is gone"))
            self.schedule.ended(call, error, self.now, is_cancelled=True)
        return gone

    # Reading, as the shell does.

    def read(self, topic: str, most: int) -> None:
        """Some bucket of a topic is read on."""
        part = self.parts[topic]
        for number, holding in self._rng.sample(sorted(part.core.fetches.items()), k=1):
            if self.intake.is_stopped(number):
                continue
            start = there(holding.fetch).start or 0
            first = self._read_to.get(number, start)
            end = min(first + most, len(self.logs[topic][holding.place.bucket]))
            self._read_to[number] = end
            if first < end:
                self.flights.setdefault(part, deque()).append(Flight(part, number, first, end))

    def take(self) -> None:
        """Takes what was read, as long as there is room."""
        while self.flights and self.intake.has_room:
            part, flights = next(iter(self.flights.items()))
            flight = flights.popleft()
            del self.flights[part]
            if flights:
                self.flights[part] = flights
            served = self.intake.served(flight.part, flight.number)
            if served is None:
                continue
            holding, gaps = served
            topic, bucket = flight.part.topic, holding.place.bucket
            for offset in range(flight.first, flight.end):
                start = self.schedule.taken(holding, gaps, offset)
                if start is not None:
                    key = topic, self.logs[topic][bucket][offset]
                    place = topic, bucket, offset
                    self.schedule.lanes.add(key, flight.number, place, start, offset, 1)
            for _ in self.intake.stops(flight.part, (flight.number,)):
                pass
        self.most_queued = max(self.most_queued, self.schedule.lanes.messages)

    # Working.

    def start(self) -> None:
        """Begins what may begin, and judges it."""
        while (started := self.schedule.next(self.now)) is not None:
            topic, bucket, offset = started.items[0].message
            keys = self.logs[topic][bucket]
            running = {self._key(call) for call in self.calls}
            assert self._key(started) not in running
            earlier = {o for o in range(offset) if keys[o] == keys[offset]}
            done = {o for _, b, o in self.done[topic, keys[offset]] if b == bucket}
            assert earlier <= done
            assert offset not in done
            self.calls.append(started)
        assert len(self.calls) == self.schedule.lanes.running <= self.width

    def _key(self, call: Started[Place]) -> Key:
        topic, bucket, offset = call.items[0].message
        return topic, self.logs[topic][bucket][offset]

    def end(self, fails: float = 0.0) -> None:
        """Some handler returns or raises."""
        call = self.calls.pop(self._rng.randrange(len(self.calls)))
        item, key = call.items[0], self._key(call)
        error = ValueError("poison") if key in self.poison else None
        if error is None and self._rng.random() < fails:
            error = ValueError("now and then")
        if error is None:
            self.done[key].append(item.message)
        outcomes = {} if error is None else {item: error}
        self.schedule.ended(call, outcomes, self.now, is_cancelled=False)

    def end_all(self) -> None:
        """All that runs ends, and what begins then."""
        while self.calls:
            self.end()
            self.turn()

    def commit(self) -> None:
        """All commits that something waits for are done."""
        untold = self.schedule.suspects.untold
        while untold:
            holding, part = untold.popitem()
            self.committed(part, holding)

    def committed(self, part: TopicWork, holding: Holding) -> None:
        """A commit of a bucket is done, of which its consumer tells."""
        gaps = there(holding.gaps)
        gaps.saving = gaps.version
        part.core.on_committed(holding, gaps.watermark, self.now)
        if not part.is_over:
            self.schedule.tend(part, self.now)

    def turn(self, seconds: float = 0.0) -> None:
        """Time passes; what follows from it and from ends is done, as in a turn of the shell."""
        self.now += seconds
        self.schedule.wake(self.now)
        self.intake.look_at_stopped()
        for _ in self.intake.resumes():
            pass
        while True:
            self.take()
            self.start()
            if not self.flights:
                return
            for _ in self.schedule.sheds():
                pass
            if not self.intake.has_room:
                return


def settings(**changes: object) -> RunSettings:
    """Attempts come at once, and without end."""
    retry = sdk.Retry(delay_s=sdk.Backoff(first=0.5, factor=1.0, most=0.5))
    return RunSettings(retry=retry, **changes)  # type: ignore[arg-type]
