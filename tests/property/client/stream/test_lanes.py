"""Lanes against a model that knows keys and offsets only."""

from __future__ import annotations

import random
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from anabranch.client._stream.lanes import Item, Lanes


class Model:
    """Buckets with messages of a few keys, which knows offsets and keys only."""

    def __init__(self, rng: random.Random, buckets: int, keys: int) -> None:
        self.barred: set[int] = set()
        self.lanes: Lanes[None] = Lanes(lambda item: item.offset not in self.barred)
        self.number_of = dict(enumerate(range(buckets)))  # of each bucket's fetch
        self.key_of = {(b, o): (b, rng.randrange(keys)) for b in range(buckets) for o in range(12)}
        self.read: dict[int, int] = defaultdict(int)
        self.done: set[tuple[int, int]] = set()
        self.calls: list[tuple[int, list[Item[None]]]] = []  # with their buckets
        self._rng, self._next_number = rng, buckets

    def running(self) -> set[tuple[int, int]]:
        return {(bucket, each.offset) for bucket, call in self.calls for each in call}

    def read_one(self, bucket: int) -> None:
        place = bucket, self.read[bucket]
        self.read[bucket] += 1
        if place not in self.done | self.running():
            key, number = self.key_of[place], self.number_of[bucket]
            self.lanes.open(number, bucket % 2)
            self.lanes.add(key, number, None, place[1], place[1], 1)

    def drop(self, bucket: int) -> None:
        self.lanes.drop(self.number_of[bucket])
        self.number_of[bucket], self.read[bucket] = self._next_number, 0
        self._next_number += 1

    def read_by_another_fetch(self, bucket: int, messages: int) -> None:
        """The bucket goes on behind what it still has: its last messages are read again."""
        former, self.number_of[bucket] = self.number_of[bucket], self._next_number
        self._next_number += 1
        if former in self.lanes.queued:
            failed = {each for each in self.lanes.queued[former].items if each.error is not None}
            start = self.lanes.cut(former, messages, 100)
            assert failed <= self.lanes.queued[former].items.keys()
            if start is not None:
                self.read[bucket] = start
            self.lanes.renumber(former, self.number_of[bucket])

    def bar(self, barred: set[int]) -> None:
        self.barred = barred
        self.lanes.look_again()

    def begin(self, most: int, *, others: bool) -> bool:
        """Begins a call, and judges what it has."""
        item = self.lanes.take()
        if item is None:
            return False
        call = [item]
        heads = self.lanes.heads(call)
        while len(call) < most and (more := self.lanes.join(call, heads, others=others)):
            call.append(more)
        (where,) = (b for b, each in self.number_of.items() if each == item.number)
        taken = {self.key_of[place] for place in self.running()}
        offsets = {each.offset for each in call}
        assert [each.offset for each in call] == sorted(offsets)
        assert not offsets & self.barred
        for offset in offsets:
            key = self.key_of[where, offset]
            assert key not in taken
            before = {o for o in range(offset) if self.key_of[where, o] == key}
            assert {(where, o) for o in before - offsets} <= self.done
            assert (where, offset) not in self.done
        self.calls.append((where, call))
        return True

    def end(self, failed: float, now: float) -> None:
        """Ends any call. Of each key, what follows a failed message is not done either."""
        where, call = self.calls.pop(self._rng.randrange(len(self.calls)))
        self.lanes.running -= 1
        behind, left = set(), set()
        for item in call:
            if item.lane in behind or self._rng.random() < failed:
                behind.add(item.lane)
                left.add(item)
            else:
                self.done.add((where, item.offset))
        for item in reversed(call):
            if item not in left or item.offset >= self.read[where]:
                self.lanes.done(item)  # or it is read again
            else:
                item.number = self.number_of[where]
                item.error = self._rng.choice((None, ValueError()))
                self.lanes.open(item.number, where % 2)
                self.lanes.again(item, now + self._rng.randrange(5))


@given(st.integers(), st.integers(1, 4), st.integers(1, 6))
def test_a_key_is_in_one_call_at_a_time_in_order_and_nothing_is_forgotten(
    seed: int, buckets: int, keys: int
) -> None:
    """Buckets are dropped and read again, whole or in part. Attempts fail, and some may not start
    for now.
    """
    rng = random.Random(seed)
    model = Model(rng, buckets, keys)
    now = 0.0
    for _ in range(200):
        now += 1.0
        what, bucket = rng.random(), rng.randrange(buckets)
        if what < 0.3 and model.read[bucket] < 12:
            model.read_one(bucket)
        elif what < 0.35:
            model.drop(bucket)
        elif what < 0.4:
            model.read_by_another_fetch(bucket, rng.randrange(4))
        elif what < 0.7:
            model.bar({rng.randrange(12)} if rng.random() < 0.2 else set())
            model.begin(rng.choice((1, 1, 2, 5)), others=rng.random() < 0.5)
        elif model.calls:
            model.end(0.4, now)
        model.lanes.wake(now)
        assert model.lanes.running == len(model.calls)
        queued = model.lanes.queued.values()
        assert model.lanes.messages == sum(each.messages for each in queued)
    model.bar(set())
    while model.calls:
        model.end(0.0, now)
    model.lanes.wake(now + 10.0)
    while model.begin(1, others=False):
        model.end(0.0, now)
    assert {(b, o) for b in range(buckets) for o in range(model.read[b])} <= model.done
    lanes = model.lanes
    assert (len(lanes), lanes.messages, lanes.bytes, lanes.wake_at()) == (0, 0, 0, None)


def test_buckets_take_turns_and_the_lowest_offset_of_each_comes_first() -> None:
    lanes: Lanes[str] = Lanes(lambda _: True)
    for number, offsets in ((1, (5, 6, 7)), (2, (9, 10))):
        for offset in offsets:
            lanes.add(offset, number, "", offset, offset, 1)
    first = lanes.take()
    assert first is not None
    lanes.running -= 1
    lanes.again(first, 1.0)
    lanes.wake(1.0)
    order = []
    while (item := lanes.take()) is not None:
        order.append((item.number, item.offset))
    assert order == [(2, 9), (1, 5), (2, 10), (1, 6), (1, 7)]


def test_many_keys_that_come_and_go_leave_nothing_behind() -> None:
    lanes: Lanes[None] = Lanes(lambda _: True)
    for offset in range(1_000):
        lanes.add(offset, 1, None, offset, offset, 1)
        item = lanes.take()
        assert item is not None
        lanes.done(item)
    assert len(lanes) == 0
