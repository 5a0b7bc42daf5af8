"""Which topics are meant, and what a selection may be."""

from __future__ import annotations

import pytest

from anabranch.core.errors import InvalidInputError
from anabranch.core.expressions import STEPS_MAX
from anabranch.core.topic_lists.selection import (
    ALL,
    FILTER_LENGTH_MAX,
    FILTERS_MAX,
    PATTERN_LENGTH_MAX,
    Selection,
    Selector,
    by_pattern,
    by_properties,
)

LONG = "x" * FILTER_LENGTH_MAX
MANY = [(f"k{number:02d}", "v") for number in range(FILTERS_MAX)]
AROUND = 4  # RE2's own steps around those of the pattern


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        *(("persistent://a/b/x.*", "a/b/x.*"), ("non-persistent://a/b/x", "a/b/x"), (".*", "")),
        *(("topic://.*", ""), ("^topic://a/b/x", "^a/b/x"), ("topic://a/topic://b", "a/topic://b")),
        ("x" * PATTERN_LENGTH_MAX, "x" * PATTERN_LENGTH_MAX),
    ],
)
def test_a_pattern_is_of_names_without_their_domain(text: str, pattern: str) -> None:
    assert by_pattern(text) == Selection(pattern)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *(("", "is empty"), ("a://b", "names no domain"), ("x" * 513, "has 513 characters")),
        *((r"\pL{50}", "too large"), ("a{997}", "takes 1001 steps"), ("a)", "unexpected [)]")),
    ],
)
def test_what_is_no_pattern_is_refused_with_the_reason_and_nothing_is_printed(
    text: str, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidInputError, match=why):
        Selector(by_pattern(text))
    assert capfd.readouterr() == ("", "")
    assert Selector(Selection(f"a{{{STEPS_MAX - AROUND}}}")).takes("a" * 996)


def test_a_selection_takes_what_has_the_name_and_all_of_the_properties() -> None:
    both = by_properties([("b", "1"), ("a", "2"), ("b", "1")])
    assert (both.properties, both.length, both.is_all) == ((("a", "2"), ("b", "1")), 4, False)
    selector = Selector(Selection("x.*", both.properties))
    yes, no = (
        ("xy", ("b", "1", "a", "2")),
        (("xy", ("b", "1")), ("y", ("a", "2", "b", "1")), ("x",)),
    )
    assert selector.takes(*yes)
    assert not any(selector.takes(*each) for each in no)
    assert (Selector(ALL).takes("y"), ALL.is_all, Selection("x").is_all) == (True, True, False)
    assert (by_properties(()), len(by_properties(MANY).properties)) == (ALL, FILTERS_MAX)
    assert by_properties([(LONG, LONG)]).length == 2 * FILTER_LENGTH_MAX
    too_much = ([*MANY, ("l", "")], [(LONG + "x", "")], [("k", LONG + "x")])
    for wanted in (*too_much, [("k", "v"), ("k", "")]):
        with pytest.raises(InvalidInputError):
            by_properties(wanted)
