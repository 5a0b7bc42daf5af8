"""A pattern within a group means what it means alone, by RE2 itself; or it is refused."""

from __future__ import annotations

from typing import Any

import pytest
import re2
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.core.topic_lists.pattern_text import PatternError, grouped
from anabranch.core.topic_lists.selection import Selection, Selector

_NAMES = ("", "a", "b", "ab", "a)", "(b", "[", "]", "a$", "\\", "^", ":", "Q", "E", "aab|")
_PATTERNS = st.lists(
    st.sampled_from(
        [*"ab()|[]^$:*?\\QE", "[:alpha:]", "[^]a]", "(?:", "\\Q", "\\E", "\\)", "\\]", "{2}", ".*"]
    ),
    max_size=12,
).map("".join)


def compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return None


def grouped_or_refused(pattern: str) -> tuple[str, str]:
    try:
        return grouped(pattern), ""
    except PatternError as error:
        return "", str(error)


@given(_PATTERNS)
@example("a)|(b")
@example("[)]|(b")
@example("[[:alpha:])]")
@example("[[:x)](")
@example("\\Qa)\\E|b")
@example("^a|b$")
@example("[^]]\\$$")
@example("?")
@example("?:a")
@example("(?:$")
@example("?i")
def test_a_group_is_refused_or_means_what_its_pattern_means_alone(pattern: str) -> None:
    alone = compiled(pattern)
    group, refusal = grouped_or_refused(pattern)
    if refusal:
        assert repr(pattern) in refusal
        assert alone is None or "a \\E is missing" in refusal
        return
    within = compiled(f"a/b/{group}")
    if "^" not in pattern and "$" not in pattern:
        assert (alone is None) is (within is None)
    if alone is None or within is None or "^" in pattern[1:]:  # of the text: it is another one
        return
    for name in _NAMES:
        assert bool(within.fullmatch(f"a/b/{name}")) is bool(alone.fullmatch(name)), name


@pytest.mark.parametrize("pattern", ["a)|(b", ")(", "a)", "(a", "[a", "a\\", "\\Qa"])
def test_what_would_reach_out_of_its_group_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match="is not balanced"):
        grouped(pattern)


@pytest.mark.parametrize("pattern", ["a)|(b", ")(", "a)", "(a", "[a", "a\\"])
def test_a_node_refuses_it_too(pattern: str) -> None:
    with pytest.raises(PatternError, match="none of RE2's"):
        Selector(Selection(pattern=pattern))
