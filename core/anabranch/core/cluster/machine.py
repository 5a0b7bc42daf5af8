"""The machine of a cluster, as a table, and how the log's first record makes one."""

from __future__ import annotations

from typing import Final

from anabranch.core.entities.cluster import Cluster
from anabranch.core.entities.tenant import Tenant
from anabranch.core.log.conflicts import first_version
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import CLUSTER_KEY, ClusterSettings, PolicyOp, tenant_key
from anabranch.core.log.state import Change, StateReader
from anabranch.core.log.state_machine import Arrow, Existence, Guard, StateMachine
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import namespace, tenant_of
from anabranch.core.ring import BUNDLES_MAX
from anabranch.core.tenants.machine import namespace_made

FIRST_NAMESPACE: Final = ("public", "default")  # every cluster starts with it

ClusterGuard = Guard[Cluster | None, ClusterSettings]


def _are_sound(record: ClusterSettings) -> bool:
    """Says if brokers can live by these times, and a namespace can have so many bundles."""
    times_ordered = 0 < record.heartbeat_ms < record.lease_ms
    # The margin absorbs clocks that run at different rates; a tenth is far more than they do.
    margin = record.liveness_timeout_ms * 10 >= record.lease_ms * 11
    return times_ordered and margin and 1 <= record.default_bundles <= BUNDLES_MAX


_SOUND: Final = ClusterGuard(
    "the times are in order, with a margin, and so many bundles can be",
    lambda s, e, r: _are_sound(r),
    Verdict.INVALID_VALUE,
)
_E, _O = Existence, PolicyOp

CLUSTERS: Final = StateMachine(
    (Arrow(_O.CREATE, (_E.ABSENT,), _E.PRESENT, (_SOUND,)),),
    Existence,
    fits=lambda move, end: end is _E.PRESENT,  # for good, and its first tenant with it
)


def evolve_cluster(
    state: StateReader, record: ClusterSettings, offset: int, timestamp_ms: int
) -> Outcome:
    """Judges the settings of a cluster, which come with its first tenant and namespace."""
    before = state.cluster()
    if before is not None and before.proposal_id == record.proposal_id:
        return REJECTED[Verdict.REPEATED]
    # The record names no move, for there is no other.
    case = CLUSTERS.table.get((_E.ABSENT if before is None else _E.PRESENT, _O.CREATE))
    if case is None:
        return REJECTED[Verdict.CLUSTER_EXISTS]
    if record.version != 1:
        return REJECTED[Verdict.VERSION_GAP]
    wrong = case.refusal(state, before, record)
    if wrong is not None:
        return REJECTED[wrong]
    after = Cluster(
        1,
        record.cluster,
        record.heartbeat_ms,
        record.lease_ms,
        record.liveness_timeout_ms,
        record.default_bundles,
        record.proposal_id,
    )
    version = first_version(offset)
    tenant_made = Tenant(version, (), (record.cluster,), timestamp_ms, record.proposal_id)
    home = namespace(*FIRST_NAMESPACE)
    made = namespace_made(home, record.default_bundles, record.proposal_id, offset, timestamp_ms)
    first: tuple[Change, ...] = ((CLUSTER_KEY, after), (tenant_key(tenant_of(home)), tenant_made))
    return Outcome(Verdict.ACCEPTED, first + made)
