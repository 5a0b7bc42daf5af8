"""The machine of archives, as a table, and how records change them.

A verdict needs no other state: the guards are asked of an empty one.
"""

from __future__ import annotations

from typing import Final

from anabranch.core.entities.archive import Archive, ArchiveOp, is_archive_id, is_archive_place
from anabranch.core.log.conflicts import evolved
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import ArchiveChange
from anabranch.core.log.state import FoldedState
from anabranch.core.log.state_machine import (
    Arrow,
    Existence,
    Guard,
    StateMachine,
    keeps_nothing,
)
from anabranch.core.log.verdicts import Verdict

ArchiveGuard = Guard[Archive | None, ArchiveChange]

_FORMED: Final = ArchiveGuard(
    "the archive's id is one, it begins at an offset, and a fair length tells where it is",
    lambda s, e, r: is_archive_id(r.archive) and is_archive_place(r.first_offset, r.place),
    Verdict.INVALID_VALUE,
)
_E, _O = Existence, ArchiveOp
_NOTHING: Final = FoldedState()

ARCHIVES: Final = StateMachine(
    (
        Arrow(_O.REGISTER, (_E.ABSENT,), _E.PRESENT, (_FORMED,)),
        Arrow(_O.RETIRE, (_E.PRESENT,), _E.ABSENT, ()),
    ),
    Existence,
    keeps_nothing(_O.RETIRE),
)


def evolve_archive(
    before: Archive | None, record: ArchiveChange, offset: int, timestamp_ms: int
) -> Outcome:
    """Judges a record; `before`: the archive of its id, if one is registered."""

    def made(version: int) -> Archive:
        return Archive(version, record.first_offset, record.place, timestamp_ms, record.proposal_id)

    found = evolved(ARCHIVES, _NOTHING, before, record, offset, Verdict.UNKNOWN_ARCHIVE, made)
    is_late = record.first_offset > offset  # no guard knows the record's place in the log
    return REJECTED[Verdict.INVALID_VALUE] if found.changes and is_late else found
