"""Where a rule of Kafka's for a prefix fits: one state a line, told by its names.

`a/b` is a namespace, `a/b/x` a topic, `a/b/x/s` a subscription, `a/b:ada` a grant; what is gone has
a - before it. Changes are told in the order of the log: what goes comes before its grants.
"""

from __future__ import annotations

import pytest

from anabranch.core.log.state import Change
from anabranch.core.security.kafka_stems import KafkaStems
from support.kafka_rules import PREFIX, subscription_of

KINDS = ("tenant", "namespace", "topic", "subscription")
LONG = "a/b/" + "l" * 176


def change(told: str) -> Change:
    path = told.removeprefix("-")
    kind = "permission" if ":" in path else KINDS[path.count("/")]
    return f"{kind}:{path}", None if path != told else subscription_of(1)


def stems_of(told: str) -> KafkaStems:
    found = KafkaStems(PREFIX)
    for each in told.split():
        found.apply([change(each)])
    return found


@pytest.mark.parametrize(
    ("told", "scope", "alone", "with_groups"),
    [
        *(("a/b", "a/b", True, True), ("a/b a/b/x a/b/y a/b/y/s a/b/y/t", "a/b", True, True)),
        *(("a/b a/b/x a/b/x/t", "a/b/x", True, True), ("a/b a/b/x a/b.c", "a/b", True, True)),
        ("a/b a/b/x a/b/x/s a/b.c a/b.c/x", "a/b", False, True),
        ("a/b a/b/x a/b/x/s a/b.c a/b.c/x a/b.c/x/s", "a/b", False, False),
        ("a/b a/b/x a/b/x/s a/b.c a/b.c/x a/b.c/x/s", "a/b.c", True, True),
        ("a/b a/b/x a/b.c a/b.c/x a/b.c/x/s -a/b.c/x/s -a/b.c/x", "a/b", True, True),
        ("a/b a/b/x a/b/x.y a/b/x/s", "a/b/x", False, True),
        ("a/b a/b/x a/b/x.y a/b/x/s a/b/x.y/s", "a/b/x", False, False),
        ("a/b a/b/x a/b/x.y a/b/x/s a/b/x.y/s", "a/b/x.y", True, True),
        ("a/b a/b/x a/b/x.y a/b/x/y", "a/b/x.y", True, False),
        ("a/b a/b/x a/b/x.y a/b/x.y/s -a/b/x.y/s a/b/x/s -a/b/x.y", "a/b/x", True, True),
        ("a/b a/b/x a/b/x/s a/b/x/s -a/b/x/s a/b/x/t", "a/b", True, True),
        ("a/b a/b/0000-ffff-0", "a/b/0000-ffff-0", False, True),
        (f"a/b {LONG}", LONG, True, True),
        (f"a/b {LONG}l", LONG + "l", True, False),
        (f"a/b {LONG}ll", LONG + "ll", False, False),
    ],
)
def test_a_rule_on_a_stem_fits_where_nobody_else_s_name_begins_so(
    told: str, scope: str, alone: bool, with_groups: bool
) -> None:
    stems = stems_of(told)
    assert (stems.is_alone(scope), stems.has_groups_alone(scope)) == (alone, with_groups)


@pytest.mark.parametrize(
    ("told", "topic", "apart"),
    [
        *(("a/b a/b/x", "a/b/x", True), ("a/b a/b.c a/b/x a/b/y", "a/b/x", True)),
        *(("a/b a/b.c a/b.c/y a/b/x", "a/b/x", False), ("a/b a/b/x a/b/x.y", "a/b/x", False)),
        *(("a/b a/b/x.y a/b/x.y.z", "a/b/x.y.z", False), ("a/b a/b.x a/b/x", "a/b/x", False)),
        *(("a/b a/b.x -a/b.x a/b/x", "a/b/x", False), ("a/b.c a.b/c a.b/c/x", "a.b/c/x", False)),
        ("a/b -a/b a/b a/b/x", "a/b/x", False),
        ("a/b a/b/x a/b/x:ada -a/b/x -a/b/x:ada a/b/x", "a/b/x", False),
        ("a/b a/b/x a/b/x:ada -a/b/x -a/b/x:ada a/b/x.y", "a/b/x.y", False),
        ("a/b a/b/x a/b/x:ada a/b/x:bob -a/b/x:ada -a/b/x:bob -a/b/x a/b/x", "a/b/x", True),
        ("a/b a/b/x a/b/y a/b/x:ada -a/b/y a/b/y", "a/b/y", True),
        ("b/b b/b/x b/b/x.y a/b a/b/x", "a/b/x", True),
    ],
)
def test_a_topic_is_apart_where_the_rules_that_it_needs_are_there_and_no_others(
    told: str, topic: str, apart: bool
) -> None:
    assert stems_of(told).is_apart(topic) is apart


@pytest.mark.parametrize(
    ("told", "more", "matters"),
    [
        *(("", "a", True), ("", "a/b", True), ("a/b", "a/b", False), ("a/b", "a a/b", True)),
        *(("a/b", "-a/b", True), ("a/b", "a/b/x", True), ("a/b a/b/x", "-a/b/x", True)),
        *(("a/b a/b/x", "a/b/x", False), ("a/b a/b/x", "a a/b/x", True)),
        *(("a/b a/b/x a/b/x.y", "a/b/x", True), ("a/b a/b/x", "a/b/x/s", True)),
        *(("a/b a/b/x/s", "a/b/x/s", False), ("a/b a/b/x/s", "a a/b/x/s", True)),
        *(("a/b a/b/x/s a/b/x.y/s", "a/b/x/s", True), ("a/b a/b/x/s", "-a/b/x/s", True)),
        *(("a/b", "a/b:ada", True), ("a/b a/b:ada", "-a/b:ada", True)),
    ],
)
def test_a_change_matters_where_the_rules_may_be_others_now(
    told: str, more: str, matters: bool
) -> None:
    assert stems_of(told).apply(map(change, more.split())) is matters


def test_what_is_granted_is_followed_by_role() -> None:
    stems = stems_of("a/b a/b:ada a/b:ada:bob -a/b:ada")
    assert list(stems.scopes()) == ["a/b"]
    stems.apply([change("-a/b:ada:bob")])
    assert list(stems.scopes()) == []


def test_what_is_long_gone_is_forgotten() -> None:
    stems = stems_of("a/b a/b.x -a/b.x a/b/x")
    stems.apply(change(f"{sign}c/n{number}") for number in range(10_000) for sign in ("", "-"))
    assert stems.is_apart("a/b/x")
    stems.apply([change("a/b.x")])
    assert not stems.is_apart("a/b/x")
