"""Archives are registered and retired by records whose verdicts need nothing but the archive."""

from __future__ import annotations

import pytest

from anabranch.core.entities.archive import Archive, ArchiveOp
from anabranch.core.fold.evolve import evolve
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.records import ArchiveChange
from anabranch.core.log.verdicts import Verdict

ID = "river-1"


def registers(
    proposal: str = "p", archive: str = ID, version: int = 1, first_offset: int = 0, place: str = ""
) -> ArchiveChange:
    return ArchiveChange(proposal, archive, ArchiveOp.REGISTER, version, "me", first_offset, place)


def retires(version: int, proposal: str = "q", archive: str = ID) -> ArchiveChange:
    return ArchiveChange(proposal, archive, ArchiveOp.RETIRE, version, "me")


def read(replica: MemoryReplica, record: ArchiveChange, offset: int) -> Verdict:
    return replica.read(record, offset, 1_000 + offset).outcome.verdict


def test_an_archive_is_registered_before_there_is_a_cluster_and_retired_by_its_version() -> None:
    replica = MemoryReplica()
    assert read(replica, registers(first_offset=5, place="h:/a"), 7) is Verdict.ACCEPTED
    assert dict(replica.archives()) == {ID: Archive(8, 5, "h:/a", 1_007, "p")}
    assert read(replica, registers(), 8) is Verdict.REPEATED
    assert read(replica, registers("other"), 9) is Verdict.STALE_VERSION
    assert read(replica, retires(8), 10) is Verdict.STALE_VERSION
    assert read(replica, retires(10), 11) is Verdict.VERSION_GAP
    assert read(replica, retires(9), 12) is Verdict.ACCEPTED
    assert dict(replica.archives()) == {}
    assert read(replica, retires(9), 13) is Verdict.UNKNOWN_ARCHIVE


def test_archives_stand_beside_one_another() -> None:
    replica = MemoryReplica()
    for offset, name in enumerate(("b", "a", "c")):
        assert read(replica, registers("p", name), offset) is Verdict.ACCEPTED
    assert [name for name, _ in replica.archives()] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "record",
    [
        registers(archive=""),
        registers(archive="a/b"),
        registers(archive="a" * 101),
        registers(archive="\u00e4"),
        registers(first_offset=-1),
        registers(first_offset=8),
        registers(place="x" * 1_001),
    ],
)
def test_what_no_archive_can_be_is_refused(record: ArchiveChange) -> None:
    assert evolve(MemoryReplica(), record, 7, 0).verdict is Verdict.INVALID_VALUE


def test_a_version_that_does_not_begin_is_refused() -> None:
    assert evolve(MemoryReplica(), registers(version=2), 7, 0).verdict is Verdict.VERSION_GAP
