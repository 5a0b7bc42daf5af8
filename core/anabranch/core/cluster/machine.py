"""How the first record of a log makes a cluster."""

from __future__ import annotations

from typing import Final

from anabranch.core.cluster.settings import Cluster
from anabranch.core.log.conflicts import first_version
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import CLUSTER_KEY, ClusterSettings, tenant_key
from anabranch.core.log.state import Change, StateReader
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import namespace, tenant_of
from anabranch.core.ring import BUNDLES_MAX
from anabranch.core.tenants.machine import namespace_made
from anabranch.core.tenants.tenant import Tenant

FIRST_NAMESPACE: Final = ("public", "default")  # every cluster starts with it


def evolve_cluster(
    state: StateReader, record: ClusterSettings, offset: int, timestamp_ms: int
) -> Outcome:
    """Judges the settings of a cluster, which come with its first tenant and namespace."""
    before = state.cluster()
    if before is not None:
        same = before.proposal_id == record.proposal_id
        return REJECTED[Verdict.REPEATED if same else Verdict.CLUSTER_EXISTS]
    if record.version != 1:
        return REJECTED[Verdict.VERSION_GAP]
    times_ordered = 0 < record.heartbeat_ms < record.lease_ms
    # The margin absorbs clocks that run at different rates; a tenth is far more than they do.
    margin = record.liveness_timeout_ms * 10 >= record.lease_ms * 11
    if not (times_ordered and margin and 1 <= record.default_bundles <= BUNDLES_MAX):
        return REJECTED[Verdict.INVALID_VALUE]
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
