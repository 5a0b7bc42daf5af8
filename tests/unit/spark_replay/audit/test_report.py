"""The report's three forms, from one summary."""

from __future__ import annotations

import doctest
import json
import re

import pytest

from anabranch.spark_replay import report
from anabranch.spark_replay.audit.report import Log, Summary, page, summarized, table
from anabranch.spark_replay.audit.tally import CheckName
from anabranch.spark_replay.report import PALETTE, few
from support.history import BROKERS, START_MS, History, mixed
from support.local_audit import audited
from support.topic_history import topical


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
    assert "The log is sound." in page(summary)
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
    assert text.count("<svg") == text.count("</svg>") == 2


def test_the_page_shows_names_as_text_only() -> None:
    history = mixed()
    history.garbage(key=b"<script>alert(1)</script>", value=b"\x00")
    history.beat(BROKERS[1], digest="<b>false</b>")
    text = page(_summary(history))
    assert "<script" not in text
    assert "<b>false" not in text


def test_the_json_counts_each_record_once(violated: Summary) -> None:
    found = json.loads(violated.json())
    assert found["accepted"] + sum(found["rejected"].values()) == found["records"]
    assert "figures" not in found


def test_an_empty_log_has_a_report() -> None:
    summary = _summary(History())
    assert "anabranch.wal, empty" in table(summary)
    assert "<svg" not in page(summary)


def test_the_end_of_a_silent_brokers_session_is_marked() -> None:
    history = mixed(rounds=2)
    told = f"the session of {BROKERS[1]} was ended"
    without = page(_summary(history)).count(told)
    history.fail(BROKERS[1], BROKERS[0])
    assert page(_summary(history)).count(told) == without + 1


def test_figures_do_not_depend_on_how_the_replay_is_divided() -> None:
    history = topical()
    history.fail(BROKERS[1], BROKERS[0])
    assert audited(history, parts=1).figures == audited(history, parts=4).figures


def test_no_plot_has_more_colours_than_can_be_told_apart() -> None:
    shown = few({f"b{number}": [float(number), 1.0] for number in range(30)})
    assert list(shown) == [f"b{n}" for n in range(30 - len(PALETTE), 30)] + ["23 others"]
    assert [sum(column) for column in zip(*shown.values(), strict=True)] == [435.0, 30.0]


def test_the_plots_examples_hold() -> None:
    assert doctest.testmod(report).failed == 0
