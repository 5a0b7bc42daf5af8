"""What Kafka is told of grants: no principal gets more than was granted, and none less."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.entities.permission import Permission
from anabranch.core.errors import InvalidInputError
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.security.acls import (
    Acl,
    AclResource,
    PrincipalMapping,
    difference,
    is_ours,
    wanted_acls,
)
from anabranch.core.security.actions import Action, Need, Right
from anabranch.core.security.authorize import Grants, Judgement, authorize
from anabranch.core.security.changes import FoldedGrants
from anabranch.core.security.principal import Principal
from anabranch.core.security.resources import topic_resource
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic
from support import kafka_rules
from support.there import there

MAPPING = PrincipalMapping("User:{role}")
MAPPED = kafka_rules.ROLES[:2]
BASE = (
    *(("tenant", number) for number in range(len(kafka_rules.TENANTS))),
    *(("namespace", number) for number in range(len(kafka_rules.NAMESPACES))),
)


def may(state: MemoryReplica, role: str, action: Action, topic: str) -> bool:
    need = Need(Right.GRANTED, frozenset((action,)))
    grants = Grants(FoldedGrants(state))
    return authorize(grants, Principal(role), need, topic_resource(topic)) is Judgement.ALLOWED


def topics_of(state: MemoryReplica) -> list[str]:
    return [name for name in kafka_rules.TOPICS if state.topic(name) is not None]


@given(kafka_rules.steps)
def test_a_role_may_on_kafka_what_it_may_here_and_nothing_else(
    taken: list[tuple[str, int]],
) -> None:
    state = MemoryReplica()
    list(kafka_rules.played(state, (*BASE, *taken)))
    acls = wanted_acls(state, kafka_rules.PREFIX, MAPPING).acls
    for name in topics_of(state):
        topic = there(state.topic(name))
        names = [
            kafka_topic(kafka_rules.PREFIX, name, topic.incarnation, part)
            for part in topic.segments
        ]
        groups = [
            kafka_group(kafka_rules.PREFIX, name, each, known.group_offset)
            for each, known in state.subscriptions(name)
        ]
        for role in MAPPED:
            who = MAPPING.principal(role)
            consumes = may(state, role, Action.CONSUME, name)
            produces = may(state, role, Action.PRODUCE, name)
            for each in names:
                topics = AclResource.TOPIC
                assert kafka_rules.allows(acls, who, topics, each, "WRITE") is produces
                assert kafka_rules.allows(acls, who, topics, each, "READ") is consumes
                assert kafka_rules.allows(acls, who, topics, each, "DESCRIBE") is (
                    produces or consumes
                )
            for group in groups:
                assert kafka_rules.allows(acls, who, AclResource.GROUP, group, "READ") is consumes
    assert {each.principal for each in acls} <= {MAPPING.principal(role) for role in MAPPED}


names = st.sampled_from(
    (
        *("river.segment.a.b.", "river.segment.a.", "river.segment.", "river.", "river.wal"),
        *("river.subscription.a.b.", "river.subscription.", "sea.segment.a.", "riv"),
    )
)
rules = st.builds(
    Acl,
    st.sampled_from(("User:ada", "User:bob", "Group:ada", "User:")),
    st.sampled_from(AclResource),
    names,
    st.booleans(),
    st.sampled_from(("READ", "WRITE", "ALL")),
    st.sampled_from(("*", "10.0.0.1")),
)


@given(st.frozensets(rules), st.frozensets(rules), st.data())
def test_the_difference_leads_there_at_once_and_touches_nobody_else(
    wanted: frozenset[Acl], found: frozenset[Acl], data: st.DataObject
) -> None:
    wanted = frozenset(each for each in wanted if is_ours(each, kafka_rules.PREFIX, MAPPING))
    change = difference(wanted, found, kafka_rules.PREFIX, MAPPING)
    gone = set(change.surplus)
    assert bool(change) is bool(gone or change.missing)
    assert gone <= found
    assert all(is_ours(each, kafka_rules.PREFIX, MAPPING) for each in gone)
    assert all(each.name.startswith(("river.segment.", "river.subscription.")) for each in gone)
    after = found.difference(gone).union(change.missing)
    assert wanted <= after
    assert not difference(wanted, after, kafka_rules.PREFIX, MAPPING)
    assert not {*change.missing, *gone} - wanted - found


patterns = st.sampled_from(("ada", "bob", "a*", "*b", "*", "*d*", "b.b", "[ab]*", "A*"))


@given(kafka_rules.steps, st.frozensets(rules), st.frozensets(patterns))
def test_rules_of_roles_with_another_owner_are_neither_made_nor_taken_away(
    taken: list[tuple[str, int]], found: frozenset[Acl], elsewhere: frozenset[str]
) -> None:
    """As `fnmatch` understands the same patterns, without its other signs."""
    state = MemoryReplica()
    list(kafka_rules.played(state, (*BASE, *taken)))
    every = wanted_acls(state, kafka_rules.PREFIX, MAPPING)
    mapping = PrincipalMapping("User:{role}", elsewhere=tuple(elsewhere))

    def is_theirs(acl: Acl) -> bool:
        kind, _, role = acl.principal.partition(":")
        alike = (each.replace("[", "[[]") for each in elsewhere)
        return kind == "User" and any(fnmatchcase(role, each) for each in alike)

    wanted = wanted_acls(state, kafka_rules.PREFIX, mapping)
    assert wanted.acls == {each for each in every.acls if not is_theirs(each)}
    change = difference(wanted.acls, found, kafka_rules.PREFIX, mapping)
    assert not [each for each in (*change.missing, *change.surplus) if is_theirs(each)]
    # All the rest is put right as ever.
    whole = difference(every.acls, found, kafka_rules.PREFIX, MAPPING)
    assert change.surplus == tuple(each for each in whole.surplus if not is_theirs(each))


@pytest.mark.parametrize("template", ["", "{role}", "User:", "User:ada", "User:{role}{role}"])
def test_a_template_that_names_no_principal_is_refused(template: str) -> None:
    with pytest.raises(InvalidInputError, match="names no principal"):
        PrincipalMapping(template)


def test_roles_without_a_principal_are_named_and_proxies_left_out() -> None:
    state = MemoryReplica()
    list(kafka_rules.played(state, BASE))
    words = ("consume", "produce")
    state.apply(
        [(f"permission:a/b/x:{role}", Permission(1, words, 0, "p")) for role in ("*", "eve", "bob")]
    )
    mapping = PrincipalMapping("User:{role}", frozenset(("bob",)))
    found = wanted_acls(state, kafka_rules.PREFIX, mapping)
    assert found.unmapped == {"*"}
    theirs = [each for each in found.acls if each.principal != MAPPING.principal("ada")]
    assert {(each.principal, each.resource, each.name) for each in theirs} == {
        ("User:eve", AclResource.TOPIC, "river.segment.a.b.x."),
        ("User:eve", AclResource.TRANSACTIONAL_ID, "river.transaction.a.b.x."),
        ("User:eve", AclResource.GROUP, "river.subscription.a.b.x."),
    }


def test_a_role_that_would_be_everybody_on_kafka_is_refused() -> None:
    for role in ("*", "ANONYMOUS"):
        with pytest.raises(InvalidInputError, match="is everybody"):
            MAPPING.principal(role)
    for role in ("", "ada\0", "a\nb", " ada", "a" * 256):
        with pytest.raises(InvalidInputError, match="is not valid"):
            MAPPING.principal(role)
    named = PrincipalMapping("User:CN={role},O=acme")
    assert named.principal("*") == "User:CN=*,O=acme"
    assert named.may_own("User:CN=ada,O=acme")
    assert not named.may_own("User:CN=,O=acme")
    assert PrincipalMapping("User:urn:{role}").principal("*") == MAPPING.principal("urn:*")
    assert not named.may_own("User:CN=ada,O=other")
