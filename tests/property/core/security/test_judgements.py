"""A judgement that is kept is the one that would be made now, whatever was folded meanwhile."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.records import (
    ClusterSettings,
    NamespaceChange,
    PermissionChange,
    PolicyOp,
    Record,
    SessionChange,
    SessionOp,
    TenantChange,
)
from anabranch.core.security.actions import CONSUMING, SUPERUSER, TENANT_ADMIN, VIEWING
from anabranch.core.security.authorize import Grants, authorize
from anabranch.core.security.changes import FoldedGrants
from anabranch.core.security.judgements import KEPT_MAX, Judgements
from anabranch.core.security.principal import Principal
from anabranch.core.security.resources import scope_resource, topic_resource

NODE: Final = "a:8080"
HOME: Final = "acme/shop"
SCOPES: Final = (HOME, "acme/shop/orders", "acme/shop/bills")
ROLES: Final = ("ada", "bob", "root", "gate")
SUPERUSERS: Final = frozenset(("root",))
PROXIES: Final = frozenset(("gate",))
ASKERS: Final = (*map(Principal, ROLES), Principal("ada", "gate"), Principal("ada", "bob"))
NEEDS: Final = (VIEWING, CONSUMING, TENANT_ADMIN, SUPERUSER)
ON: Final = tuple(map(scope_resource, SCOPES))

roles = st.sampled_from(ROLES)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("grant"), roles, st.sampled_from(SCOPES)),
        st.tuples(st.just("revoke"), roles, st.sampled_from(SCOPES)),
        st.tuples(st.just("admin"), roles, st.just("")),
        st.tuples(st.just("rebuilt"), st.just(""), st.just("")),
    ),
    max_size=12,
)
questions = st.lists(
    st.tuples(st.sampled_from(ASKERS), st.sampled_from(NEEDS), st.sampled_from(ON)),
    min_size=1,
    max_size=6,
)


def begun() -> list[Record]:
    return [
        ClusterSettings("c", "test", 1, NODE, 500, 4_000, 6_000, 1),
        SessionChange("s", NODE, SessionOp.OPEN, 1, NODE, 0),
        TenantChange("t", "acme", PolicyOp.CREATE, 1, NODE, 1, ("boss",)),
        NamespaceChange("n", HOME, PolicyOp.CREATE, 1, NODE, 1, 1),
    ]


def replica_of(records: list[Record]) -> MemoryReplica:
    found = MemoryReplica()
    for offset, record in enumerate(records):
        found.read(record, offset, offset)
    return found


def change(state: MemoryReplica, what: str, role: str, scope: str, number: int) -> Record:
    """As a node would propose it by this state; it may be refused."""
    if what == "admin":
        tenant = state.tenant("acme")
        version = tenant.version + 1 if tenant is not None else 1
        admins = () if tenant is not None and role in tenant.admin_roles else (role,)
        return TenantChange(f"{number}", "acme", PolicyOp.UPDATE, version, NODE, 1, admins)
    known = state.permission(scope, role)
    version = known.version + 1 if known is not None else 1
    if what == "revoke":
        return PermissionChange(f"{number}", scope, role, PolicyOp.DELETE, version, NODE, 1)
    op = PolicyOp.UPDATE if known is not None else PolicyOp.CREATE
    return PermissionChange(f"{number}", scope, role, op, version, NODE, 1, ("consume",))


@given(steps, questions)
def test_what_is_kept_is_what_would_be_judged_now(
    done: list[tuple[str, str, str]], asked: list[tuple[Principal, object, object]]
) -> None:
    records = begun()
    state, judgements = replica_of(records), Judgements(SUPERUSERS, PROXIES)
    for number, (what, role, scope) in enumerate(done):
        if what == "rebuilt":
            # Another state at the same offset: as if the last record had never been accepted.
            records = [*records[:-1], records[0]] if len(records) > len(begun()) else records
            state = replica_of(records)
        else:
            records = [*records, change(state, what, role, scope, number)]
            state.read(records[-1], len(records) - 1, number)
        for question in asked * 2:
            grants = Grants(FoldedGrants(state), SUPERUSERS, PROXIES)
            assert judgements.of(state, *question) is authorize(grants, *question)  # type: ignore[arg-type]
        assert len(judgements) == len(set(asked))


def test_no_more_is_kept_than_may_be_however_many_topics_are_asked_for() -> None:
    state, judgements = replica_of(begun()), Judgements(SUPERUSERS, PROXIES)
    for number in range(2 * KEPT_MAX + 7):
        on = topic_resource(f"{HOME}/t{number}")
        judgements.of(state, Principal("boss"), VIEWING, on)
        assert len(judgements) <= KEPT_MAX
