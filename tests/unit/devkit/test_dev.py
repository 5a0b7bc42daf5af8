"""When `dev` starts nodes again."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.devkit.dev import ALONE_S, BESIDE_OTHERS_S, Restarts


def test_a_node_comes_back_once_after_its_pause_and_sooner_if_it_was_the_last() -> None:
    restarts = Restarts()
    assert restarts.ended("node-0", 300.0, 1_000.0, alone=False) == BESIDE_OTHERS_S
    assert restarts.ended("node-1", 300.0, 1_000.0, alone=True) == ALONE_S
    assert restarts.take(1_000.0) == []
    assert restarts.take(1_000.0 + ALONE_S) == ["node-1"]
    assert (restarts.waits("node-0"), restarts.waits("node-1")) == (True, False)
    assert restarts.take(1_000.0 + BESIDE_OTHERS_S) == ["node-0"]
    assert restarts.take(9_000.0) == []


def test_one_that_ends_soon_waits_longer_each_time_until_it_has_run_for_a_while() -> None:
    restarts = Restarts()
    pauses = [restarts.ended("node-0", 2.0, 0.0, alone=True) for _ in range(9)]
    assert (pauses[:4], pauses[-1]) == ([1.0, 2.0, 4.0, 8.0], 60.0)
    assert restarts.ended("node-0", 100.0, 0.0, alone=True) == ALONE_S


@given(st.lists(st.tuples(st.floats(0, 1_000), st.booleans()), max_size=30))
def test_every_pause_is_bounded_and_every_node_comes_back(ends: list[tuple[float, bool]]) -> None:
    restarts = Restarts()
    for ran_s, alone in ends:
        pause_s = restarts.ended("node-0", ran_s, 5.0, alone=alone)
        assert ALONE_S <= pause_s <= 60.0
        assert restarts.take(5.0 + pause_s) == ["node-0"]
