"""The log in memory keeps the promises of the real one."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError

from anabranch.channel import errors
from anabranch.channel.codec import encode_record
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.log.entries import Entry, append_record, read_until
from anabranch.channel.log.kafka_log import KafkaLogReader, check_holds
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
    assert (entry.key, entry.schema) == (b"tenant:acme", b"tenant-change/1")
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


# --- how far a reader of the log says it has read, whatever Kafka's client hands over together ----


class HandsOver(KafkaConnection, frozen=True):
    """A connection whose consumer hands over these messages in one go."""

    messages: tuple[Any, ...] = ()

    def consumer(self, **_: Any) -> Consumer:
        given = SimpleNamespace(
            get_watermark_offsets=lambda *_: (0, 100),
            assign=lambda _: None,
            poll=lambda _: self.messages[0],
            consume=lambda *_: list(self.messages[1:]),
            close=lambda: None,
        )
        return cast(Consumer, given)


def record(offset: int) -> Any:
    return SimpleNamespace(
        error=lambda: None,
        offset=lambda: offset,
        value=lambda: None,
        key=lambda: b"k",
        headers=lambda: None,
        timestamp=lambda: (2, 7),
    )


def said(code: int, offset: int = -1) -> Any:
    return SimpleNamespace(error=lambda: KafkaError(code), offset=lambda: offset)


def test_an_error_behind_the_end_of_the_log_does_not_take_the_reader_back() -> None:
    end, passing = KafkaError._PARTITION_EOF, KafkaError._TRANSPORT
    messages = (record(4), said(end, 9), said(passing))  # 5 to 8: marks of transactions
    reader = KafkaLogReader(HandsOver("nowhere:1", messages=messages), "wal", 4, to_end=True)
    assert ([entry.offset for entry in reader.poll(10, 0.0)], reader.next_offset) == ([4], 9)
    reader.close()
