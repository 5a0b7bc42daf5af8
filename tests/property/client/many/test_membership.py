"""Which topics a consumer over many has, whatever comes, goes, fails and settles, in any order."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from anabranch.client._many.membership import (
    BACK_OFF_S_MAX,
    BACK_OFF_S_MIN,
    MemberState,
    Order,
    OrderKind,
    TopicMembership,
)
from anabranch.client._many.turns import TopicTurns

SETTLE_S = 5.0
OPENING_MAX = 3
TOPICS = [f"t{number}" for number in range(8)]


class World:
    """A shell that obeys late, and tells of everything that would be wrong."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.members = TopicMembership(SETTLE_S, OPENING_MAX)
        self.listed: set[str] = set()
        self.opening: set[str] = set()
        self.open: dict[str, bool] = {}  # whether something given out is not settled
        self.closing: set[str] = set()
        self.draining_since: dict[str, float] = {}

    def step(self) -> None:
        self.now += self.random.choice((0.0, 0.01, 0.5, 3.0))
        self.random.choice(
            (self.list, self.unlist, self.finish, self.give, self.settle, self.fail)
        )()
        self.obey()

    def list(self) -> None:
        topic = self.random.choice(TOPICS)
        self.listed.add(topic)
        self.members.listed([topic], self.now)

    def unlist(self) -> None:
        topic = self.random.choice(TOPICS)
        self.listed.discard(topic)
        self.members.unlisted([topic], self.now)

    def finish(self) -> None:
        """Something that was ordered comes to its end, well or not."""
        for topic in self.random.sample(sorted(self.opening), min(1, len(self.opening))):
            self.opening.discard(topic)
            if topic in self.closing:  # it was cancelled
                continue
            if self.random.random() < 0.6:
                self.open[topic] = False
                self.members.opened(topic, self.now)
            else:
                assert self.members.failed(topic, self.now) <= BACK_OFF_S_MAX
        for topic in self.random.sample(sorted(self.closing), min(1, len(self.closing))):
            self.closing.discard(topic)
            self.opening.discard(topic)
            self.open.pop(topic, None)
            self.members.closed(topic, self.now)

    def give(self) -> None:
        for topic in self.open:
            if self.members.state(topic) is MemberState.OPEN:
                assert topic not in self.closing, "a message of a topic after its close"
                self.open[topic] = True

    def settle(self) -> None:
        for topic in list(self.open):
            if self.random.random() < 0.5:
                self.open[topic] = False
                self.members.settled(topic, self.now)

    def fail(self) -> None:
        for topic in self.open:
            if self.random.random() < 0.2:
                self.members.failed(topic, self.now)

    def obey(self) -> None:
        for topic in self.members.draining:
            self.draining_since.setdefault(topic, self.now)
        for order in self.members.orders(self.now):
            self.take(order)
        for topic in list(self.draining_since):
            if self.members.state(topic) is not MemberState.DRAINING:
                del self.draining_since[topic]
        assert len(self.opening - self.closing) <= OPENING_MAX
        assert self.members.wake_at() >= self.now

    def take(self, order: Order) -> None:
        topic = order.topic
        if order.kind is OrderKind.OPEN:
            assert topic not in self.opening | self.closing | self.open.keys(), "two openings"
            assert topic in self.listed, "a topic that nobody wants"
            self.opening.add(topic)
        else:
            assert topic in self.opening or topic in self.open, "nothing to be closed"
            assert topic not in self.closing, "closed twice"
            # As the product adds: a difference would be rounded otherwise.
            over = self.now >= self.draining_since.get(topic, self.now) + SETTLE_S
            assert topic in self.opening or not self.open[topic] or over or self.members_over
            self.closing.add(topic)

    members_over = False

    def rest(self) -> None:
        """All that is under way ends well, and time passes."""
        for _ in range(60):
            self.now += BACK_OFF_S_MAX
            for topic in sorted(self.opening - self.closing):
                self.opening.discard(topic)
                self.open[topic] = False
                self.members.opened(topic, self.now)
            for topic in sorted(self.closing):
                self.closing.discard(topic)
                self.opening.discard(topic)
                self.open.pop(topic, None)
                self.members.closed(topic, self.now)
            self.obey()


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 120))
def test_no_topic_is_opened_twice_or_closed_before_it_is_settled_and_all_are_served_at_last(
    seed: int, steps: int
) -> None:
    world = World(seed)
    for _ in range(steps):
        world.step()
    world.rest()
    served = {topic for topic in TOPICS if world.members.state(topic) is MemberState.OPEN}
    assert served == world.listed == set(world.open)


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 80))
def test_a_consumer_that_is_closed_has_no_topic_at_last_and_opens_none(
    seed: int, steps: int
) -> None:
    world = World(seed)
    for _ in range(steps):
        world.step()
    world.members_over = True
    world.listed.clear()
    world.members.close(world.now)
    world.obey()
    world.list()
    world.listed.clear()
    world.rest()
    assert world.members.is_empty
    assert not world.open


class Counting(dict[str, Any]):
    """Counts how often something in it is looked at."""

    looks = 0

    def __getitem__(self, key: str) -> Any:
        self.looks += 1
        return super().__getitem__(key)


def test_topics_that_wait_for_their_time_cost_nothing_until_it_comes() -> None:
    members, topics = TopicMembership(SETTLE_S, 2_000), [f"t{number}" for number in range(2_000)]
    members.listed(topics, 0.0)
    assert len(members.orders(0.0)) == len(topics)
    for topic in topics[:1_000]:
        members.opened(topic, 0.0)
    for topic in topics[1_000:]:
        members.failed(topic, 0.0)  # these are tried again, those drain
    members.unlisted(topics[:1_000], 0.0)
    members._members = counting = Counting(members._members)
    for _ in range(100):
        assert members.orders(0.1) == []
        assert members.wake_at() == BACK_OFF_S_MIN
    assert counting.looks <= 2 * 100
    assert {order.topic for order in members.orders(BACK_OFF_S_MIN)} == set(topics[1_000:])
    assert members.wake_at() == SETTLE_S
    assert {(order.kind, order.topic) for order in members.orders(SETTLE_S)} == {
        (OrderKind.CLOSE, topic) for topic in topics[:1_000]
    }


@given(
    backlogs=st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 700), min_size=1),
    takes=st.lists(st.integers(1, 250), min_size=1, max_size=40),
)
def test_between_two_turns_of_a_topic_each_other_one_with_messages_has_one(
    backlogs: dict[str, int], takes: list[int]
) -> None:
    quantum = 100
    turns = TopicTurns(quantum)
    for topic in backlogs:
        turns.ready(topic)
    given_out: dict[str, int] = defaultdict(int)
    for most in takes:
        left = most
        while left and turns:
            topic, quota = turns.next()
            count = min(left, quota, backlogs[topic])
            assert count <= quantum
            backlogs[topic] -= count
            given_out[topic] += count
            left -= count
            turns.took(topic, count)
        waiting = [given_out[topic] for topic, rest in backlogs.items() if rest]
        if waiting:  # nobody that waits is more than a turn behind anybody
            assert max(given_out.values()) - min(waiting) <= quantum
    while turns:
        topic, quota = turns.next()
        count = min(quota, backlogs[topic])
        backlogs[topic] -= count
        turns.took(topic, count)
    assert set(backlogs.values()) == {0}
