"""How often what repeats itself is logged."""

from __future__ import annotations

import logging

from anabranch.core.log_rate_limit import LibrdkafkaLogFilter, LogRateLimit


def test_each_kind_passes_once_in_a_while_with_how_often_it_happened_since() -> None:
    limit = LogRateLimit(10.0)
    assert [limit.due("a", 50.0) for _ in range(3)] == [1, 0, 0]
    assert limit.due("b", 50.0) == 1
    assert [limit.due("a", 60.0) for _ in range(2)] == [3, 0]


def passes(lines: LibrdkafkaLogFilter, text: str, at: float) -> bool:
    record = logging.LogRecord("kafka", logging.WARNING, "", 0, "%s", (text,), None)
    record.created = at
    return lines.filter(record)


def test_a_line_passes_once_in_a_while_whatever_its_numbers() -> None:
    lines = LibrdkafkaLogFilter()
    assert passes(lines, "FAIL [producer-1] host:9092 after 3ms", 1_000.0)
    assert not passes(lines, "FAIL [producer-2] host:9093 after 17ms", 1_029.0)
    again = "FAIL [producer-1] host:9092 after 3ms, 5 identical error(s) suppressed"
    assert not passes(lines, again, 1_029.5)
    assert passes(lines, "FAIL [consumer-1] host:9092 after 3ms", 1_029.5), "another line"
    assert passes(lines, again, 1_030.0)
    assert not passes(lines, again, 1_031.0)


def test_only_so_many_lines_are_remembered() -> None:
    lines = LibrdkafkaLogFilter()
    for place in range(1_000):
        assert passes(lines, chr(0x4E00 + place), 1_000.0)
    assert not passes(lines, chr(0x4E00), 1_001.0)
    assert passes(lines, "one too many", 1_001.0)
    assert passes(lines, chr(0x4E00), 1_002.0), "it is forgotten"
