"""Who may do what: the judgement is the one that the rules, told in other words, come to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from anabranch.core.security import actions
from anabranch.core.security.actions import Action, Need, Right
from anabranch.core.security.authorize import Grants, Judgement, authorize
from anabranch.core.security.principal import Principal
from anabranch.core.security.resources import (
    CLUSTER,
    ResourceLevel,
    ResourceName,
    namespace_resource,
    tenant_resource,
    topic_resource,
)
from anabranch.core.security.table import REST, WIRE

ALLOWED: Final = Judgement.ALLOWED
# Few, so that they meet; one is the beginning of another.
TENANTS: Final = ("acme", "acmes")
NAMESPACES: Final = tuple(f"{tenant}/{name}" for tenant in TENANTS for name in ("a", "ab"))
TOPICS: Final = tuple(f"{home}/{name}" for home in NAMESPACES for name in ("x", "xy"))
SCOPES: Final = (*NAMESPACES, *TOPICS)
ROLES: Final = ("ada", "bob", "proxy", "root", "acme")


class Held(msgspec.Struct, frozen=True):
    """What a log keeps, as dictionaries."""

    administrators: Mapping[str, frozenset[str]] = {}
    on: Mapping[tuple[str, str], frozenset[str]] = {}

    def admins(self, tenant: str) -> frozenset[str]:
        return self.administrators.get(tenant, frozenset())

    def granted(self, scope: str, role: str) -> frozenset[str]:
        return self.on.get((scope, role), frozenset())


roles = st.sampled_from(ROLES)
words = st.sampled_from((*Action, "functions"))  # one that another release may know
held = st.builds(
    Held,
    st.dictionaries(st.sampled_from(TENANTS), st.frozensets(roles, max_size=2), max_size=2),
    st.dictionaries(
        st.tuples(st.sampled_from(SCOPES), roles), st.frozensets(words, min_size=1), max_size=5
    ),
)
grants = st.builds(Grants, held, st.frozensets(roles, max_size=1), st.just(frozenset({"proxy"})))
principals = st.builds(
    Principal, st.sampled_from((*ROLES, "")), st.sampled_from(("", "", "proxy", "bob"))
)
needs = st.one_of(
    st.sampled_from([value for value in vars(actions).values() if isinstance(value, Need)]),
    st.builds(Need, st.sampled_from(Right), st.frozensets(st.sampled_from(Action))),
)
resources = st.one_of(
    st.just(CLUSTER),
    st.sampled_from([tenant_resource(tenant) for tenant in TENANTS]),
    st.sampled_from([namespace_resource(home) for home in NAMESPACES]),
    st.sampled_from([topic_resource(topic) for topic in TOPICS]),
)


def by_the_rules(known: Grants, who: Principal, need: Need, what: ResourceName) -> bool:
    """What the page says, in other words than `authorize`'s."""
    if need.right == Right.PUBLIC:
        return True
    if who.proxied_by and (who.proxied_by not in known.proxies or who.role in known.proxies):
        return False
    rights = rights_of(known, who.role, need, what)
    if who.proxied_by:
        rights &= rights_of(known, who.proxied_by, need, what)
    elif who.role in known.proxies:
        rights = {Right.ANYONE}
    return bool(who.role) and need.right in rights


def rights_of(known: Grants, role: str, need: Need, what: ResourceName) -> set[Right]:
    rights = {Right.ANYONE}
    if role in known.superusers:
        rights |= set(Right)
    if what.tenant and role in known.held.admins(what.tenant):
        rights |= {Right.GRANTED, Right.TENANT_ADMIN}
    for scope in filter(None, (what.namespace, what.topic)):
        if set(known.held.granted(scope, role)) & set(need.any_of):
            rights |= {Right.GRANTED}
    return rights


@given(grants, principals, needs, resources)
def test_whatever_is_asked_is_answered_as_the_rules_say(
    known: Grants, who: Principal, need: Need, what: ResourceName
) -> None:
    found = authorize(known, who, need, what)
    assert found in Judgement
    assert (found is ALLOWED) is by_the_rules(known, who, need, what)


@given(grants, roles, needs, resources)
def test_what_a_role_has_nothing_to_do_with_is_hidden_and_nothing_else_is(
    known: Grants, role: str, need: Need, what: ResourceName
) -> None:
    assume(role not in known.proxies)
    found = authorize(known, Principal(role), need, what)
    assume(found is not ALLOWED)
    something = what.level is ResourceLevel.CLUSTER or role in known.held.admins(what.tenant)
    for scope in filter(None, (what.namespace, what.topic)):
        something = something or bool(known.held.granted(scope, role))
    assert found is (Judgement.DENIED if something else Judgement.HIDDEN)


@given(grants, principals, resources)
def test_a_proxy_is_trusted_only_by_name_and_both_need_the_right(
    known: Grants, who: Principal, what: ResourceName
) -> None:
    need = actions.VIEWING
    found = authorize(known, who, need, what)
    by_itself = Grants(known.held, known.superusers)
    role, proxy = (
        authorize(by_itself, Principal(each), need, what) for each in (who.role, who.proxied_by)
    )
    if not who.proxied_by:
        assert found is not Judgement.PROXY_DENIED
    elif who.proxied_by not in known.proxies or who.role in known.proxies:
        assert found is Judgement.DENIED
    elif role is not ALLOWED:  # as if it had asked by itself, whatever the proxy may
        assert found is role
    else:
        assert found is (ALLOWED if proxy is ALLOWED else Judgement.PROXY_DENIED)


def test_every_action_but_view_is_asked_for_by_some_row() -> None:
    asked = {rule.need for rule in (*REST.values(), *WIRE.values())}
    alone = {need.any_of for need in asked if len(need.any_of) == 1}
    assert alone == {frozenset({Action.CONSUME}), frozenset({Action.SCALE})}
    assert actions.USING in asked
    assert actions.VIEWING in asked
