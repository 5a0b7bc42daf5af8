"""Whoever applies differences, from whatever generation, has the list itself."""

from __future__ import annotations

from typing import Any

import pytest
import re2
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.core.topic_lists.pattern_text import PatternError, grouped
from anabranch.core.topic_lists.selection import Selection, Selector
from anabranch.core.topic_lists.topic_list import TopicList, topics_hash

_STEPS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.booleans(), st.sampled_from((None, 0, 1, 2)))
)


@given(_STEPS)
def test_differences_applied_whenever_a_watcher_reads_end_in_the_list(
    steps: list[tuple[str, bool, int | None]],
) -> None:
    topics = TopicList()
    model: set[str] = set()
    watchers: list[tuple[set[str], int]] = [(set(), 0)] * 3
    for name, present, reader in [*steps, *(("a", True, number) for number in range(3))]:
        assert topics.note(name, present) is (present != (name in model))
        (model.add if present else model.discard)(name)
        assert topics.names == sorted(model)
        assert topics.names_bytes == len(model)
        if reader is None:
            continue
        known, generation = watchers[reader]
        told = topics.since(generation)
        assert told is not None
        assert set(told.removed) <= known
        known = (known - set(told.removed)) | set(told.added)
        assert told.topics_hash == topics_hash(known) == topics.topics_hash
        watchers[reader] = (known, told.generation)
    assert all(known == set(topics.names) for known, _ in watchers)


# --- a pattern within a group means what it means alone, by RE2 itself; or it is refused ----------


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
        assert alone is None or "\\Q" in pattern
        return
    within = compiled(f"a/b/{group}")
    if "^" not in pattern and "$" not in pattern:
        assert (alone is None) is (within is None)
    if alone is None or within is None or "^" in pattern[1:]:  # of the text: it is another one
        return
    for name in _NAMES:
        assert bool(within.fullmatch(f"a/b/{name}")) is bool(alone.fullmatch(name)), name


@pytest.mark.parametrize(
    ("pattern", "group"),
    [
        *(("^orders-.*$", "orders-.*"), ("^", ""), ("$", ""), ("a$$", "a$"), ("^^a", "^a")),
        *((r"cost\$", r"cost\$"), ("[$]", "[$]"), (r"\\$", r"\\"), (r"\Q$\E", r"\Q$\E")),
        *((each, each) for each in (r"\Q\E|b", r"\Q)\E(b)", r"\((b)\)", "[]a)](b)", "[^])](b)")),
        *((each, each) for each in ("[[::])](b)", "[[:a:])](b)[c:]", "[[:a:]](b)", r"[\]](b)")),
        *((each, each) for each in (r"[a\])](b)", "[[:alpha:])](b)", "[[:x)](b)", "[:](b)")),
        *(("()$", "()"), ("X(b)", "X(b)"), ("(a$)", "(a$)"), ("[a^)](b)", "[a^)](b)")),
    ],
)
def test_a_pattern_is_a_group_without_what_it_says_of_the_ends(pattern: str, group: str) -> None:
    assert grouped(pattern) == f"(?:{group})"
    assert grouped(f"x(y)|{group}$") == f"(?:x(y)|{group})"


@pytest.mark.parametrize(
    "pattern",
    [
        *("a)|(b", ")(", "a)", "(a", "[a", "a\\", "\\Qa", "[", "[]", "[^", "[^]", "[a\\", "[[:"),
        *("(()", "a))(", "\\Qa\\", "[[:a", "\\Q", "\\", "[a\\]", "[[:]:](b)", "\\Q)\\E)\\Q)\\E"),
    ],
)
def test_what_would_reach_out_of_its_group_is_refused(pattern: str) -> None:
    for text in (pattern, f"x(y){pattern}"):
        with pytest.raises(PatternError, match="is not balanced"):
            grouped(text)


@pytest.mark.parametrize("pattern", ["a)|(b", ")(", "a)", "(a", "[a", "a\\"])
def test_a_node_refuses_it_too(pattern: str) -> None:
    with pytest.raises(PatternError, match="none of RE2's"):
        Selector(Selection(pattern=pattern))
