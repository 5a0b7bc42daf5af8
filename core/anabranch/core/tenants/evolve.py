"""The changes of tenants and namespaces by records."""

from __future__ import annotations

from msgspec.structs import replace

from anabranch.core.bundles.evolve import born
from anabranch.core.bundles.unit import UnitState
from anabranch.core.log.conflicts import first_version, refusal_of_change
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import (
    NamespaceChange,
    PolicyOp,
    TenantChange,
    namespace_key,
)
from anabranch.core.log.state import Change, StateReader
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import Namespace, tenant_of
from anabranch.core.ring import bundle_name, even_ranges
from anabranch.core.security.evolve import revoked_with
from anabranch.core.tenants.machine import NAMESPACES, TENANTS
from anabranch.core.tenants.tenant import NamespaceInfo, Tenant


def evolve_tenant(
    state: StateReader, record: TenantChange, offset: int, timestamp_ms: int
) -> Outcome:
    """Judges one change of one tenant."""
    before = state.tenant(record.tenant)
    wrong = refusal_of_change(TENANTS.table, state, before, record, Verdict.UNKNOWN_TENANT)
    if wrong is not None:
        return REJECTED[wrong]
    if record.op is PolicyOp.DELETE:
        return Outcome(Verdict.ACCEPTED, ((record.key, None),))
    after = Tenant(
        record.version if before else first_version(offset),
        record.admin_roles,
        record.allowed_clusters,
        timestamp_ms,
        record.proposal_id,
    )
    return Outcome(Verdict.ACCEPTED, ((record.key, after),))


def evolve_namespace(
    state: StateReader, record: NamespaceChange, offset: int, timestamp_ms: int
) -> Outcome:
    """Judges one change of one namespace; its bundles come and go with it."""
    before = state.namespace(record.namespace)
    home = Namespace(record.namespace)
    if state.tenant(tenant_of(home)) is None:
        return REJECTED[Verdict.UNKNOWN_TENANT]
    wrong = refusal_of_change(NAMESPACES.table, state, before, record, Verdict.UNKNOWN_NAMESPACE)
    if wrong is not None:
        return REJECTED[wrong]
    if record.op is PolicyOp.DELETE:
        gone: list[Change] = [(name, None) for name, _ in state.bundles(home)]
        gone += revoked_with(state, home)
        return Outcome(Verdict.ACCEPTED, ((record.key, None), *gone))
    if before is None:
        made = namespace_made(home, record.bundles, record.proposal_id, offset, timestamp_ms)
        return Outcome(Verdict.ACCEPTED, made)
    after = replace(
        before,
        version=record.version,
        since_ms=timestamp_ms,
        proposal_id=record.proposal_id,
        auto_scale=record.auto_scale,
        anti_affinity=record.anti_affinity,
        limits=record.limits,
    )
    return Outcome(Verdict.ACCEPTED, ((record.key, after),))


def namespace_made(
    home: Namespace, bundles: int, proposal_id: str, offset: int, timestamp_ms: int
) -> tuple[Change, ...]:
    """A new namespace and the free bundles that tile its ring."""
    info = NamespaceInfo(first_version(offset), bundles, timestamp_ms, proposal_id)
    free = born(UnitState.FREE, "", proposal_id, offset, timestamp_ms)
    units: list[Change] = [(bundle_name(home, part), free) for part in even_ranges(bundles)]
    return ((namespace_key(home), info), *units)
