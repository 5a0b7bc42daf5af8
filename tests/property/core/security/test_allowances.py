"""A role may ask as often as is set, in any second; what others ask changes nothing."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.security.allowances import ROLES_MAX, Allowances

rates = st.integers(1, 50)
passing = st.one_of(st.just(0.0), st.floats(0, 0.1), st.floats(0, 5))


@given(rates, st.lists(passing, max_size=200))
def test_no_span_of_time_holds_more_than_the_rate_and_what_may_come_at_once(
    rate: int, steps: list[float]
) -> None:
    allowances, now = Allowances(rate), 1_000.0
    taken: list[float] = []
    for passed in steps:
        now += passed
        if allowances.take("ada", now) == 0.0:
            taken.append(now)
    for first, start in enumerate(taken):
        for last in range(first, len(taken)):
            count, span = last - first + 1, taken[last] - start
            assert count <= rate + rate * span + 0.01


@given(rates, st.lists(passing, max_size=60))
def test_who_waits_as_long_as_was_said_is_served_and_who_asks_less_never_waits(
    rate: int, steps: list[float]
) -> None:
    allowances, now = Allowances(rate), 0.0
    for passed in steps:
        now += passed
        while (wait_s := allowances.take("ada", now)) == 0.0:
            pass
        assert 0 < wait_s <= 1 / rate + 1e-6
        now += wait_s + 1e-9
        assert allowances.take("ada", now) == 0.0
    now += 1.0
    for _ in range(100):
        now += 1 / rate
        assert allowances.take("ada", now) == 0.0


@given(rates, st.lists(st.tuples(st.sampled_from("abc"), passing), max_size=100))
def test_roles_do_not_touch_each_other(rate: int, steps: list[tuple[str, float]]) -> None:
    together, alone = Allowances(rate), {each: Allowances(rate) for each in "abc"}
    now = 0.0
    for role, passed in steps:
        now += passed
        assert together.take(role, now) == pytest.approx(alone[role].take(role, now))


def test_roles_that_are_silent_are_forgotten_and_no_more_are_kept_than_there_may_be() -> None:
    allowances = Allowances(2)
    for number in range(ROLES_MAX + 500):
        assert allowances.take(str(number), 0.0) == 0.0
    assert len(allowances) == ROLES_MAX
    for number in range(ROLES_MAX):
        assert allowances.take(str(number % 7), 10.0 + number) == 0.0
    assert len(allowances) <= 7
    assert Counter(allowances.take("0", 1e6) == 0.0 for _ in range(5)) == {True: 2, False: 3}
