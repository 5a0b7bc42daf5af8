"""The judge of keys' order, which knows nothing of the code that it judges."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from anabranch.devkit.causality import CausalityViolation, Span, turned_round


def test_an_effect_that_is_found_before_its_cause_is_named() -> None:
    spans = {1: Span(0.0, 1.0), 2: Span(1.5, 2.0), 3: Span(1.6, 3.0)}
    assert turned_round([1, 3, 2], spans) == []
    assert turned_round([2, 1, 3], spans) == [CausalityViolation(cause=1, effect=2)]


def test_a_message_that_comes_again_counts_where_it_came_first() -> None:
    spans = {1: Span(0.0, 1.0), 2: Span(2.0, 3.0)}
    assert turned_round([1, 2, 1], spans) == []
    assert turned_round([2, 1, 2], spans) == [CausalityViolation(cause=1, effect=2)]


_SPANS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9) | st.none()), max_size=7)


@given(_SPANS)
def test_it_finds_what_comparing_all_pairs_finds(drawn: list[tuple[int, int | None]]) -> None:
    spans = {
        number: Span(sent) if took is None else Span(sent, sent + took)
        for number, (sent, took) in enumerate(drawn)
    }
    early = {
        effect
        for effect, cause in itertools.combinations(spans, 2)  # found in the order of numbers
        if spans[cause].acked < spans[effect].sent
    }
    wrong = turned_round(spans, spans)
    assert {each.effect for each in wrong} == early
    assert all(spans[each.cause].acked < spans[each.effect].sent for each in wrong)
    assert all(each.cause > each.effect for each in wrong)
