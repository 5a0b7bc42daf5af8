"""`evolve`: the one rule by which a log becomes a state (PIP-192, "Conflict State Resolution").

First valid wins: the fold accepts a record if its version is the next one, its move is an arrow of
the machine, and the arrow's guards hold. Any other record changes nothing and gets a named reason.
The answer depends on the state and the record alone. The record includes its offset and log
timestamp; a local clock or setting never matters. Each noun has the rules for its own records. The
check of the caller's right is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from anabranch.core.archives.machine import evolve_archive
from anabranch.core.bundles.machine import evolve_unit
from anabranch.core.cluster.machine import evolve_cluster
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import (
    ArchiveChange,
    ClusterSettings,
    NamespaceChange,
    PermissionChange,
    PlacementPolicyChange,
    Record,
    SessionChange,
    SettingChange,
    SubscriptionChange,
    TenantChange,
    TopicChange,
    UnitMove,
)
from anabranch.core.log.state import StateReader
from anabranch.core.log.verdicts import Verdict
from anabranch.core.policies.machine import evolve_placement
from anabranch.core.security.changes import is_permitted
from anabranch.core.security.machine import evolve_permission
from anabranch.core.sessions.machine import evolve_session
from anabranch.core.settings.machine import evolve_override
from anabranch.core.subscriptions.machine import evolve_subscription
from anabranch.core.tenants.machine import evolve_namespace, evolve_tenant
from anabranch.core.topics.machine import evolve_topic

UNREADABLE: Final = REJECTED[Verdict.UNREADABLE]
NOT_PERMITTED: Final = REJECTED[Verdict.NOT_PERMITTED]


def evolve(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
    """Judges one record, given the log's offset and timestamp. The caller applies `changes`."""
    if type(record) is UnitMove:
        outcome = evolve_unit(state, record, offset, timestamp_ms)
        if not record.principal:  # nearly all of a log
            return outcome
    else:
        outcome = _judged(state, record, offset, timestamp_ms)
    if outcome.changes and not is_permitted(state, record):
        return NOT_PERMITTED
    return outcome


def _judged(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
    """Judges any record but a unit's move, without regard to the asker's rights."""
    if type(record) is ClusterSettings:
        return evolve_cluster(state, record, offset, timestamp_ms)
    if type(record) is ArchiveChange:  # an archive's program reads these records alone
        return evolve_archive(state.archive(record.archive), record, offset, timestamp_ms)
    if state.cluster() is None:
        return REJECTED[Verdict.NO_CLUSTER]
    rule = _RULES.get(type(record))
    if rule is None:
        raise TypeError(f"{type(record).__name__} is not a record of the log")
    return rule(state, record, offset, timestamp_ms)


_RULES: Final[dict[type, Callable[[StateReader, Any, int, int], Outcome]]] = {
    SessionChange: evolve_session,
    TenantChange: evolve_tenant,
    NamespaceChange: evolve_namespace,
    TopicChange: evolve_topic,
    SubscriptionChange: evolve_subscription,
    PlacementPolicyChange: evolve_placement,
    SettingChange: evolve_override,
    PermissionChange: evolve_permission,
}
