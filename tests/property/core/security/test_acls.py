"""What Kafka is told of grants: no principal gets more than was granted, and none less."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.entities.permission import Permission
from anabranch.core.entities.segment import new_segment
from anabranch.core.errors import InvalidInputError
from anabranch.core.log.state import IndexedState
from anabranch.core.security.acls import (
    Acl,
    AclDifference,
    AclResource,
    PrincipalMapping,
    WantedAcls,
    difference,
    is_ours,
    wanted_acls,
)
from anabranch.core.security.actions import Action, Need, Right
from anabranch.core.security.authorize import Judgement, authorize
from anabranch.core.security.changes import FoldedGrants
from anabranch.core.security.grants import Grants
from anabranch.core.security.kafka_stems import KafkaStems
from anabranch.core.security.principal import Principal
from anabranch.core.security.resources import topic_resource
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic
from support import kafka_rules
from support.open_topic import topic_of
from support.there import there

MAPPING = PrincipalMapping("User:{role}")
MAPPED = kafka_rules.ROLES[:2]
BASE = (
    *(("tenant", number) for number in range(len(kafka_rules.TENANTS))),
    *(("namespace", number) for number in range(len(kafka_rules.NAMESPACES))),
)


def wanted_now(state: IndexedState) -> WantedAcls:
    return wanted_acls(state, KafkaStems.of(state, kafka_rules.PREFIX), MAPPING)


def may(state: IndexedState, role: str, action: Action, topic: str) -> bool:
    need = Need(Right.GRANTED, frozenset((action,)))
    grants = Grants(FoldedGrants(state))
    return authorize(grants, Principal(role), need, topic_resource(topic)) is Judgement.ALLOWED


def topics_of(state: IndexedState) -> list[str]:
    return [name for name in kafka_rules.TOPICS if state.topic(name) is not None]


@given(kafka_rules.steps)
def test_a_role_may_on_kafka_what_it_may_here_and_nothing_else(
    taken: list[tuple[str, int]],
) -> None:
    state = IndexedState()
    list(kafka_rules.played(state, (*BASE, *taken)))
    acls = wanted_now(state).acls
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


@given(kafka_rules.steps)
def test_stems_follow_the_log_and_say_when_something_may_have_changed(
    taken: list[tuple[str, int]],
) -> None:
    state = IndexedState()
    stems, before = KafkaStems(kafka_rules.PREFIX), WantedAcls(frozenset())
    for changes in kafka_rules.played(state, (*BASE, *taken)):
        matters = stems.apply(changes)
        now = wanted_acls(state, stems, MAPPING)
        assert now == wanted_now(state)
        assert matters or now == before
        before = now


@given(kafka_rules.steps, st.sampled_from(kafka_rules.TOPICS))
def test_what_is_apart_needs_nothing_to_be_done_before_it_is_made(
    taken: list[tuple[str, int]], name: str
) -> None:
    state = IndexedState()
    list(kafka_rules.played(state, (*BASE, *taken)))
    if state.topic(name) is not None or state.namespace(name.rpartition("/")[0]) is None:
        return
    before = wanted_now(state).acls
    part = new_segment(0, 0, 0xFFFF, 1)
    state.apply([(f"topic:{name}", topic_of(5_000, [part]))])
    after, stems = wanted_now(state).acls, KafkaStems.of(state, kafka_rules.PREFIX)
    segment = kafka_topic(kafka_rules.PREFIX, name, 5_000, part)
    change = difference(after, before, kafka_rules.PREFIX, MAPPING)
    if stems.is_apart(name):
        assert not change.about([segment])
        return
    done = change.about([segment])
    told = before.difference(done.revoked, done.replaced).union(done.missing)
    for who in map(MAPPING.principal, MAPPED):
        for operation in ("READ", "WRITE"):
            expected = kafka_rules.allows(after, who, AclResource.TOPIC, segment, operation)
            assert kafka_rules.allows(told, who, AclResource.TOPIC, segment, operation) is expected
            for other in topics_of(state):  # nobody else is without a right meanwhile
                topic = there(state.topic(other))
                for each in topic.segments:
                    theirs = kafka_topic(kafka_rules.PREFIX, other, topic.incarnation, each)
                    if kafka_rules.allows(
                        after, who, AclResource.TOPIC, theirs, operation
                    ) and kafka_rules.allows(before, who, AclResource.TOPIC, theirs, operation):
                        assert kafka_rules.allows(told, who, AclResource.TOPIC, theirs, operation)


@given(kafka_rules.steps)
def test_a_split_needs_no_new_rule_where_names_do_not_meet(taken: list[tuple[str, int]]) -> None:
    state = IndexedState()
    list(kafka_rules.played(state, (*BASE, *taken)))
    stems, before = KafkaStems.of(state, kafka_rules.PREFIX), wanted_now(state).acls
    for name in topics_of(state):
        if stems.is_alone(name):
            parts = [new_segment(each, 0, 0xFFFF, 1) for each in range(9)]
            state.apply([(f"topic:{name}", topic_of(there(state.topic(name)).incarnation, parts))])
            assert wanted_now(state).acls == before


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
    gone = {*change.revoked, *change.replaced}
    assert bool(change) is bool(gone or change.missing)
    assert gone <= found
    assert all(is_ours(each, kafka_rules.PREFIX, MAPPING) for each in gone)
    assert all(each.name.startswith(("river.segment.", "river.subscription.")) for each in gone)
    after = found.difference(gone).union(change.missing)
    assert wanted <= after
    assert not difference(wanted, after, kafka_rules.PREFIX, MAPPING)
    # Nobody gets, on the way, what they neither had nor shall have.
    for step in (change.revoked, change.missing, change.replaced):
        assert not set(step) - wanted - found
    # What is replaced covers something that is wanted for the same, so nobody is without it.
    for old in change.replaced:
        assert any(new.principal == old.principal for new in change.missing)


def test_a_subscription_that_looks_like_another_topic_gives_nobody_its_group() -> None:
    state = IndexedState()
    list(kafka_rules.played(state, BASE))
    part = new_segment(0, 0, 0xFFFF, 1)
    state.apply(
        [
            ("topic:a/b/x", topic_of(100, [part])),
            ("topic:a/b/x.y", topic_of(101, [part])),
            ("permission:a/b/x.y:bob", Permission(1, ("consume",), 0, "p")),
        ]
    )
    group = AclResource.GROUP

    def asked(name: str) -> bool:
        return kafka_rules.allows(wanted_now(state).acls, "User:bob", group, name, "READ")

    state.apply([("subscription:a/b/x.y/s", kafka_rules.subscription_of(102))])
    assert asked("river.subscription.a.b.x.y.s.102")
    assert asked("river.subscription.a.b.x.y.to-come.1")
    state.apply([("subscription:a/b/x/y", kafka_rules.subscription_of(103))])
    assert asked("river.subscription.a.b.x.y.s.102")
    assert not asked("river.subscription.a.b.x.y.103")
    assert not asked("river.subscription.a.b.x.y.s.1024")


def test_where_names_meet_each_rule_is_about_one_name() -> None:
    state = IndexedState()
    list(kafka_rules.played(state, BASE))
    part = new_segment(0, 0, 0xFFFF, 1)
    state.apply([(f"topic:a/b/{name}", topic_of(100, [part])) for name in ("x", "x.y")])
    state.apply(
        [(f"subscription:a/b/{name}/s", kafka_rules.subscription_of(102)) for name in ("x", "x.y")]
    )
    words = ("consume", "produce")
    state.apply(
        [(f"permission:a/b/x:{role}", Permission(1, words, 0, "p")) for role in ("*", "eve", "bob")]
    )
    stems = KafkaStems.of(state, kafka_rules.PREFIX)
    found = wanted_acls(state, stems, PrincipalMapping("User:{role}", frozenset(("bob",))))
    assert found.unmapped == {"*"}
    theirs = [each for each in found.acls if each.principal != MAPPING.principal("ada")]
    assert {(each.principal, each.resource, each.name, each.is_prefix) for each in theirs} == {
        ("User:eve", AclResource.TOPIC, "river.segment.a.b.x.0000-ffff-0.100", False),
        ("User:eve", AclResource.TRANSACTIONAL_ID, "river.transaction.100", False),
        ("User:eve", AclResource.GROUP, "river.subscription.a.b.x.s.102", False),
    }
    assert not any(each.covers(f"{each.name}0") for each in theirs)


def test_a_rule_stays_until_another_one_for_the_same_is_there() -> None:
    name = "river.segment.a.b.x.0000-ffff-0.100"
    wide = Acl("User:ada", AclResource.TOPIC, "river.segment.a.b.x.", True, "READ")
    one = msgspec.structs.replace(wide, name=name, is_prefix=False)
    elsewhere = msgspec.structs.replace(wide, name="river.segment.a.c.")
    others = tuple(
        msgspec.structs.replace(one, **fields)
        for fields in (
            {"principal": "User:bob"},
            {"operation": "WRITE"},
            {"name": "river.segment.a.b.y.0000-ffff-0.7"},
        )
    )
    for old, new in ((one, wide), (wide, one)):
        change = difference((new, elsewhere), (old, *others), kafka_rules.PREFIX, MAPPING)
        assert change == AclDifference(
            tuple(sorted(others)), tuple(sorted((new, elsewhere))), (old,)
        )
        assert change.about([name]) == AclDifference(tuple(sorted(others[:2])), (new,), (old,))
        assert change.about(["river.segment.a.c.z"]) == AclDifference(missing=(elsewhere,))
    group = msgspec.structs.replace(one, resource=AclResource.GROUP)
    assert not AclDifference(missing=(group,)).about([name])


@pytest.mark.parametrize("template", ["", "{role}", "User:", "User:ada", "User:{role}{role}"])
def test_a_template_that_names_no_principal_is_refused(template: str) -> None:
    with pytest.raises(InvalidInputError, match="names no principal"):
        PrincipalMapping(template)


def test_a_role_that_would_be_everybody_on_kafka_is_refused() -> None:
    for role in ("*", "ANONYMOUS"):
        with pytest.raises(InvalidInputError, match="is everybody"):
            MAPPING.principal(role)
    for role in ("", "ada\0", "a\nb", " ada", "a" * 256):
        with pytest.raises(InvalidInputError, match="is not valid"):
            MAPPING.principal(role)
    named = PrincipalMapping("User:CN={role},O=acme")
    assert named.principal("*") == "User:CN=*,O=acme"
    assert named.may_be("User:CN=ada,O=acme")
    assert not named.may_be("User:CN=,O=acme")
    assert PrincipalMapping("User:urn:{role}").principal("*") == MAPPING.principal("urn:*")
    assert not named.may_be("User:CN=ada,O=other")
