"""The machines of tenants and of namespaces, as tables, and how records change them."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from anabranch.core.autoscale.policy import is_override_form
from anabranch.core.bundles.guards import source_settled
from anabranch.core.bundles.machine import born
from anabranch.core.entities.placement_policy import check_group
from anabranch.core.entities.tenant import NamespaceInfo, Tenant
from anabranch.core.entities.unit import Unit, UnitState
from anabranch.core.log.conflicts import (
    end_of_change,
    evolved,
    first_version,
    policy_machine,
)
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import NamespaceChange, TenantChange, namespace_key
from anabranch.core.log.state import Change, StateReader, revoked_with
from anabranch.core.log.state_machine import Existence, Guard
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import Namespace, is_valid, parse_namespace, tenant, tenant_of
from anabranch.core.ring import BUNDLES_MAX, bundle_name, even_ranges
from anabranch.core.tenants.limits import are_limits, has_room

TenantGuard = Guard[Tenant | None, TenantChange]
NamespaceGuard = Guard[NamespaceInfo | None, NamespaceChange]


def _unused(state: StateReader, info: NamespaceInfo | None, record: NamespaceChange) -> bool:
    in_use = any(_busy(state, unit) for _, unit in state.bundles(record.namespace))
    return not in_use and not any(True for _ in state.topics(record.namespace))


def _busy(state: StateReader, unit: Unit) -> bool:
    """Tells whether somebody may act as the unit's owner, or is about to."""
    idle = unit.state in (UnitState.FREE, UnitState.DELETED)
    return not idle or not source_settled(state, unit, evidence=0)


_TENANT_NAMED: Final = TenantGuard(
    "the tenant's name is one", lambda s, e, r: is_valid(tenant, r.tenant), Verdict.INVALID_VALUE
)
_TENANT_EMPTY: Final = TenantGuard(
    "the tenant has no namespace",
    lambda s, e, r: not any(True for _ in s.namespaces(r.tenant)),
    Verdict.TENANT_BUSY,
)
_COUNTABLE: Final = NamespaceGuard(
    "the namespace's name is one, and so is the count of its bundles",
    lambda s, e, r: 1 <= r.bundles <= BUNDLES_MAX and is_valid(parse_namespace, r.namespace),
    Verdict.INVALID_VALUE,
)
_OVERRIDES_FORMED: Final = NamespaceGuard(
    "what is overridden of the auto-scale policy are settings of it",
    lambda s, e, r: is_override_form(r.auto_scale),
    Verdict.INVALID_VALUE,
)
_GROUP_NAMED: Final = NamespaceGuard(
    "the anti-affinity group's name is one, or there is none",
    lambda s, e, r: not r.anti_affinity or is_valid(check_group, r.anti_affinity),
    Verdict.INVALID_VALUE,
)
_LIMITS_FORMED: Final = NamespaceGuard(
    "the namespace's own limits are numbers, one for each of what it can limit, or there are none",
    lambda s, e, r: are_limits(r.limits),
    Verdict.INVALID_VALUE,
)
_ROOM: Final = NamespaceGuard(
    "the tenant has fewer namespaces than the record's limit",
    lambda s, e, r: has_room(r.limit, s.namespaces(tenant_of(Namespace(r.namespace)))),
    Verdict.LIMIT_REACHED,
)
_UNUSED: Final = NamespaceGuard(
    "the namespace has no scalable topic, and no broker acts for any of its bundles",
    _unused,
    Verdict.NAMESPACE_BUSY,
)

TENANTS: Final = policy_machine(create=(_TENANT_NAMED,), delete=(_TENANT_EMPTY,))
NAMESPACES: Final = policy_machine(
    create=(_COUNTABLE, _ROOM),
    update=(_OVERRIDES_FORMED, _GROUP_NAMED, _LIMITS_FORMED),
    delete=(_UNUSED,),
)


def evolve_tenant(
    state: StateReader, record: TenantChange, offset: int, timestamp_ms: int
) -> Outcome:
    """Judges one change of one tenant."""

    def made(version: int) -> Tenant:
        roles, clusters = record.admin_roles, record.allowed_clusters
        return Tenant(version, roles, clusters, timestamp_ms, record.proposal_id)

    before = state.tenant(record.tenant)
    return evolved(TENANTS, state, before, record, offset, Verdict.UNKNOWN_TENANT, made)


def evolve_namespace(
    state: StateReader, record: NamespaceChange, offset: int, timestamp_ms: int
) -> Outcome:
    """Judges one change of one namespace; its bundles come and go with it."""
    before = state.namespace(record.namespace)
    home = Namespace(record.namespace)
    if state.tenant(tenant_of(home)) is None:
        return REJECTED[Verdict.UNKNOWN_TENANT]
    end = end_of_change(NAMESPACES.table, state, before, record, Verdict.UNKNOWN_NAMESPACE)
    if isinstance(end, Verdict):
        return REJECTED[end]
    if end is Existence.ABSENT:
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
