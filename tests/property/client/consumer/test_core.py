"""Consumers, a controller that grants only what is free, and a network that delays and loses."""

import random
from collections import deque
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.client._consumer.assignment import (
    AssignedSegment,
    Assignment,
    AssignmentReport,
    Holding,
    Phase,
    SegmentBucket,
    SubscribeOrder,
)
from anabranch.client._consumer.core import ConsumerCore

TIMEOUT_S = 6.0
GRACE_S = 9.0
SETTLE_S = 2.0
BUCKETS = 2
END = 200  # offsets of each bucket; the last ones are no messages
NAMES = (0, 1)


def messages(first: int, end: int) -> list[int]:
    """The offsets that are messages: others are ends of transactions, or were given up."""
    return [offset for offset in range(first, end) if offset % 5 < 3]


class Controller:
    """Grants each bucket to one session, and to another once it is released or lapsed."""

    def __init__(self) -> None:
        self.target: dict[int, int | None] = dict.fromkeys(range(BUCKETS), 0)
        self.holder: dict[int, int | None] = dict.fromkeys(range(BUCKETS))
        self.heard: dict[int, float] = {}
        self.attempt: dict[int, int] = {}
        self.sequence = 0

    def subscribe(self, name: int, order: SubscribeOrder, now: float) -> Assignment:
        self.heard[name], self.attempt[name] = now, order.number
        for bucket, holder in self.holder.items():
            if holder == name and SegmentBucket(1, bucket) not in order.holdings:
                self.holder[bucket] = None
            elif holder is None and SegmentBucket(1, bucket) in order.holdings:
                self.holder[bucket] = name
        return self.assignment(name)

    def report(self, name: int, attempt: int, report: AssignmentReport, now: float) -> bool:
        if self.attempt.get(name) != attempt:
            return False
        self.heard[name] = now
        for place in report.released:
            if self.holder[place.bucket] == name:
                self.holder[place.bucket] = None
        return True

    def assignment(self, name: int) -> Assignment:
        granted = []
        for bucket, target in self.target.items():
            if target == name and self.holder[bucket] in (None, name):
                self.holder[bucket] = name
                granted.append(bucket)
        self.sequence += 1
        segments = (AssignedSegment(1, "t", tuple(granted)),) if granted else ()
        return Assignment(self.sequence, 1, 1, "g", TIMEOUT_S, segments)

    def lapse(self, now: float) -> None:
        for bucket, holder in self.holder.items():
            if holder is not None and now - self.heard[holder] > GRACE_S:
                self.holder[bucket] = None
                self.attempt.pop(holder, None)


class Consumers:
    def __init__(self) -> None:
        self.now = 0.0
        self.controller = Controller()
        self.cores = [ConsumerCore(SETTLE_S) for _ in NAMES]
        self.attempts = [0 for _ in NAMES]
        # Per consumer, in order: what is on its way to the controller, and what is on its way back.
        self.requests: list[deque[Any]] = [deque() for _ in NAMES]
        self.answers: list[deque[Any]] = [deque() for _ in NAMES]
        self.committed = dict.fromkeys(range(BUCKETS), 0)
        self.moves = 0
        self.position: dict[tuple[int, int], int] = {}  # by consumer and fetch
        self.last_reader: dict[int, int | None] = dict.fromkeys(range(BUCKETS))
        self.disturbed = False  # a lapse, or a settling that ran out of time: repeats are allowed
        self.delivered: dict[int, list[int]] = {bucket: [] for bucket in range(BUCKETS)}
        self.waiting: list[dict[int, tuple[Holding, int]]] = [{} for _ in NAMES]

    def subscribe(self, name: int) -> None:
        core = self.cores[name]
        if core.needs_subscribe:
            self.requests[name].clear()
            self.answers[name].clear()
            order = core.begin_subscribe(self.now)
            self.attempts[name] = order.number
            self.requests[name].append(order)

    def report(self, name: int) -> None:
        if self.cores[name].report_due(self.now):
            report = self.cores[name].begin_report(self.now)
            if report is not None:
                self.requests[name].append((self.attempts[name], report))

    def arrive(self, name: int) -> None:
        if not self.requests[name]:
            return
        request = self.requests[name].popleft()
        self.controller.lapse(self.now)
        if isinstance(request, SubscribeOrder):
            answer = self.controller.subscribe(name, request, self.now)
            self.answers[name].append((request.number, answer))
        else:
            attempt, report = request
            if self.controller.report(name, attempt, report, self.now):
                self.push(name)
                self.answers[name].append(report.number)

    def push(self, name: int) -> None:
        if name in self.controller.attempt:
            self.controller.lapse(self.now)
            if name in self.controller.attempt:
                self.answers[name].append(self.controller.assignment(name))

    def hear(self, name: int, count: int, late: int = 0) -> None:
        """`late`: so many pushes are seen before an answer that arrived with them.

        For an answer wakes up the task that waits for it, and pushes are seen as they come.
        """
        for _ in range(min(count, len(self.answers[name]))):
            answer = self.answers[name].popleft()
            if late and not isinstance(answer, Assignment):
                self.answers[name].insert(late, answer)
                late = 0
                continue
            if isinstance(answer, Assignment):
                self.cores[name].on_assignment(answer, self.now)
            elif isinstance(answer, tuple):
                self.cores[name].on_subscribed(answer[0], answer[1], self.now)
            else:
                self.cores[name].on_reported(answer, self.now)

    def disconnect(self, name: int) -> None:
        self.cores[name].on_disconnected()
        self.requests[name].clear()
        self.answers[name].clear()

    def rebalance(self, bucket: int, to: int | None) -> None:
        self.controller.target[bucket] = to

    def read(self, name: int, count: int) -> None:
        for number, holding in list(self.cores[name].fetches.items()):
            bucket, fetch = holding.place.bucket, holding.fetch
            if fetch is None:
                continue  # the session lapsed at the look at another one
            if (name, number) not in self.position:
                self.position[name, number] = (
                    self.committed[bucket] if fetch.start is None else fetch.start
                )
                self.cores[name].on_position(number, self.position[name, number])
                self.moves += self.last_reader[bucket] != name
                self.last_reader[bucket] = name
            held = self.cores[name].may_deliver(number, self.now)
            if held is not None:
                end = min(self.position[name, number] + count, END)
                found = messages(self.position[name, number], end)
                self.delivered[bucket] += found
                self.position[name, number] = end
                if found:
                    held.deliver(found[-1] + 1)
                    self.waiting[name][bucket] = (held, found[-1] + 1)
                if not messages(end - 1, end):
                    self.cores[name].on_reached(number, end)

    def acknowledge(self, name: int, bucket: int) -> None:
        if bucket in self.waiting[name]:
            holding, end = self.waiting[name].pop(bucket)
            self.cores[name].acknowledge(holding, end, self.now)

    def commit(self, name: int) -> None:
        for holding, end in self.cores[name].commits(self.now):
            assert end >= self.committed[holding.place.bucket]
            assert set(messages(0, end)) <= set(self.delivered[holding.place.bucket])
            self.committed[holding.place.bucket] = end
            self.cores[name].on_committed(holding, end, self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for core in self.cores:
            late = [h for h in core.holdings.values() if h.phase is Phase.SETTLING and h.in_flight]
            self.disturbed |= any(h.settle_by <= self.now for h in late)
            self.disturbed |= core.tick(self.now)
        self.controller.lapse(self.now)

    def a_bucket_is_served_by_one_consumer_at_most(self) -> None:
        for bucket in range(BUCKETS):
            served = [n for n in NAMES if self.serves(n, bucket)]
            assert len(served) <= 1, served

    def nothing_is_left_out_and_nothing_repeated_while_sessions_last(self) -> None:
        if any(core.lapses for core in self.cores):
            self.disturbed = True
        for offsets in self.delivered.values():
            assert set(offsets) == set(messages(0, max(offsets, default=-1) + 1))
            if not self.disturbed:
                assert offsets == sorted(set(offsets))

    def end_faults(self) -> None:
        """Nothing is lost any more and nobody dawdles."""
        for bucket in range(BUCKETS):
            self.rebalance(bucket, bucket)
        for _ in range(200):
            for name in NAMES:
                self.subscribe(name)
                self.report(name)
                self.push(name)
                self.arrive(name)
                self.hear(name, 9)
                self.read(name, 5)
                for bucket in range(BUCKETS):
                    self.acknowledge(name, bucket)
                self.commit(name)
            self.wait(0.1)
            self.a_bucket_is_served_by_one_consumer_at_most()

    def serves(self, name: int, bucket: int) -> bool:
        holding = self.cores[name].holdings.get(SegmentBucket(1, bucket))
        return holding is not None and holding.is_held


def run(seed: int, steps: int) -> Consumers:
    """A random history: most of what is due happens soon, and now and then something is lost."""
    chance = random.Random(seed)
    world = Consumers()
    actions = {
        "subscribe": 6,
        "report": 6,
        "arrive": 10,
        "push": 6,
        "hear": 8,
        "read": 8,
        "acknowledge": 6,
        "commit": 6,
        "wait": 3,
        "rebalance": 3,
        "disconnect": 0.5,
    }
    for action in chance.choices(list(actions), list(actions.values()), k=steps):
        name, bucket = chance.choice(NAMES), chance.randrange(BUCKETS)
        match action:
            case "wait":
                world.wait(chance.uniform(0.05, 0.5) if chance.random() < 0.98 else 4.0)
            case "rebalance":
                world.rebalance(bucket, chance.choice((*NAMES, None)))
            case "hear":
                world.hear(name, chance.randint(1, 4), chance.choice((0, 0, 1, 2, 3)))
            case "read":
                world.read(name, chance.randint(1, 3))
            case "acknowledge":
                world.acknowledge(name, bucket)
            case _:
                getattr(world, action)(name)
        world.a_bucket_is_served_by_one_consumer_at_most()
        world.nothing_is_left_out_and_nothing_repeated_while_sessions_last()
    return world


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_no_two_serve_a_bucket_and_nothing_is_lost_or_repeated(seed: int) -> None:
    world = run(seed, 500)
    world.end_faults()
    assert [world.serves(bucket, bucket) for bucket in range(BUCKETS)] == [True] * BUCKETS
    assert world.committed == dict.fromkeys(range(BUCKETS), END)


def test_the_histories_of_this_test_go_far_enough_to_mean_something() -> None:
    worlds = [run(seed, 500) for seed in range(40)]
    assert sum(len(o) for w in worlds for o in w.delivered.values()) > 40 * 10
    assert sum(w.moves for w in worlds) > 40 * 2
    assert any(core.lapses for w in worlds for core in w.cores)
    assert any(not w.disturbed for w in worlds)
