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
        *(
            ("[a-c-]", ("a", "c", "-"), ("d",)),
            ("[b-b]", ("b",), ("a",)),
            ("[$^.]", ("$",), ("a",)),
        ),
        *(
            (r"[\]a]", ("]", "a"), ("\\",)),
            (r"[^\]]", ("a",), ("]",)),
            (r"[\d-]", ("7", "-"), ("d",)),
        ),
        *(
            (r"[a-c\d_]+", ("b2_",), ("d",)),
            (r"a\\\$", ("a\\$",), ("a\\",)),
            (r"a\$$", ("a$",), ("a",)),
        ),
        *(
            (r"\w", ("a", "z", "A", "Z", "_", "0", "9"), ("-", "", "@", "é")),
            (r"\*", ("*",), ("",)),
        ),
        *((r"\s", ("\t", "\n", "\r", " "), ("\x0e", "a")), (r"\d", ("0", "9"), ("/", ":"))),
        *(
            ("^", ("",), ("a",)),
            ("$", ("",), ("a",)),
            ("^^", (), ("^", "")),
            ("(?:a|b|)c", ("ac", "c"), ()),
        ),
        *(
            ("a{0}b", ("b",), ("ab",)),
            ("a{0,}", ("", "aa"), ("b",)),
            ("a{1,}", ("a", "aaa"), ("",)),
        ),
        *(("a{0,2}b", ("b", "aab"), ("aaab",)), ("a{1,3}b{1,3}", ("ab", "aaabbb"), ("aaaab", "b"))),
        *(("(ab){2,3}", ("abab", "ababab"), ("ab", "abababab")), ("a{2,2}", ("aa",), ("a", "aaa"))),
        *(
            ("(a{0,2}b?){2}c", ("c", "aabac", "aaaac"), ("aaaaac", "bbbc")),
            ("a{0012}", ("a" * 12,), ()),
        ),
        *(("(a*b?)*c", ("c", "aabbc"), ("a",)), ("(a|bc){2,}", ("abc", "bcbca"), ("a", "ac"))),
        ("(" * 20 + "a" + ")" * 20, ("a",), ("",)),
        *(("X", ("X",), ("x",)), ("[A-X]", ("B", "X"), ("Y",))),
        ("x" * PATTERN_LENGTH_MAX, ("x" * PATTERN_LENGTH_MAX,), ()),
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
        "(" * 21 + "a" + ")" * 21,
        *("a{00001}", "a{1", "a{1}}", "a{-1}", "a{1,x}", "a{}", "a{2,1}", "a{2}?", "a**", "a|*"),
        *("a]", "a}", "]", "(?i)a", "(?", "(?:a", "(a|b", "(", "a)", "[[]", "[a[b]", "[a-[]"),
        *("a{999}", r"[a-\d]", "[a-]]", "[a", "[a\\", "[]a]", "[^", r"\a", r"\é"),
        "a{\uff11}",
    ],
)
def test_what_is_no_pattern_is_refused_by_name_and_matches_nothing(pattern: str) -> None:
    with pytest.raises(InvalidInputError, match=r"pattern|is not possible"):
        parse_pattern(pattern)
    assert not matches(pattern, pattern)


@pytest.mark.parametrize(
    ("pattern", "place"),
    [
        ("a^b", "at '^b'; use"),
        ("(a", "at its end; use"),
        ("a{999}", "pattern 'a{999}' is not"),
        ("a{2}{3}b", "before 'b'"),
    ],
)
def test_a_refusal_says_where(pattern: str, place: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(place)):
        parse_pattern(pattern)


def test_what_a_pattern_takes_is_counted_up_to_its_limits() -> None:
    given = ("a{998}", "(ab){0,51}", "a{0,2}" * 25, "^a{9}(b[cd])e+$", "(a|b)*", "(a?b){2,}")
    found = [parse_pattern(each) for each in given]
    assert [(each.parts, len(each.jumps), len(each.runs)) for each in found] == [
        *((PARTS_MAX, 0, 0), (155, JUMPS_MAX, 0), (76, JUMPS_MAX - 25, 25)),
        *((16, 1, 0), (7, 2, 0), (10, 3, 0)),
    ]


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
