"""How records change tenants and namespaces."""

from __future__ import annotations

from msgspec.structs import replace

from anabranch.core.bundles.evolve import born
from anabranch.core.bundles.unit import UnitState
from anabranch.core.log.conflicts import first_version, wrong_version
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import (
    NamespaceChange,
    PolicyOp,
    TenantChange,
    namespace_key,
)
from anabranch.core.log.state import Change, StateReader
from anabranch.core.log.state_machine import Arrow, Case, Existence
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import Namespace, tenant_of
from anabranch.core.ring import bundle_name, even_ranges
from anabranch.core.tenants.machine import NAMESPACES, TENANTS
from anabranch.core.tenants.tenant import NamespaceInfo, Tenant


def evolve_tenant(
    state: StateReader, record: TenantChange, offset: int, timestamp_ms: int
) -> Outcome:
    """Judges one change of one tenant."""
    before = state.tenant(record.tenant)
    wrong = _refusal(TENANTS.table, state, before, record, Verdict.UNKNOWN_TENANT)
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
    if state.tenant(tenant_of(home)) is None and not _is_repeated(before, record):
        return REJECTED[Verdict.UNKNOWN_TENANT]
    wrong = _refusal(NAMESPACES.table, state, before, record, Verdict.UNKNOWN_NAMESPACE)
    if wrong is not None:
        return REJECTED[wrong]
    if record.op is PolicyOp.DELETE:
        gone: list[Change] = [(name, None) for name, _ in state.bundles(home)]
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


def _is_repeated(
    before: Tenant | NamespaceInfo | None, record: TenantChange | NamespaceChange
) -> bool:
    return before is not None and before.proposal_id == record.proposal_id


def _refusal(
    cases: dict[tuple[int, int], Case[Arrow]],
    state: StateReader,
    before: Tenant | NamespaceInfo | None,
    record: TenantChange | NamespaceChange,
    unknown: Verdict,
) -> Verdict | None:
    """Returns why a change is refused; `unknown`: the reason where nothing of the name is there."""
    if _is_repeated(before, record):
        return Verdict.REPEATED
    case = cases.get((Existence.ABSENT if before is None else Existence.PRESENT, record.op))
    if case is None:
        return unknown if before is None else Verdict.STALE_VERSION
    wrong = wrong_version(before.version if before else 0, record.version, repeated=False)
    return wrong or case.refusal(state, before, record)
