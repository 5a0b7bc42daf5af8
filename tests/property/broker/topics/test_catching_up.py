"""What holding topics against patterns may take, and that lists of patterns never lag for ever."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.topics.catching_up import CatchingUp, Slices
from anabranch.broker.topics.kept_list import KeptList
from anabranch.core.names import Namespace, full_name
from anabranch.core.topic_lists.matching import DEAR_S, ROUND_S, SLACK_S, Effort, MatchingRound
from anabranch.core.topic_lists.selection import Selection, by_pattern

HOME = Namespace("a/b")
_CHUNKS = st.lists(
    st.tuples(st.integers(0, 2_000), st.floats(0, 0.3)), min_size=1, max_size=8
)  # topics, and what they took


@given(st.lists(_CHUNKS, max_size=30))
def test_a_round_takes_its_time_and_what_is_cheap_and_gives_up_only_what_is_dear(
    asked: list[list[tuple[int, float]]],
) -> None:
    spent, bound, total = MatchingRound(), ROUND_S, 0.0
    for chunks in asked:
        effort = Effort()
        took_s, is_kept = 0.0, True
        for topics, spent_s in chunks:
            total += spent_s
            took_s += spent_s
            bound += 2 * topics * DEAR_S  # what was before counts half, at the least
            is_kept = spent.goes_on(effort, topics, spent_s)
            if not is_kept:
                bound += spent_s  # a slice, after which it is looked at
                assert total >= ROUND_S
                assert took_s > SLACK_S
                break
        bound += SLACK_S * (1 + len(chunks))
        assert total <= bound + 1e-9 or not is_kept or total < ROUND_S


@given(st.lists(st.tuples(st.integers(1, 20_000), st.floats(0, DEAR_S)), max_size=30))
def test_what_is_cheap_is_never_given_up(chunks: list[tuple[int, float]]) -> None:
    spent, effort = MatchingRound(), Effort()
    for topics, each_s in chunks:
        assert spent.goes_on(effort, topics, topics * each_s)
        assert effort.mean_s <= DEAR_S * (1 + 1e-9)
    dear = Effort()
    if not spent.goes_on(dear, 1, 2 * SLACK_S):
        assert sum(topics * each_s for topics, each_s in chunks) > ROUND_S - 3 * SLACK_S


class World:
    """Topics that change, and lists that follow them; each match takes its pattern's time."""

    def __init__(self, costs: dict[str, float]) -> None:
        self.open: dict[str, bool] = {}
        self.history: list[frozenset[str]] = [frozenset()]  # by the number of changes
        self.used_s = 0.0
        self.matches_left = 0
        self.lists: dict[Selection, KeptList] = {}
        self.given_up: list[KeptList] = []
        self.catching_up = CatchingUp(
            self.state_of, self.least_seen, self.give_up, lambda: self.used_s
        )
        for text, cost_s in costs.items():
            kept = KeptList(HOME, by_pattern(text))
            self.slow(kept, cost_s)
            self.lists[kept.selection] = kept
            self.catching_up.made(kept)

    def slow(self, kept: KeptList, cost_s: float) -> None:
        selector = kept.selector
        assert selector is not None
        takes = selector.takes

        def slowly(name: str, properties: tuple[str, ...] = ()) -> bool:
            self.used_s += cost_s
            self.matches_left -= 1
            return takes(name, properties)

        selector.takes = slowly  # type: ignore[method-assign]

    def state_of(self, name: str) -> tuple[bool, tuple[str, ...]]:
        return self.open[name], ()

    def least_seen(self, _home: Namespace) -> int:
        return min(kept.has_seen for kept in self.lists.values())

    def give_up(self, kept: KeptList) -> None:
        del self.lists[kept.selection]
        self.given_up.append(kept)
        self.catching_up.dropped(kept, is_last=False)

    def change(self, name: str, *, opens: bool = False) -> None:
        self.open[name] = opens or not self.open.get(name, False)
        self.history.append(frozenset(each for each, is_open in self.open.items() if is_open))
        self.catching_up.changed(HOME, name, self.lists.values())

    def go_on(self, matches: int) -> None:
        """As far as so many matches go."""
        world = self
        world.matches_left = matches

        class Counted(Slices):
            def over(self) -> bool:
                return world.matches_left <= 0

        self.catching_up.go_on(Counted(lambda: 0.0))

    def check(self) -> None:
        """No list is one that the topics have not been."""
        for kept in self.lists.values():
            assert kept.selector is not None
            if kept.is_exact:
                told = {name for name in self.history[kept.has_seen] if kept.selector.takes(name)}
                assert set(kept.list.names) == {full_name(name) for name in told}


_STEPS = st.lists(
    st.one_of(
        st.sampled_from([f"a/b/{letter}{digit}" for letter in "xyz" for digit in "12"]),
        st.integers(1, 4),
    ),
    max_size=60,
)


@given(_STEPS)
def test_every_list_is_always_one_that_the_log_has_had_and_in_the_end_the_last(
    steps: list[str | int],
) -> None:
    world = World({"a/b/x.*": 0.0, "a/b/.1": 0.0, "a/b/[yz]2": 0.0})
    for step in steps:
        if isinstance(step, str):
            world.change(step)
        else:
            world.go_on(step)
        world.check()
    while not world.catching_up.is_done:
        world.go_on(1)
        world.check()
    assert not world.catching_up._changes
    for kept in world.lists.values():
        assert kept.selector is not None
        told = {name for name in world.history[-1] if kept.selector.takes(name)}
        assert set(kept.list.names) == {full_name(name) for name in told}


def test_costly_patterns_under_unbroken_churn_hold_up_nobody_for_more_than_two_rounds() -> None:
    costly = {f"a/b/.{{1,{number}}}": 0.001 for number in range(20, 60)}
    world = World({"a/b/orders-.*": 0.000_003, **costly})
    plain = world.lists[by_pattern("a/b/orders-.*")]

    def churn() -> Iterator[float]:
        """How much of the processor's time the plain list is behind by, after each slice."""
        since = 0.0
        for number in range(4_000):
            before = plain.has_seen
            world.change(f"a/b/orders-{number % 50}", opens=True)  # others of its properties
            world.go_on(5)
            if plain.has_seen > before:
                since = world.used_s
            yield world.used_s - since

    assert max(churn()) < 2 * ROUND_S + 0.1
    # Those that are left fit into a round: of 50 topics each takes 50 ms.
    assert plain not in world.given_up
    assert 15 <= len(world.lists) - 1 <= 20
    while not world.catching_up.is_done:
        world.go_on(5)
    world.check()


def test_costly_patterns_are_served_as_long_as_a_node_has_time() -> None:
    world = World({f"a/b/.{{1,{number}}}": 0.001 for number in range(20, 60)})
    for number in range(100):
        world.change(f"a/b/orders-{number}")
        while not world.catching_up.is_done:
            world.go_on(5)
    assert not world.given_up
    assert all(len(kept.list.names) == 100 for kept in world.lists.values())
    assert not world.catching_up._changes
