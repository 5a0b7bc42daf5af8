"""The machine of placement policies, as a table; docs/state-machine.md explains it."""

from __future__ import annotations

from typing import Final

from anabranch.core.entities.placement_policy import (
    PlacementPolicy,
    PolicyKind,
    check_domain,
    check_isolation,
    check_name,
)
from anabranch.core.log.conflicts import evolved, policy_machine
from anabranch.core.log.outcome import Outcome
from anabranch.core.log.records import PlacementPolicyChange
from anabranch.core.log.state import StateReader
from anabranch.core.log.state_machine import Guard
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import is_valid

PlacementGuard = Guard[PlacementPolicy | None, PlacementPolicyChange]


def is_well_formed(record: PlacementPolicyChange) -> bool:
    """Tells whether the record has valid fields for a policy of its kind, and no others."""
    isolation = (record.namespaces, record.primary, record.secondary)
    limits = (record.min_limit, record.usage_threshold)
    if not is_valid(check_name, record.name):
        return False
    if record.kind is PolicyKind.ISOLATION:
        return not record.brokers and is_valid(check_isolation, *isolation, *limits)
    return not any(isolation) and not any(limits) and is_valid(check_domain, record.brokers)


def domain_with(state: StateReader, name: str, brokers: tuple[str, ...]) -> tuple[str, str]:
    """A failure domain of another name that has one of the brokers, and that broker; or "", ""."""
    wanted = set(brokers)
    for other, domain in state.placements(PolicyKind.DOMAIN):
        shared = wanted.intersection(domain.brokers) if other != name else ()
        if shared:
            return other, min(shared)
    return "", ""


_WELL_FORMED: Final = PlacementGuard(
    "the policy's name is one, and it says what one of its kind can",
    lambda s, e, r: is_well_formed(r),
    Verdict.INVALID_VALUE,
)
_DOMAINS_APART: Final = PlacementGuard(
    "no other failure domain has one of its brokers",
    lambda s, e, r: (
        r.kind is not PolicyKind.DOMAIN or domain_with(s, r.name, r.brokers) == ("", "")
    ),
    Verdict.BROKER_IN_DOMAIN,
)
_CHANGE: Final = (_WELL_FORMED, _DOMAINS_APART)

PLACEMENTS: Final = policy_machine(create=_CHANGE, update=_CHANGE)


def evolve_placement(
    state: StateReader, record: PlacementPolicyChange, offset: int, timestamp_ms: int
) -> Outcome:
    """Judges one change of one placement policy."""

    def made(version: int) -> PlacementPolicy:
        return PlacementPolicy(
            version=version,
            kind=record.kind,
            namespaces=record.namespaces,
            primary=record.primary,
            secondary=record.secondary,
            min_limit=record.min_limit,
            usage_threshold=record.usage_threshold,
            brokers=record.brokers,
            since_ms=timestamp_ms,
            proposal_id=record.proposal_id,
        )

    before = state.placement(record.kind, record.name)
    return evolved(PLACEMENTS, state, before, record, offset, Verdict.UNKNOWN_POLICY, made)
