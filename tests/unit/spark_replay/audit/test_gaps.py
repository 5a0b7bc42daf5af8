"""An audit over a gap says what is missing, judges both sides, and accuses no innocents."""

from __future__ import annotations

import msgspec

from anabranch.spark_replay.audit.tally import CheckName
from anabranch.spark_replay.audit.verdict import AuditFindings, CheckResult, joined
from anabranch.spark_replay.report.summary import Log, gap_in_words
from support.history import BROKERS, History, mixed
from support.local_audit import audited


def violated(findings: AuditFindings) -> list[CheckName]:
    return [check.name for check in findings.checks if check.result is CheckResult.VIOLATED]


def both_sides(history: History, false: str = "") -> tuple[AuditFindings, int, int]:
    """The findings on both sides of a fail-over that nobody has kept, and where that lies."""
    if false:
        history.beat(BROKERS[0], digest=false)
    before = audited(history, to_end=False)
    gap_from = history.next_offset
    history.fail(BROKERS[1], BROKERS[0])
    taken = history.snapshot()
    judged_from = history.next_offset
    history.tenant("later")
    history.beat(BROKERS[0])
    after = audited(history, snapshot=taken, without_before=judged_from)
    return joined(before, after, gap_from, judged_from), gap_from, judged_from


def test_a_gap_accuses_nobody_and_both_sides_are_counted() -> None:
    history = mixed()
    findings, gap_from, judged_from = both_sides(history)
    assert violated(findings) == []
    assert findings.records == history.next_offset - (judged_from - gap_from)
    assert findings.final_digest == f"{history.state.digest:032x}"
    notes = {check.name: check.note for check in findings.checks}
    limited = f"not between offsets {gap_from} and {judged_from - 1}: a gap"
    assert notes[CheckName.OFFSETS] == notes[CheckName.LEASES] == limited
    assert notes[CheckName.SNAPSHOT] == "its digest only: the replay starts from it"


def test_what_is_wrong_before_the_gap_is_found() -> None:
    findings, gap_from, _ = both_sides(mixed(), false="f" * 32)
    assert violated(findings) == [CheckName.DIGESTS]
    (check,) = (check for check in findings.checks if check.name is CheckName.DIGESTS)
    assert check.witnesses[0].offset == gap_from


def test_nothing_is_said_of_the_end_where_the_log_goes_on() -> None:
    history = mixed()
    history.wait(10_000_000)
    history.beat(BROKERS[0])
    of_the_end = {CheckName.STUCK, CheckName.ORPHANS, CheckName.SEGMENTS}
    found = {check.name: check.examined for check in audited(history, to_end=False).checks}
    assert {name for name in of_the_end if found[name]} == set()


def test_the_gap_is_told_in_words() -> None:
    log = Log("wal", 0, 90, 70, 78, True, 0, 0, 80, 3, gap=(70, 78))
    assert gap_in_words(log) == (
        "There is a gap from offset 70 to 77: neither archive nor WAL holds it. Judged is what "
        "lies before it and what follows the snapshot at offset 80."
    )
    later = msgspec.structs.replace(log, first_offset=80)
    assert gap_in_words(later).endswith("Judged is what follows the snapshot at offset 80.")
    early = msgspec.structs.replace(log, from_snapshot=False, horizon=-1)
    assert gap_in_words(early).endswith("Judged is what lies before it.")
    assert gap_in_words(msgspec.structs.replace(log, gap=None)) == ""
