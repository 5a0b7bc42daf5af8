"""The log in memory keeps the promises of the real one."""

from __future__ import annotations

from itertools import count

import pytest

from anabranch.channel import errors
from anabranch.channel.codec import encode_record
from anabranch.channel.log.entries import Entry, append_record, read_until
from anabranch.channel.log.kafka_log import check_holds
from anabranch.core.log.records import PolicyOp, TenantChange
from support.memory_log import MemoryLog

RECORD = TenantChange("id", "acme", PolicyOp.CREATE, 1, "b1:80", 1)


def _log(*stamps: int) -> MemoryLog:
    clock = iter(stamps or count(1))
    return MemoryLog(lambda: next(clock))


def test_an_append_is_answered_and_read_back_with_place_and_time() -> None:
    log = _log(50)
    answers: list[errors.AppendError | None] = []
    append_record(log, RECORD, answers.append)

    (entry,) = log.reader().poll(10)

    assert answers == [None]
    assert (entry.offset, entry.timestamp_ms) == (0, 50)
    assert (entry.key, entry.schema) == (b"tenant:acme", b"tenant-change/3")
    assert entry.record() == RECORD


def test_a_reader_before_the_first_entry_that_is_left_is_told_so() -> None:
    log = _log()
    for _ in range(5):
        log.append_raw(b"k", b"v", None)
    log.trim(3)
    log.trim(1)
    assert (log.first_offset, log.end_offset) == (3, 5)
    with pytest.raises(errors.LogTrimmedError) as caught:
        log.reader(2).poll(1)
    assert (caught.value.next_offset, caught.value.first_offset) == (2, 3)
    assert [entry.offset for entry in log.reader(3).poll(9)] == [3, 4]


def test_a_newer_schema_names_the_offset_at_which_the_reader_stops() -> None:
    entry = Entry(17, 0, b"k", b"\xc3\x01" + b"\x07" * 8, b"unit-move/5")
    with pytest.raises(errors.NewerSchemaError, match=r"offset 17.*'unit-move/5'.*upgrade"):
        entry.record()


def test_an_entry_whose_key_is_not_its_records_is_unreadable() -> None:
    assert Entry(0, 0, b"tenant:other", encode_record(RECORD)).record() is None


@pytest.mark.parametrize(("first", "end"), [(0, 10), (5, 5), (5, 10), (0, 5)])
def test_a_view_inside_the_log_goes_on(first: int, end: int) -> None:
    check_holds("wal", 5, first, end)


def test_a_view_behind_the_log_must_be_rebuilt_and_one_ahead_of_it_stops() -> None:
    with pytest.raises(errors.LogTrimmedError, match="snapshot"):
        check_holds("wal", 5, 6, 10)
    with pytest.raises(errors.LogLostError, match=r"wal ends at offset 4, .* up to 5.*topicPrefix"):
        check_holds("wal", 5, 0, 4)


def test_a_log_is_read_up_to_where_it_ended_or_is_out_of_reach() -> None:
    log = _log()
    for _ in range(25_000):
        log.append_raw(b"k", b"v", None)

    def away() -> errors.KafkaUnreachableError:
        return errors.KafkaUnreachableError("away")

    assert sum(len(some) for some in read_until(log.reader(3), 25_000, away)) == 24_997
    assert list(read_until(log.reader(3), 3, away)) == []
    seconds = count()
    reading = read_until(log.reader(24_990), 25_001, away, lambda: next(seconds))
    assert len(next(reading)) == 10
    with pytest.raises(errors.KafkaUnreachableError, match="away"):
        list(reading)  # it ends before
