"""What goes on by a right ends when the right is gone, says so once, and tells nothing after it."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.errors import ForbiddenError, OperationError
from anabranch.broker.security.open_rights import OpenRight, OpenRights
from anabranch.core.entities.permission import permission_key
from anabranch.core.log.state import Change
from anabranch.core.security.actions import VIEWING, Need
from anabranch.core.security.authorize import Grants, Judgement, authorize
from anabranch.core.security.principal import Principal
from anabranch.core.security.resources import ResourceName, scope_resource

SCOPES: Final = ("acme/a", "acme/a/x", "acme/b", "acmes/a")
ROLES: Final = ("ada", "urn:bob", "acme")
TENANTS: Final = ("acme", "acmes")


class Kept:
    """What a log keeps of roles, changed as records change it."""

    def __init__(self) -> None:
        self.on: dict[tuple[str, str], tuple[str, ...]] = {}
        self.of: dict[str, tuple[str, ...]] = {}

    def admins(self, tenant: str) -> tuple[str, ...]:
        return self.of.get(tenant, ())

    def granted(self, scope: str, role: str) -> tuple[str, ...]:
        return self.on.get((scope, role), ())

    def check(self, principal: Principal, need: Need, on: ResourceName) -> None:
        if authorize(Grants(self), principal, need, on) is not Judgement.ALLOWED:
            raise ForbiddenError(f"{principal.role} may not")


roles, scopes = st.sampled_from(ROLES), st.sampled_from(SCOPES)
grants = st.tuples(st.just("grant"), scopes, roles)
revokes = st.tuples(st.just("revoke"), scopes, roles)
admins = st.tuples(st.just("admins"), st.sampled_from(TENANTS), st.lists(roles, max_size=2))
folds = st.lists(st.one_of(grants, revokes, revokes, admins), max_size=3)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("open"), scopes, roles),
        st.tuples(st.just("close"), st.integers(0, 5), st.none()),
        st.tuples(st.just("fold"), folds, st.booleans()),
        st.tuples(st.just("replace"), folds, st.booleans()),
    ),
    max_size=25,
)


def changed(kept: Kept, fold: list[tuple[str, str, object]]) -> list[Change]:
    changes: list[Change] = []
    for what, where, who in fold:
        if what == "admins":
            assert isinstance(who, list)
            kept.of[where] = tuple(who)
            changes.append((f"tenant:{where}", None))
            continue
        assert isinstance(who, str)
        if what == "grant":
            kept.on[where, who] = ("view",)
        else:
            kept.on.pop((where, who), None)
        changes.append((permission_key(where, who), None))
    return changes


@given(steps)
def test_what_is_open_is_what_is_allowed_whatever_is_granted_and_revoked(
    done: list[tuple[str, object, object]],
) -> None:
    async def body() -> None:
        kept = Kept()
        ticks = count(0.0, 0.003)  # of each two judgements, the second has to wait for its turn
        rights = OpenRights(kept.check, lambda: next(ticks))
        held: dict[OpenRight, list[OperationError]] = {}
        closed: set[OpenRight] = set()
        for what, first, second in done:
            if what == "open":
                lost: list[OperationError] = []
                who, on = Principal(str(second)), scope_resource(str(first))
                try:
                    right = rights.open(who, VIEWING, on, lost.append, request="W", host="h")
                except ForbiddenError:
                    assert authorize(Grants(kept), who, VIEWING, on) is not Judgement.ALLOWED
                else:
                    held[right] = lost
            elif what == "close":
                for right in list(held)[: int(str(first))]:
                    closed.add(right)
                    right.close()
            else:
                changes = changed(kept, first)  # type: ignore[arg-type]
                if what == "fold":
                    rights.folded(changes)
                else:
                    rights.replaced()
                if second:  # it is asked for before it was the turn of anything else
                    _check(kept, held, closed)
                await _settled(rights)
            _check(kept, held, closed)
            assert len(rights) == sum(not each for each in held.values()) - len(
                [each for each in closed if not held[each]]
            )
        ended = sum(len(each) for each in held.values())
        assert rights.ended.total() == ended

    asyncio.run(body())


def _check(kept: Kept, held: dict[OpenRight, list[OperationError]], closed: set[OpenRight]) -> None:
    for right, lost in held.items():
        judged = authorize(Grants(kept), right.principal, right.need, right.on)
        if lost:
            assert not right.stands  # also where it is granted again
            assert len(lost) == 1
            continue
        assert right.stands is (judged is Judgement.ALLOWED)
        if right in closed:
            continue  # what may still be told by it needs the right as well
        assert bool(lost) is not right.stands


async def _settled(rights: OpenRights) -> None:
    """Nothing is in doubt any more: at once, or when others had a turn or two."""
    for _ in range(60):
        await asyncio.sleep(0)
    assert not rights._doubtful
