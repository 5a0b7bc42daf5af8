"""The changes of permissions by records."""

from __future__ import annotations

from anabranch.core.entities.permission import Permission
from anabranch.core.log.conflicts import end_of_change, first_version
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import PermissionChange
from anabranch.core.log.state import StateReader
from anabranch.core.log.state_machine import Existence
from anabranch.core.log.verdicts import Verdict
from anabranch.core.security.machine import PERMISSIONS
from anabranch.core.security.resources import scope_resource


def evolve_permission(
    state: StateReader, record: PermissionChange, offset: int, timestamp_ms: int
) -> Outcome:
    """Judges a grant to one role on one namespace or topic, or its end."""
    before = state.permission(record.scope, record.role)
    home = scope_resource(record.scope).namespace
    if state.namespace(home) is None:
        return REJECTED[Verdict.UNKNOWN_NAMESPACE]
    unknown = Verdict.UNKNOWN_PERMISSION
    end = end_of_change(PERMISSIONS.table, state, before, record, unknown)
    if isinstance(end, Verdict):
        return REJECTED[end]
    if end is Existence.ABSENT:
        return Outcome(Verdict.ACCEPTED, ((record.key, None),))
    after = Permission(
        version=record.version if before else first_version(offset),
        actions=record.actions,
        since_ms=timestamp_ms,
        proposal_id=record.proposal_id,
    )
    return Outcome(Verdict.ACCEPTED, ((record.key, after),))
