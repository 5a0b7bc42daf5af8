"""The machine of permissions, as a table, and how records change them."""

from __future__ import annotations

from itertools import islice
from typing import Final

from anabranch.core.entities.permission import PERMISSIONS_MAX, Permission, are_actions
from anabranch.core.log.conflicts import evolved, policy_machine
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import PermissionChange
from anabranch.core.log.state import StateReader
from anabranch.core.log.state_machine import Guard
from anabranch.core.log.verdicts import Verdict
from anabranch.core.security.principal import is_role
from anabranch.core.security.resources import scope_resource

PermissionGuard = Guard[Permission | None, PermissionChange]


def is_on_something(state: StateReader, record: PermissionChange) -> bool:
    """Tells whether the record's topic, if it names one, is there; the namespace is checked
    before.
    """
    topic = scope_resource(record.scope).topic
    return not topic or state.topic(topic) is not None


_FORMED: Final = PermissionGuard(
    "the role's name is one, and what is granted are actions by their form",
    lambda s, e, r: is_role(r.role) and are_actions(r.actions),
    Verdict.INVALID_VALUE,
)
_BARE: Final = PermissionGuard(
    "a revoke takes all away", lambda s, e, r: not r.actions, Verdict.INVALID_VALUE
)
_ON_TOPIC: Final = PermissionGuard(
    "the topic is there, if it is on one",
    lambda s, e, r: is_on_something(s, r),
    Verdict.UNKNOWN_TOPIC,
)
_ROOM: Final = PermissionGuard(
    f"fewer than {PERMISSIONS_MAX} roles have something granted there",
    lambda s, e, r: (
        sum(1 for _ in islice(s.permissions(r.scope), PERMISSIONS_MAX)) < PERMISSIONS_MAX
    ),
    Verdict.TOO_MANY_PERMISSIONS,
)

PERMISSIONS: Final = policy_machine(
    create=(_FORMED, _ON_TOPIC, _ROOM), update=(_FORMED,), delete=(_BARE,)
)


def evolve_permission(
    state: StateReader, record: PermissionChange, offset: int, timestamp_ms: int
) -> Outcome:
    """Judges a grant to one role on one namespace or topic, or its end."""
    if state.namespace(scope_resource(record.scope).namespace) is None:
        return REJECTED[Verdict.UNKNOWN_NAMESPACE]

    def made(version: int) -> Permission:
        return Permission(version, record.actions, timestamp_ms, record.proposal_id)

    before = state.permission(record.scope, record.role)
    return evolved(PERMISSIONS, state, before, record, offset, Verdict.UNKNOWN_PERMISSION, made)
