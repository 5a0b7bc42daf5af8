"""The report's three forms, from one summary."""

from __future__ import annotations

import json
import re

import pytest

from anabranch.spark_replay.report.html import page
from anabranch.spark_replay.report.summary import Log, Summary, summarized
from anabranch.spark_replay.report.table import table
from anabranch.spark_replay.tally import CheckName
from support.history import BROKERS, START_MS, History, mixed
from support.local_audit import audited


def _summary(history: History) -> Summary:
    snapshot = history.snapshot()
    log = Log(
        topic="anabranch.wal",
        first_offset=0,
        next_offset=history.next_offset,
        archived_until=-1,
        wal_from=0,
        from_snapshot=False,
        first_ms=START_MS,
        last_ms=history.now_ms,
        horizon=snapshot.horizon.next_offset,
        heartbeats=len(history.beats),
    )
    return summarized(log, audited(history, snapshot=snapshot), 1_000, 1.0)


@pytest.fixture
def violated() -> Summary:
    history = mixed(rounds=2)
    history.beat(BROKERS[1], digest="f" * 32)
    return _summary(history)


def test_a_sound_log_is_called_sound_in_every_form() -> None:
    summary = _summary(mixed(rounds=2))
    assert "The log is sound." in table(summary)
    assert "The log is sound" in page(summary)
    assert json.loads(summary.json())["sound"] is True


def test_every_check_and_every_witness_is_in_every_form(violated: Summary) -> None:
    digests = next(check for check in violated.checks if check.name is CheckName.DIGESTS)
    (witness,) = digests.witnesses
    for text in (table(violated), page(violated), violated.json()):
        assert all(name.value in text for name in CheckName)
        assert witness.text in text
    assert "NOT sound" in table(violated)


def test_the_page_needs_nothing_but_itself(violated: Summary) -> None:
    text = page(violated)
    assert not re.search(r"(src|href)=|https?:|<script|@import|url\(", text)
    assert text.count("<svg") == text.count("</svg>") >= 5


def test_the_page_shows_names_as_text_only() -> None:
    history = mixed()
    history.garbage(key=b"<script>alert(1)</script>", value=b"\x00")
    history.beat(BROKERS[1], digest="<b>false</b>")
    text = page(_summary(history))
    assert "<script" not in text
    assert "<b>false" not in text


def test_the_json_counts_each_record_once_by_minute_and_by_type(violated: Summary) -> None:
    found = json.loads(violated.json())
    minutes = found["per_minute"].values()
    assert sum(sum(minute.values()) for minute in minutes) == found["records"]
    assert sum(found["by_type"].values()) == found["records"]
    assert found["accepted"] + sum(found["rejected"].values()) == found["records"]
    assert "figures" not in found


def test_an_empty_log_has_a_report() -> None:
    history = History()
    summary = _summary(history)
    assert "anabranch.wal, empty" in table(summary)
    assert "<svg" not in page(summary)
