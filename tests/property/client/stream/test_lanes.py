"""Lanes against a model that knows keys and offsets only."""

from __future__ import annotations

import random
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from anabranch.client._stream.lanes import Item, Lanes


@given(st.integers(), st.integers(1, 4), st.integers(1, 6))
def test_a_key_has_one_message_at_a_time_in_order_and_nothing_is_forgotten(
    seed: int, buckets: int, keys: int
) -> None:
    """Buckets are dropped and read again, attempts fail, and some may not start for now."""
    rng = random.Random(seed)
    barred: set[int] = set()
    lanes: Lanes[None] = Lanes(lambda item: item.offset not in barred)
    number_of = dict(enumerate(range(buckets)))  # of each bucket's fetch
    key_of = {(b, o): (b, rng.randrange(keys)) for b in range(buckets) for o in range(12)}
    read: dict[int, int] = defaultdict(int)
    done: set[tuple[int, int]] = set()
    running: list[tuple[int, Item[None]]] = []  # with their buckets
    now, next_number = 0.0, buckets
    for _ in range(200):
        now += 1.0
        what, bucket = rng.random(), rng.randrange(buckets)
        if what < 0.3 and read[bucket] < 12:
            place = bucket, read[bucket]
            read[bucket] += 1
            if place not in done and place not in {(b, each.offset) for b, each in running}:
                lanes.add(key_of[place], number_of[bucket], None, place[1], place[1], 1)
        elif what < 0.35:
            lanes.drop(number_of[bucket])
            number_of[bucket], read[bucket] = next_number, 0
            next_number += 1
        elif what < 0.7:
            barred = {rng.randrange(12)} if rng.random() < 0.2 else set()
            item = lanes.take()
            if item is not None:
                assert item.offset not in barred
                (where,) = (b for b, each in number_of.items() if each == item.number)
                key = key_of[where, item.offset]
                assert key not in {key_of[b, each.offset] for b, each in running}
                before = [o for o in range(item.offset) if key_of[where, o] == key]
                assert {(where, o) for o in before} <= done
                assert (where, item.offset) not in done
                running.append((where, item))
        elif running:
            where, item = running.pop(rng.randrange(len(running)))
            if rng.random() < 0.6:
                done.add((where, item.offset))
                lanes.done(item)
            elif item.offset >= read[where]:
                lanes.done(item)  # it is read again
            else:
                item.number = number_of[where]
                lanes.again(item, now + rng.randrange(5))
        lanes.wake(now)
        assert lanes.running == len(running)
        assert lanes.messages == sum(each.messages for each in lanes.queued.values())
    for where, item in running:
        done.add((where, item.offset))
        lanes.done(item)
    barred.clear()
    lanes.wake(now + 10.0)
    while (item := lanes.take()) is not None:
        (where,) = (b for b, each in number_of.items() if each == item.number)
        done.add((where, item.offset))
        lanes.done(item)
    assert {(b, o) for b in range(buckets) for o in range(read[b])} <= done
    assert (len(lanes), lanes.messages, lanes.bytes, lanes.wake_at()) == (0, 0, 0, None)


def test_buckets_take_turns_and_the_lowest_offset_of_each_comes_first() -> None:
    lanes: Lanes[str] = Lanes(lambda _: True)
    for number, offsets in ((1, (5, 6, 7)), (2, (9, 10))):
        for offset in offsets:
            lanes.add(offset, number, "", offset, offset, 1)
    first = lanes.take()
    assert first is not None
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
