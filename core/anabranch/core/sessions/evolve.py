"""The changes of sessions by records."""

from __future__ import annotations

from anabranch.core.entities.session import Session, SessionState
from anabranch.core.log.conflicts import wrong_version
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import SessionChange
from anabranch.core.log.state import StateReader
from anabranch.core.log.verdicts import Verdict
from anabranch.core.sessions.machine import SESSIONS


def evolve_session(
    state: StateReader, record: SessionChange, offset: int, timestamp_ms: int
) -> Outcome:
    """Judges the beginning or the end of a session."""
    before = state.session(record.broker)
    repeated = before is not None and before.proposal_id == record.proposal_id
    wrong = wrong_version(before.version if before else 0, record.version, repeated)
    if wrong is not None:
        return REJECTED[wrong]
    case = SESSIONS.table.get((before.state if before else SessionState.NONE, record.op))
    if case is None:
        return REJECTED[Verdict.ILLEGAL_MOVE]
    wrong = case.refusal(state, before, record)
    if wrong is not None:
        return REJECTED[wrong]
    after = Session(
        version=record.version,
        open=case.end is SessionState.OPEN,
        since_ms=timestamp_ms,
        since_offset=offset,
        proposal_id=record.proposal_id,
        authorizes=record.authorizes,
        superusers=record.superusers,
    )
    return Outcome(Verdict.ACCEPTED, ((record.key, after),))
