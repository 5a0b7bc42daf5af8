"""Which Kafka topics a namespace may adopt, as an operator writes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.adoption.adoptable import allows, entry_for, is_named, parse_adoptable
from anabranch.core.errors import InvalidInputError

NAMES = st.text("ab.", min_size=1, max_size=4)
ENTRIES = st.tuples(st.sampled_from(("a/x", "a/y")), NAMES, st.sampled_from(("", "*"))).map(
    lambda parts: f"{parts[0]}={parts[1]}{parts[2]}"
)


@pytest.mark.parametrize(
    "text",
    [
        "orders",
        "acme=orders",
        "acme/shop=",
        "acme/shop=a*b",
        "acme/shop/x=a",
        "acme/shop=/x=a",
        "/=*",
    ],
)
def test_an_entry_that_names_nothing_is_refused_with_its_form(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_adoptable(text)


@pytest.mark.parametrize(
    ("entry", "names", "others"),
    [
        ("a/x=ab", ("ab",), ("a", "abc", "")),
        ("a/x=ab*", ("ab", "abc"), ("a", "ac", "")),
        ("a/x=*", ("a", "b"), ()),
        ("a/x=y=b", (), ("b", "y=b")),
        ("a/x", (), ("a/x", "")),
    ],
)
def test_an_entry_names_one_topic_or_all_that_begin_so(
    entry: str, names: tuple[str, ...], others: tuple[str, ...]
) -> None:
    assert all(allows(entry, "a/x", each) for each in names)
    assert not any(allows(entry, "a/x", each) for each in others)
    assert not any(allows(entry, "a/y", each) for each in (*names, *others))


def test_the_name_of_a_namespace_may_hold_the_sign_that_divides_entries() -> None:
    """No Kafka topic's name does."""
    entries = parse_adoptable("a/x=y=old, a/x=older")
    assert entry_for(entries, "a/x=y", "old") == "a/x=y=old"
    assert entry_for(entries, "a/x", "older") == "a/x=older"
    with pytest.raises(InvalidInputError, match="two namespaces"):
        parse_adoptable("a/x=y=old, a/x=old")
    assert len(parse_adoptable("a/x=y=old, a/x=y=old")) == 2


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("ab", "ab", True),
        ("ab", "ac", False),
        ("ab*", "ab*", True),
        ("ab*", "abc*", True),
        ("abc*", "acc*", False),
        ("ab*", "abc", True),
        ("abc*", "ab", False),
        ("*", "a", True),
    ],
)
def test_two_namespaces_cannot_be_given_the_same_topics_in_any_order(
    one: str, other: str, both: bool
) -> None:
    for first, second in ((one, other), (other, one)):
        assert len(parse_adoptable(f"a/x={first},a/x={second}")) == 2
        text = f"a/x={first},a/y={second}"
        if both:
            with pytest.raises(InvalidInputError, match="two namespaces"):
                parse_adoptable(text)
        else:
            assert len(parse_adoptable(text)) == 2


@given(st.lists(ENTRIES, max_size=4), NAMES)
def test_a_topic_is_named_if_some_namespace_may_adopt_it(entries: list[str], name: str) -> None:
    assert is_named(entries, name) == any(entry_for(entries, home, name) for home in ("a/x", "a/y"))


def test_no_entry_lets_nobody_adopt_anything() -> None:
    assert parse_adoptable("") == parse_adoptable(" , ") == ()
    assert entry_for((), "acme/shop", "orders") == ""


@given(st.lists(ENTRIES, max_size=4), NAMES)
def test_a_kafka_topic_is_adoptable_for_one_namespace_at_most(
    entries: list[str], name: str
) -> None:
    homes = {home for home in ("a/x", "a/y") if any(allows(each, home, name) for each in entries)}
    try:
        parse_adoptable(",".join(entries))
    except InvalidInputError:
        return
    assert len(homes) <= 1


@given(st.lists(ENTRIES, max_size=4))
def test_entries_are_refused_only_where_two_namespaces_share_a_name(entries: list[str]) -> None:
    try:
        parse_adoptable(",".join(entries))
    except InvalidInputError:
        ends = [each.partition("=")[2].removesuffix("*") for each in entries]
        shared = [
            name
            for name in ends
            if len(
                {
                    each.partition("=")[0]
                    for each in entries
                    if allows(each, "a/x", name) or allows(each, "a/y", name)
                }
            )
            > 1
        ]
        assert shared
