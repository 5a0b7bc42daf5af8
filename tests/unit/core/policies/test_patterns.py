"""Patterns of operators: what they match, what is refused, and that none can hang a node."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.core.entities.placement_policy import PATTERN_LENGTH_MAX, PATTERNS_MAX
from anabranch.core.errors import InvalidInputError
from anabranch.core.expressions import STEPS_MAX
from anabranch.core.policies.patterns import (
    POLICY_STEPS_MAX,
    check_patterns,
    matches,
    parse_pattern,
)

AROUND = 4  # RE2's own steps around those of the pattern


@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        ("acme/.*", ("acme/", "acme/shop"), ("acme", "public/acme/x")),
        ("^acme/shop$", ("acme/shop",), ("acme/shops",)),
        ("a|ab", ("a", "ab"), ("abc", "b")),
        (r"b\.example\.com", ("b.example.com",), ("bxexample.com",)),
        (r"cost\$", ("cost$",), ("cost",)),
        ("broker-[0-3]{1,2}", ("broker-1", "broker-33"), ("broker-", "broker-4", "broker-111")),
        ("a{2,}", ("aa", "aaaa"), ("a", "")),
        ("(?:one|two|)x?", ("one", "twox", "x", ""), ("three",)),
        ("[^/]+/[-\\w.]+", ("a/b-c.d",), ("a/b/c", "/b")),
        (r"\d+\s", ("12 ",), ("x ", "\uff11 ")),
        (r"\w", ("a", "_", "9"), ("-", "", "\u00e9")),
        ("a+?", ("a", "aa"), ("",)),
        ("(?i)acme", ("ACME",), ("acm",)),
        ("X.", ("Xy", "X\u00e9"), ("xy",)),
        ("a^b", (), ("ab", "a^b")),
        ("x" * PATTERN_LENGTH_MAX, ("x" * PATTERN_LENGTH_MAX,), ()),
    ],
)
def test_a_pattern_matches_whole_names(
    pattern: str, taken: tuple[str, ...], left: tuple[str, ...]
) -> None:
    assert [name for name in (*taken, *left) if matches(pattern, name)] == list(taken)
    parse_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        (r"(a)\1", r"none of RE2's: invalid escape sequence: \1; whole names"),
        ("(?=a)b", "invalid perl operator: (?="),
        ("(?<!a)b", "invalid perl operator: (?<!"),
        ("a*+", "bad repetition operator: *+"),
        ("a(b", "missing ): a(b"),
        ("a)|(b", "unexpected ): a)|(b"),
        ("*a", "no argument for repetition operator: *"),
        ("[z-a]", "invalid character class range: z-a"),
        ("a{1001}", "invalid repetition size: {1001}"),
        ("((a{100}){100}){100}", "invalid repetition size: {100}"),
        ("(((){9999}){9999}){9999}", "invalid repetition size"),
        (r"\pL{50}", "pattern too large"),
        ("\\", "trailing \\"),
        ("\ud800", r"pattern '\ud800' is not possible"),
    ],
)
def test_what_is_no_pattern_is_refused_with_the_reason_and_matches_nothing(
    pattern: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(told)):
        parse_pattern(pattern)
    assert not matches(pattern, pattern)
    assert capfd.readouterr() == ("", "")


def test_a_pattern_has_so_many_steps_and_those_of_a_policy_so_many_together() -> None:
    most = f"a{{{STEPS_MAX - AROUND}}}"
    check_patterns([most] * (POLICY_STEPS_MAX // STEPS_MAX))
    with pytest.raises(InvalidInputError, match="takes 1001 steps, of at most 1000; use smaller"):
        check_patterns([f"a{{{STEPS_MAX - AROUND + 1}}}"])
    with pytest.raises(InvalidInputError, match="more than 10000 steps; name several"):
        check_patterns(["a", *[most] * (POLICY_STEPS_MAX // STEPS_MAX)])


def test_a_policy_may_name_its_brokers_one_by_one() -> None:
    check_patterns(["acme/.*", *[r"broker-\d\d\.eu-west\.example\.com:8080"] * PATTERNS_MAX])


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)+b", "(a?){45}a{200}b", "a{0,490}b"])
def test_what_hangs_other_matchers_is_answered(pattern: str) -> None:
    """Each of them takes Python's own matcher longer than anybody would wait."""
    parse_pattern(pattern)
    assert not matches(pattern, "a" * 2_000)


LITERALS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\.", "1", "/"])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.builds("({})".format, inner)
    return st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("({}|{})".format, inner, inner),
        st.builds("{}{}".format, groups, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,1}"])),
    )


@given(
    st.recursive(LITERALS, _grown, max_leaves=6), st.lists(st.text("ab1./", max_size=6), max_size=8)
)
@example("((a|b){1,3}){2}", ["ab", "aabbab", "a"])
def test_it_agrees_with_python_s_matcher(pattern: str, names: list[str]) -> None:
    theirs = re.compile(pattern)
    for name in names:
        assert matches(pattern, name) == (theirs.fullmatch(name) is not None), (pattern, name)
