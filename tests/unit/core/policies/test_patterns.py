"""Patterns of operators: what they match, what is refused, and that none can hang a node."""

from __future__ import annotations

import re

import pytest

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
        (r"b\.example\.com", ("b.example.com",), ("bxexample.com",)),
        ("broker-[0-3]{1,2}", ("broker-1", "broker-33"), ("broker-", "broker-4", "broker-111")),
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
        ("a(b", "missing ): a(b"),
        ("a{1001}", "invalid repetition size: {1001}"),
        (r"\pL{50}", "pattern too large"),
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
