"""What the fold answers, and the questions that the rules for every kind of record ask."""

from __future__ import annotations

from typing import Final

import msgspec

from anabranch.core.log.records import Record
from anabranch.core.log.state import Change, StateReader
from anabranch.core.log.verdicts import Verdict


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """A verdict and, if it is ACCEPTED, everything that changes with it."""

    verdict: Verdict
    changes: tuple[Change, ...] = ()


class Folded(msgspec.Struct, frozen=True, gc=False):
    """One log entry after it was read: its place, its record (None: unreadable) and the answer."""

    offset: int
    timestamp_ms: int
    record: Record | None
    outcome: Outcome


REJECTED: Final = {verdict: Outcome(verdict) for verdict in Verdict}


def wrong_version(current: int, proposed: int, repeated: bool) -> Verdict | None:
    """Why a proposal comes too late or too early; None for a new one of the next version."""
    if proposed == current + 1 and not repeated:
        return None
    return unfit_version(current, proposed, repeated)


def unfit_version(current: int, proposed: int, repeated: bool) -> Verdict:
    """The same of one that is known not to fit."""
    if repeated:
        return Verdict.REPEATED
    return Verdict.STALE_VERSION if proposed <= current else Verdict.VERSION_GAP


def may_propose(state: StateReader, actor: str, session: int) -> bool:
    """Whether the actor's session is open and the one it names."""
    own = state.session(actor)
    return own is not None and own.open and own.version == session


def first_version(offset: int) -> int:
    """Of a unit, tenant, namespace, topic or subscription: its place in the log, so that it is
    above that of any earlier one of this name. No late proposal to move, change or delete that one
    fits this one.

    A CREATE proposes version 1, whatever was there before: what is gone leaves no trace to compare
    with. One that is delivered again after a deletion thus creates again, while its session lasts.
    """
    return offset + 1
