"""The changes of placement policies by records."""

from __future__ import annotations

from anabranch.core.entities.placement_policy import PlacementPolicy
from anabranch.core.log.conflicts import end_of_change, first_version
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import PlacementPolicyChange
from anabranch.core.log.state import StateReader
from anabranch.core.log.state_machine import Existence
from anabranch.core.log.verdicts import Verdict
from anabranch.core.policies.machine import PLACEMENTS


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
