"""Order, loss, repetition and what is waited for, under random interleavings of sends and seals."""

from __future__ import annotations

from contextlib import ExitStack
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.client._producer.partition_writer import PartitionWriter
from faults.planted import BUGS
from support.sender_world import SenderWorld

_KEYS = [b"key-%d" % number for number in range(12)]


def settled(seed: int, senders: int, steps: int, *, gives_up: bool = False) -> SenderWorld:
    world = SenderWorld(Random(seed), senders, gives_up)
    for _ in range(steps):
        world.step(_KEYS)
    world.settle()
    return world


@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(0, 400), senders=st.integers(1, 3))
@example(seed=1687, steps=294, senders=2)  # a child refuses keys whose parent has no writer yet
def test_every_message_arrives_once_and_each_key_in_order_and_nothing_stays_behind(
    seed: int, steps: int, senders: int
) -> None:
    world = settled(seed, senders, steps)
    for producer in world.producers:
        sent = {key: values for key, values in producer.sent.items() if values}
        assert world.received(producer) == sent
        for writer in producer.sender.router.writers():
            assert not writer.refused
            assert not writer.held
            assert writer.outstanding == 0


@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(0, 400), senders=st.integers(1, 3))
def test_keys_of_an_adopted_topic_keep_their_order_and_wait_for_its_cut_over(
    seed: int, steps: int, senders: int
) -> None:
    """Plain writers may have put any key of ours into any of its partitions."""
    world = SenderWorld(Random(seed), senders, adopted=True)
    for _ in range(steps):
        world.step(_KEYS)
        if world.random.random() < 0.1:
            world.stranger.send(b"strange")
    world.settle()
    for producer in world.producers:
        sent = {key: values for key, values in producer.sent.items() if values}
        assert world.received(producer) == sent


@given(
    seed=st.integers(0, 2**32 - 1),
    steps=st.integers(0, 400),
    keys=st.integers(1, 12),
    gives_up=st.booleans(),
)
def test_what_was_acknowledged_before_another_of_its_key_was_sent_comes_first(
    seed: int, steps: int, keys: int, gives_up: bool
) -> None:
    world = shared(seed, steps, keys, gives_up)
    assert world.history.turned(world.stored()) == []


def shared(seed: int, steps: int, keys: int, gives_up: bool = False) -> SenderWorld:
    """Senders that begin at any moment, and a stranger, write to the same keys."""
    world = SenderWorld(Random(seed), 2, gives_up)
    for _ in range(steps):
        world.step(_KEYS[:keys])
        if world.random.random() < 0.1:
            world.stranger.send(world.random.choice(_KEYS[:keys]))
        if world.random.random() < 0.01:
            world.begin_producer()
    world.settle()
    return world


@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(0, 400))
def test_what_is_given_up_harms_nothing_else(seed: int, steps: int) -> None:
    world = settled(seed, 2, steps, gives_up=True)
    for producer in world.producers:
        received = world.received(producer)
        assert all(len(set(values)) == len(values) for values in received.values())
        for key, values in producer.sent.items():
            told = [value for value in values if (key, value) not in producer.unknown]
            assert [each for each in received[key] if (key, each) not in producer.unknown] == told


@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(0, 400), gives_up=st.booleans())
def test_a_barrier_waits_for_what_was_sent_before_it_and_for_nothing_else(
    seed: int, steps: int, gives_up: bool
) -> None:
    world = SenderWorld(Random(seed), 1, gives_up)
    (producer,) = world.producers
    with ExitStack() as until_over:
        for _ in range(steps):
            world.step(_KEYS)
            if world.random.random() < 0.02:
                producer.wait(until_over)
            for barrier, before in producer.waits:
                assert barrier.left == len(before & producer.unsettled)
        world.settle()
        assert all(barrier.left == 0 for barrier, _ in producer.waits)


# --- planted bugs: the judge must find each ---------------------------------------------------


@pytest.mark.parametrize("bug", ["moves-when-announced", "begins-in-child"])
def test_it_is_found_when_a_producer_goes_to_a_child_too_soon(
    bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    BUGS[bug].plant(monkeypatch.setattr)
    worlds = (shared(seed, 400, 4) for seed in range(400))
    assert any(world.history.turned(world.stored()) for world in worlds)


def test_it_is_found_when_a_batch_in_doubt_is_taken_for_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = PartitionWriter.unanswered
    monkeypatch.setattr(
        PartitionWriter, "unanswered", lambda writer, in_doubt: sound(writer, False)
    )
    assert any(
        world.received(producer) != {key: values for key, values in producer.sent.items() if values}
        for world in (shared(seed, 400, 4) for seed in range(100))
        for producer in world.producers
    )
