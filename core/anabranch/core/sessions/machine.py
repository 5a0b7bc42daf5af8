"""The machine of a broker's session, as a table; docs/state-machine.md explains it."""

from __future__ import annotations

from typing import Final

from anabranch.core.entities.session import Session, SessionState
from anabranch.core.log.conflicts import IN_SESSION, wrong_version
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import SessionChange, SessionOp
from anabranch.core.log.state import StateReader, leader_of, leads
from anabranch.core.log.state_machine import Arrow, Guard, StateMachine
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import broker_id, is_valid

SessionGuard = Guard[Session | None, SessionChange]


def _may_expire(state: StateReader, session: Session | None, record: SessionChange) -> bool:
    fallen_leader = leader_of(state)[0] == record.broker != record.actor
    return fallen_leader or leads(state, record.actor, record.epoch)


_OWN: Final = SessionGuard(
    "the session is the actor's own", lambda s, e, r: r.actor == r.broker, Verdict.NOT_OWNER
)
_BROKER_NAMED: Final = SessionGuard(
    "the broker's id is one", lambda s, e, r: is_valid(broker_id, r.broker), Verdict.INVALID_VALUE
)
_MAY_EXPIRE: Final = SessionGuard(
    "the actor is the leader, in its epoch, or the session is that of a fallen leader",
    _may_expire,
    Verdict.NOT_LEADER,
)
_S, _O = SessionState, SessionOp

SESSIONS: Final = StateMachine(
    (
        Arrow(_O.OPEN, (_S.NONE, _S.OPEN, _S.OVER), _S.OPEN, (_OWN, _BROKER_NAMED)),
        Arrow(_O.CLOSE, (_S.OPEN,), _S.OVER, (IN_SESSION, _OWN)),
        Arrow(_O.EXPIRE, (_S.OPEN,), _S.OVER, (IN_SESSION, _MAY_EXPIRE)),
    ),
    SessionState,
    fits=lambda move, end: end is not _S.NONE,  # a session that is over is kept
)


# --- the changes by records ------------------------------------------------------------------


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
