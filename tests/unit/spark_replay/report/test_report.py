"""The report's three forms, from one summary."""

from __future__ import annotations

import doctest
import json
import re

import msgspec
import pytest

from anabranch.core.entities.topic import ScalableTopic
from anabranch.spark_replay.audit.page import page
from anabranch.spark_replay.audit.summary import Log, Summary, summarized
from anabranch.spark_replay.audit.table import table
from anabranch.spark_replay.audit.tally import CheckName
from anabranch.spark_replay.report import charts
from anabranch.spark_replay.report.charts import PALETTE, colours, few
from support.history import BROKERS, START_MS, History, mixed
from support.local_audit import audited
from support.topic_history import ORDERS, topical


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
    assert sum(sum(minute.values()) for minute in found["per_minute"].values()) == found["records"]
    assert sum(found["by_type"].values()) == found["records"]
    assert found["accepted"] + sum(found["rejected"].values()) == found["records"]
    assert "figures" not in found


def test_an_empty_log_has_a_report() -> None:
    summary = _summary(History())
    assert "anabranch.wal, empty" in table(summary)
    assert "<svg" not in page(summary)


def test_the_end_of_a_silent_brokers_session_is_marked_on_every_plot_of_owners() -> None:
    history = mixed(rounds=2)
    without = page(_summary(history))
    history.fail(BROKERS[1], BROKERS[0])
    text = page(_summary(history))
    told = f"the session of {BROKERS[1]} was ended"
    assert text.count(told) == without.count(told) + 2


def test_of_very_many_sessions_that_were_ended_neighbours_share_a_mark() -> None:
    summary = _summary(mixed(rounds=2))
    span_ms = summary.log.last_ms - START_MS
    expired = [(START_MS + span_ms * number // 10_000, BROKERS[1]) for number in range(10_000)]
    figures = msgspec.structs.replace(summary.figures, expired=expired)
    text = page(msgspec.structs.replace(summary, figures=figures))
    assert "10,000 in all" in text
    plots = text.count("<svg")
    assert 0 < text.count('class="mark"') <= plots * 201
    counted = re.findall(r"  ([0-9,]+) sessions were ended", text)
    assert sum(int(each.replace(",", "")) for each in counted) % 10_000 == 0


def test_segments_are_drawn_from_when_they_took_messages_until_they_were_sealed() -> None:
    history = topical()
    summary = _summary(history)
    text = page(summary)
    drawn = summary.figures.segments[f"topic:{ORDERS}"]
    (topic,) = (t for k, t in history.state.entities.items() if k == f"topic:{ORDERS}")
    assert isinstance(topic, ScalableTopic)
    assert {s.segment_id for s in drawn if s.until_ms < 0} == {
        part.segment_id for part in topic.layout.active
    }
    for span in drawn:
        assert f"segment {span.segment_id} [{span.start:04x}-{span.end:04x}]" in text
        assert span.until_ms < 0 or span.until_ms > span.since_ms


@pytest.mark.parametrize("parts", [1, 4])
def test_what_is_drawn_does_not_depend_on_how_the_replay_is_divided(parts: int) -> None:
    history = topical()
    history.fail(BROKERS[1], BROKERS[0])
    whole = audited(history, parts=parts).figures
    assert whole.segments == audited(history, parts=3).figures.segments
    assert [broker for _, broker in whole.expired].count(BROKERS[1]) >= 1
    assert whole.expired == audited(history, parts=3).figures.expired


def test_no_plot_has_more_colours_than_can_be_told_apart() -> None:
    shown = few({f"b{number}": [float(number), 1.0] for number in range(30)})
    assert list(shown) == [f"b{n}" for n in range(30 - len(PALETTE), 30)] + ["23 others"]
    assert [sum(column) for column in zip(*shown.values(), strict=True)] == [435.0, 30.0]
    assert len(set(colours(list(shown)).values())) == len(PALETTE) + 1


def test_the_plots_examples_hold() -> None:
    assert doctest.testmod(charts).failed == 0
