"""The machine of placement policies, as a table; docs/state-machine.md explains it."""

from __future__ import annotations

from typing import Final

from anabranch.core.entities.placement_policy import (
    PlacementPolicy,
    PolicyKind,
    check_domain,
    check_isolation,
    check_name,
    passes,
)
from anabranch.core.log.conflicts import end_of_change, first_version
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import PlacementPolicyChange, PolicyOp
from anabranch.core.log.state import StateReader
from anabranch.core.log.state_machine import (
    Arrow,
    Existence,
    Guard,
    StateMachine,
    keeps_nothing,
)
from anabranch.core.log.verdicts import Verdict
from anabranch.core.sessions.machine import IN_SESSION

PlacementGuard = Guard[PlacementPolicy | None, PlacementPolicyChange]


def is_well_formed(record: PlacementPolicyChange) -> bool:
    """Tells whether the record has valid fields for a policy of its kind, and no others."""
    isolation = (record.namespaces, record.primary, record.secondary)
    limits = (record.min_limit, record.usage_threshold)
    if not passes(check_name, record.name):
        return False
    if record.kind is PolicyKind.ISOLATION:
        return not record.brokers and passes(check_isolation, *isolation, *limits)
    return not any(isolation) and not any(limits) and passes(check_domain, record.brokers)


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
_E, _O = Existence, PolicyOp
_CHANGE = (IN_SESSION, _WELL_FORMED, _DOMAINS_APART)

PLACEMENTS: Final = StateMachine(
    (
        Arrow(_O.CREATE, (_E.ABSENT,), _E.PRESENT, _CHANGE),
        Arrow(_O.UPDATE, (_E.PRESENT,), _E.PRESENT, _CHANGE),
        Arrow(_O.DELETE, (_E.PRESENT,), _E.ABSENT, (IN_SESSION,)),
    ),
    Existence,
    keeps_nothing(_O.DELETE),
)


# --- the changes by records ------------------------------------------------------------------


def evolve_placement(
    state: StateReader, record: PlacementPolicyChange, offset: int, timestamp_ms: int
) -> Outcome:
    """Judges one change of one placement policy."""
    before = state.placement(record.kind, record.name)
    end = end_of_change(PLACEMENTS.table, state, before, record, Verdict.UNKNOWN_POLICY)
    if isinstance(end, Verdict):
        return REJECTED[end]
    if end is Existence.ABSENT:
        return Outcome(Verdict.ACCEPTED, ((record.key, None),))
    after = PlacementPolicy(
        version=record.version if before else first_version(offset),
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
    return Outcome(Verdict.ACCEPTED, ((record.key, after),))
