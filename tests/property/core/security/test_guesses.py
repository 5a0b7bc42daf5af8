"""Whoever guesses has so many tries in a time, whatever they do; whoever does not, has no wait."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.client._consumer import session
from anabranch.client._many import connections
from anabranch.client._topics import list_watch, traffic, watch
from anabranch.core.security.allowances import ROLES_MAX, Allowances
from anabranch.core.security.guesses import (
    ADDRESSES_MAX,
    DELAY_S_MAX,
    FORGOTTEN_AFTER_S,
    FREE_TRIES,
    WAITING_MAX,
    Guesses,
    answer_s,
)

HOUR_S = 3_600.0
SDK_S = (  # in which each part of a client has to have connected
    session._CONNECT_S_MAX,
    traffic._CONNECT_S_MAX,
    watch._CONNECT_S_MAX,
    list_watch._CONNECT_S_MAX,
    connections._CONNECT_S_MAX,
)


def test_an_address_has_few_tries_however_many_connections_it_makes() -> None:
    """A hundred at once, for an hour, of which none waits for its answer."""
    guesses, now, tried = Guesses(), 0.0, 0
    due: list[float] = []
    while now < HOUR_S:
        for _ in [at for at in due if at <= now]:
            guesses.end("eve")
        due = [at for at in due if at > now]
        for _ in range(100):
            if guesses.begin("eve", now):
                tried += 1
                due.append(now + guesses.was_wrong("eve", now))
        now += 0.1
    # The free ones end at once, but in the same instant the others have begun.
    assert tried <= 100 + WAITING_MAX * (HOUR_S / DELAY_S_MAX + 10)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 10)), max_size=60))
def test_who_is_right_leaves_nothing_behind(steps: list[tuple[bool, float]]) -> None:
    guesses, now = Guesses(), 0.0
    for is_twice, passed in steps:
        now += passed
        for _ in range(1 + is_twice):
            assert guesses.begin("ada", now)
        for _ in range(1 + is_twice):
            guesses.end("ada")
        assert len(guesses) == 0


@given(st.lists(st.sampled_from(["begin", "wrong", "end", "wait"]), max_size=80))
def test_the_first_tries_cost_nothing_and_a_minute_ends_it(steps: list[str]) -> None:
    guesses, now, under_way, wrong = Guesses(), 0.0, 0, 0
    for step in steps:
        if step == "begin":
            begun = guesses.begin("eve", now)
            assert begun or (wrong >= FREE_TRIES and under_way >= WAITING_MAX)
            under_way += begun
        elif step == "wrong" and under_way:
            delay = guesses.was_wrong("eve", now)
            wrong += 1
            assert 0 <= delay <= DELAY_S_MAX
            assert bool(delay) == (wrong > FREE_TRIES)
            assert bool(answer_s(delay)) == bool(delay)
            assert answer_s(delay) < min(SDK_S)
        elif step == "end" and under_way:
            guesses.end("eve")
            under_way -= 1
        elif step == "wait":
            now += 1.0
    while under_way:
        guesses.end("eve")
        under_way -= 1
    now += FORGOTTEN_AFTER_S
    assert guesses.begin("eve", now)
    assert guesses.was_wrong("eve", now) == 0


def test_addresses_are_bounded() -> None:
    guesses = Guesses()
    for number in range(ADDRESSES_MAX + 10):
        assert guesses.begin(str(number), 0.0)
        guesses.was_wrong(str(number), 0.0)
    assert len(guesses) == ADDRESSES_MAX
    guesses.end("0")  # who was forgotten meanwhile
    assert guesses.was_wrong("0", 0.0) > 0


# --- how often a role may ask is what is set, in any second; and what others ask changes nothing


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
