"""Order, loss, repetition and what is waited for, under random interleavings of sends and seals."""

from __future__ import annotations

from contextlib import ExitStack
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from support.flow_world import FlowWorld

_KEYS = [b"key-%d" % number for number in range(12)]


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(0, 400), senders=st.integers(1, 3))
def test_every_message_arrives_once_and_each_key_in_order(
    seed: int, steps: int, senders: int
) -> None:
    world = FlowWorld(Random(seed), senders)
    for _ in range(steps):
        world.step(_KEYS)
    world.settle()
    for sender in world.senders:
        sent = {key: values for key, values in sender.sent.items() if values}
        assert world.received(sender) == sent


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_nothing_stays_behind_in_flows_that_were_left(seed: int) -> None:
    world = FlowWorld(Random(seed), 1)
    for _ in range(300):
        world.step(_KEYS)
    world.settle()
    for flow in world.senders[0].under_way:
        assert not flow.refused
        assert not flow.held
        assert flow.outstanding == 0


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(0, 400))
def test_what_is_given_up_harms_nothing_else(seed: int, steps: int) -> None:
    world = FlowWorld(Random(seed), 2, gives_up=True)
    for _ in range(steps):
        world.step(_KEYS)
    world.settle()
    for sender in world.senders:
        received = world.received(sender)
        assert all(len(set(values)) == len(values) for values in received.values())
        for key, values in sender.sent.items():
            told = [value for value in values if (key, value) not in sender.unknown]
            there = [each for each in received[key] if (key, each) not in sender.unknown]
            assert there == told


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(0, 400), gives_up=st.booleans())
def test_a_barrier_counts_what_was_sent_before_it_and_nothing_else(
    seed: int, steps: int, gives_up: bool
) -> None:
    world = FlowWorld(Random(seed), 1, gives_up)
    (sender,) = world.senders
    with ExitStack() as until_over:
        for _ in range(steps):
            world.step(_KEYS)
            if world.random.random() < 0.02:
                sender.wait(until_over)
            for barrier, before in sender.waits:
                assert barrier.left == len(before & sender.unsettled)
        world.settle()
        assert all(barrier.left == 0 for barrier, _ in sender.waits)
