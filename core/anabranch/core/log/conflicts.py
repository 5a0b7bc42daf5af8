"""The rule by which one of several records for an entity wins (PIP-192, "Conflict State
Resolution").

First valid wins. Each record proposes the entity's next version. The first valid record in the log
takes that version. A later proposer of the same version reads that its record came too late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final, Protocol

from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import PolicyOp
from anabranch.core.log.state import Entity, StateReader
from anabranch.core.log.state_machine import (
    Arrow,
    Case,
    Existence,
    Guard,
    StateMachine,
    keeps_nothing,
)
from anabranch.core.log.verdicts import Verdict

# An enum's member is looked up by a function before Python 3.12.
_ABSENT: Final = Existence.ABSENT
_PRESENT: Final = Existence.PRESENT


def wrong_version(current: int, proposed: int, repeated: bool) -> Verdict | None:
    """Says why a proposal comes too late or too early; None for a new one of the next version."""
    if proposed == current + 1 and not repeated:
        return None
    return unfit_version(current, proposed, repeated)


def unfit_version(current: int, proposed: int, repeated: bool) -> Verdict:
    """Says why a proposal whose version is known not to fit comes too late or too early."""
    if repeated:
        return Verdict.REPEATED
    return Verdict.STALE_VERSION if proposed <= current else Verdict.VERSION_GAP


def may_propose(state: StateReader, actor: str, session: int) -> bool:
    """Tells whether the actor's session is open and has the number that the record names."""
    own = state.session(actor)
    return own is not None and own.open and own.version == session


IN_SESSION: Final = Guard[Any, Any](
    "the actor's session is open, and the one that the record names",
    lambda s, e, r: may_propose(s, r.actor, r.session),
    Verdict.SESSION_OVER,
)


def first_version(offset: int) -> int:
    """Returns the version that a new entity begins with: its place in the log. This version is
    above every version of an earlier entity of the same name. So no late proposal for the earlier
    one fits the new one.

    A CREATE proposes version 1, whatever was there before, because a deleted entity leaves no trace
    to compare with. A CREATE that arrives again after a deletion thus creates again, while its
    session lasts.
    """
    return offset + 1


class Versioned(Protocol):
    """The log's entry for any entity: its version, and the proposal that made it."""

    @property
    def version(self) -> int: ...
    @property
    def proposal_id(self) -> str: ...


class Creation(Versioned, Protocol):
    """A record that creates, changes or deletes something that is there or not."""

    @property
    def key(self) -> str: ...
    @property
    def op(self) -> IntEnum: ...


def end_of_change(
    cases: Mapping[tuple[int, int], Case[Any, Existence]],
    state: StateReader,
    before: Versioned | None,
    record: Creation,
    unknown: Verdict,
) -> Existence | Verdict:
    """Returns where a change leads, or why it is refused.

    `unknown`: the reason where nothing of the name is there.
    """
    if before is not None and before.proposal_id == record.proposal_id:
        return Verdict.REPEATED
    case = cases.get((_ABSENT if before is None else _PRESENT, record.op))
    if case is None:
        return unknown if before is None else Verdict.STALE_VERSION
    wrong = wrong_version(before.version if before else 0, record.version, repeated=False)
    return wrong or case.refusal(state, before, record) or case.end


Guards = tuple[Guard[Any, Any], ...]


def policy_machine(
    create: Guards = (), update: Guards = (), delete: Guards = ()
) -> StateMachine[Arrow, Existence]:
    """The machine of an entity that brokers create, change and delete, by the guards of each."""
    present = (_PRESENT,)
    return StateMachine(
        (
            Arrow(PolicyOp.CREATE, (_ABSENT,), _PRESENT, (IN_SESSION, *create)),
            Arrow(PolicyOp.UPDATE, present, _PRESENT, (IN_SESSION, *update)),
            Arrow(PolicyOp.DELETE, present, _ABSENT, (IN_SESSION, *delete)),
        ),
        Existence,
        keeps_nothing(PolicyOp.DELETE),
    )


def evolved(
    machine: StateMachine[Arrow, Existence],
    state: StateReader,
    before: Versioned | None,
    record: Creation,
    offset: int,
    unknown: Verdict,
    made: Callable[[int], Entity],
) -> Outcome:
    """Judges a record that creates, changes or deletes one entity; `made`: the entity of a
    version.
    """
    end = end_of_change(machine.table, state, before, record, unknown)
    if isinstance(end, Verdict):
        return REJECTED[end]
    if end is _ABSENT:
        return Outcome(Verdict.ACCEPTED, ((record.key, None),))
    after = made(first_version(offset) if before is None else record.version)
    return Outcome(Verdict.ACCEPTED, ((record.key, after),))
