"""How records change archives: what is answered needs no other state."""

from __future__ import annotations

from anabranch.core.archives.archive import Archive, ArchiveOp, is_archive_id, is_archive_place
from anabranch.core.log.conflicts import first_version, wrong_version
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import ArchiveChange
from anabranch.core.log.verdicts import Verdict


def evolve_archive(
    before: Archive | None, record: ArchiveChange, offset: int, timestamp_ms: int
) -> Outcome:
    """Judges a record; `before`: the archive of its id, if one is registered."""
    repeated = before is not None and before.proposal_id == record.proposal_id
    if before is None and record.op is ArchiveOp.RETIRE:
        return REJECTED[Verdict.UNKNOWN_ARCHIVE]
    if before is not None and record.op is ArchiveOp.REGISTER:
        return REJECTED[Verdict.REPEATED if repeated else Verdict.STALE_VERSION]
    wrong = wrong_version(before.version if before else 0, record.version, repeated)
    if wrong is not None:
        return REJECTED[wrong]
    if record.op is ArchiveOp.RETIRE:
        return Outcome(Verdict.ACCEPTED, ((record.key, None),))
    fits = is_archive_place(record.first_offset, record.place, offset)
    if not fits or not is_archive_id(record.archive):
        return REJECTED[Verdict.INVALID_VALUE]
    after = Archive(
        first_version(offset), record.first_offset, record.place, timestamp_ms, record.proposal_id
    )
    return Outcome(Verdict.ACCEPTED, ((record.key, after),))
