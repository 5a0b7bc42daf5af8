"""Patterns of operators: what they match, what is refused, and that none can hang a node."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.core.errors import InvalidInputError
from anabranch.core.policies.patterns import (
    JUMPS_MAX,
    PARTS_MAX,
    PATTERN_LENGTH_MAX,
    matches,
    parse_pattern,
)


@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        ("acme/.*", ("acme/", "acme/shop"), ("acme", "public/acme/x")),
        ("^acme/shop$", ("acme/shop",), ("acme/shops",)),
        (r"b\.example\.com", ("b.example.com",), ("bxexample.com",)),
        (r"cost\$", ("cost$",), ("cost",)),
        (r"a\\$", ("a\\",), ("a",)),
        ("broker-[0-3]{1,2}", ("broker-1", "broker-33"), ("broker-", "broker-4", "broker-111")),
        ("a{2,}", ("aa", "aaaa"), ("a", "")),
        ("a{3}", ("aaa",), ("aa", "aaaa")),
        ("(?:one|two|)x?", ("one", "twox", "x", ""), ("three",)),
        ("[^/]+/[-\\w.]+", ("a/b-c.d",), ("a/b/c", "/b")),
        (r"\d+\s", ("12 ",), ("x ",)),
        ("(a|b)*c", ("c", "abbac"), ("abab",)),
        ("[a-]", ("a", "-"), ("b",)),
    ],
)
def test_a_pattern_matches_whole_names(
    pattern: str, taken: tuple[str, ...], left: tuple[str, ...]
) -> None:
    assert [name for name in (*taken, *left) if matches(pattern, name)] == list(taken)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "x" * (PATTERN_LENGTH_MAX + 1),
        "a)|(b",
        "a(b",
        "*a",
        "a*?",
        "a{2}{3}",
        "a{",
        "a{3,2}",
        "a{,3}",
        "a{99999}",
        "[",
        "[^]",
        "[z-a]",
        "[[:alpha:]]",
        "a^b",
        "a$b",
        "\\",
        r"(a)\1",
        "(?=a)b",
        "((a{100}){100}){100}",
        "(ab){0,52}",
        "(a?){200}a{200}b",
        "(" * 25 + "a" + ")" * 25,
    ],
)
def test_what_is_no_pattern_is_refused_by_name_and_matches_nothing(pattern: str) -> None:
    with pytest.raises(InvalidInputError, match=r"pattern|is not possible"):
        parse_pattern(pattern)
    assert not matches(pattern, pattern)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)+b", "(a?){45}a{200}b", "a{0,990}b"])
def test_what_hangs_other_matchers_takes_a_step_for_each_character(pattern: str) -> None:
    """Each of them takes Python's own matcher longer than anybody would wait."""
    found = parse_pattern(pattern)
    assert not found.matches("a" * 2_000)
    assert found.parts <= PARTS_MAX
    assert len(found.jumps) + len(found.runs) <= JUMPS_MAX, "that much is done for each character"


@pytest.mark.parametrize(
    "nothing", ["(((){9999}){9999}){9999}", "((|()){9999,}){9999}", "(((a{0}){9999}){9999}){9999}"]
)
def test_nothing_however_often_it_is_repeated_takes_no_time(nothing: str) -> None:
    """Written out it would have no position, so that nothing else would bound it."""
    assert parse_pattern(f"{nothing}b").parts < 5
    assert matches(f"{nothing}b", "b")
    assert not matches(f"{nothing}b", "ab")


LITERALS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\.", "1", "/"])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.builds("({})".format, inner)
    return st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("({}|{})".format, inner, inner),
        st.builds("{}{}".format, groups, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,1}"])),
        st.builds("{}{}".format, LITERALS, st.sampled_from(["{1,3}", "{0,4}", "{2,4}"])),
        st.builds("{}{{1,}}".format, groups),
    )


@given(
    st.recursive(LITERALS, _grown, max_leaves=6), st.lists(st.text("ab1./", max_size=6), max_size=8)
)
@example("((a|b){1,3}){2}", ["ab", "aabbab", "a"])
def test_it_agrees_with_python_s_matcher(pattern: str, names: list[str]) -> None:
    if len(pattern) > PATTERN_LENGTH_MAX:
        return
    theirs = re.compile(pattern)
    for name in names:
        assert matches(pattern, name) == (theirs.fullmatch(name) is not None), (pattern, name)
