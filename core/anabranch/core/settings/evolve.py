"""The changes of overrides of settings by records."""

from __future__ import annotations

from anabranch.core.log.conflicts import first_version, refusal_of_change
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import PolicyOp, SettingChange
from anabranch.core.log.state import StateReader
from anabranch.core.log.verdicts import Verdict
from anabranch.core.settings.machine import OVERRIDES
from anabranch.core.settings.override import SettingOverride


def evolve_override(
    state: StateReader, record: SettingChange, offset: int, timestamp_ms: int
) -> Outcome:
    """Judges one change of one setting's override."""
    before = state.override(record.name)
    wrong = refusal_of_change(OVERRIDES.table, state, before, record, Verdict.UNKNOWN_OVERRIDE)
    if wrong is not None:
        return REJECTED[wrong]
    if record.op is PolicyOp.DELETE:
        return Outcome(Verdict.ACCEPTED, ((record.key, None),))
    after = SettingOverride(
        version=record.version if before else first_version(offset),
        value=record.value,
        before=(before.value,) if before else (),
        broker=record.actor,
        since_ms=timestamp_ms,
        proposal_id=record.proposal_id,
    )
    return Outcome(Verdict.ACCEPTED, ((record.key, after),))
