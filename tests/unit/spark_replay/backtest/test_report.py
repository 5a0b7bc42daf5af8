"""Policies as they are given, and the three forms of the report, from one comparison."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pandas as pd
import pytest

from anabranch.core.autoscale.policy import AutoScalePolicy
from anabranch.spark_replay.backtest.comparison import Comparison, segments_over_time
from anabranch.spark_replay.backtest.job import BacktestPlan, topic_result
from anabranch.spark_replay.backtest.model import Rules
from anabranch.spark_replay.backtest.outcome import TopicResult
from anabranch.spark_replay.backtest.page import page
from anabranch.spark_replay.backtest.policies import parse_policies
from anabranch.spark_replay.backtest.table import table
from anabranch.spark_replay.report.charts import Bins

_POLICIES = {"default": AutoScalePolicy(), "patient": AutoScalePolicy(split_cooldown_seconds=600)}
_BINS = Bins(0, 120_000, 15)


def _frame(rates: list[float]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "topic": "t",
            "time_ms": [60_000 * at for at in range(len(rates))],
            "msg_rate_in": rates,
            "bytes_rate_in": rates,
            "msg_rate_out": rates,
            "bytes_rate_out": rates,
        }
    )


def _result(topic: str, rates: list[float], **more: float) -> TopicResult:
    plan = msgspec.structs.replace(BacktestPlan(_POLICIES, Rules(), _BINS), **more)
    return topic_result(topic, _frame(rates), plan)


@pytest.fixture
def compared() -> Comparison:
    return Comparison(
        "load.csv",
        "all rates are multiplied by 3",
        {"step s": 60},
        _POLICIES,
        [_result("shop/<orders>", [15_000.0] * 10 + [100.0] * 20), _result("idle", [1.0] * 30)],
        {"broken": "a rate is negative"},
        {"bad": "no JSON"},
        _BINS,
        1.5,
    )


def test_every_figure_is_in_the_json(compared: Comparison) -> None:
    found = json.loads(compared.json())
    assert found["scale"] == "all rates are multiplied by 3"
    assert (found["topics"], found["topic_days"]) == (2, 0.042)
    assert found["left_out"] == {
        "topics": {"broken": "a rate is negative"},
        "policies": {"bad": "no JSON"},
    }
    default = found["policies"][0]
    assert (default["name"], default["policy"]["splitCooldownSeconds"]) == ("default", 60)
    total = default["total"]
    assert (total["splits"], total["merges"], total["flaps"]) == (1, 1, 1)
    assert (total["seconds"], total["over_threshold_s"], total["evaluations"]) == (3600.0, 60.0, 60)
    assert (total["segment_hours"], total["segments_max"]) == (1.25, 2)
    assert total["actions"] == {"cold": 1, "msgRateIn": 1}
    orders, idle = default["topics"]
    assert orders["log"] == [
        {"at": "1970-01-01T00:01:00Z", "action": "split 0", "reason": "msgRateIn"},
        {
            "at": "1970-01-01T00:16:00Z",
            "action": "merge 1 2",
            "reason": "cold",
            "undoes_after_s": 900.0,
        },
    ]
    assert (idle["splits"], idle["segment_hours"]) == (0, 0.5)


def test_the_table_has_a_line_for_each_policy_in_all_and_by_topic(compared: Comparison) -> None:
    text = table(compared)
    assert text.splitlines()[1] == "all rates are multiplied by 3"
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "default 1 1 0 1 1.0 min 1.0 min 1.2 1.25 2" in rows
    assert "idle patient 0 0 0 0 0 0 0.5 1.00 1" in rows
    assert "done for: cold 1, msgRateIn 1" in text


def test_the_page_has_all_and_needs_nothing_but_itself(compared: Comparison) -> None:
    text = page(compared)
    assert text.index("All rates are multiplied by 3.") < text.index("<table>")
    assert not re.search(r"(src|href)=|https?:|<script|@import|url\(", text)
    assert "shop/&lt;orders&gt;" in text
    assert "<orders>" not in text
    for what in ("default", "patient", "a rate is negative", "no JSON", "msgRateIn"):
        assert what in text
    assert text.count("<svg") == 2 + 2 * 2


def test_load_and_segments_over_time_are_means_over_bins() -> None:
    topic = _result("t", [15_000.0] * 10 + [100.0] * 20)
    assert topic.load == [15_000.0] * 5 + [100.0] * 10
    assert segments_over_time(topic, "default", _BINS) == [1.5, *[2] * 7, *[1] * 7]


def test_rates_are_scaled_by_a_factor_or_to_a_mean() -> None:
    assert sum(_result("t", [1.0] * 10 + [3.0] * 20, factor=10).load) / 15 == pytest.approx(70 / 3)
    assert sum(_result("t", [1.0] * 10 + [3.0] * 20, mean_rate=7).load) / 15 == pytest.approx(7)
    assert sum(_result("t", [0.0] * 30, mean_rate=7).load) == 0


def test_a_topic_that_cannot_be_used_has_its_fault() -> None:
    assert _result("t", [1.0, -1.0]).fault.startswith("a rate is negative")
    assert _result("", [1.0]).fault == "the topic is missing in some rows"


# --- policies -----------------------------------------------------------------------------------


def test_a_policy_is_the_default_but_for_what_it_sets(tmp_path: Path) -> None:
    file = tmp_path / "eager.json"
    file.write_text('{"splitCooldownSeconds": 5}')
    found, faults = parse_policies(["default", f"eager={file}", 'cap={"maxSegments": 3}'])
    assert not faults
    assert list(found) == ["default", "eager", "cap"]
    assert found["default"] == AutoScalePolicy()
    assert found["eager"] == AutoScalePolicy(split_cooldown_seconds=5)
    assert found["cap"] == AutoScalePolicy(max_segments=3)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("other", "give default, NAME=FILE"),
        ("x=/nowhere/p.json", "/nowhere/p.json: No such file"),
        ("x={", "no auto-scale policy in JSON"),
        ('x={"splitCooldown": 1}', "unknown field `splitCooldown`"),
        ('x={"minSegments": 5, "maxSegments": 4}', "maxSegments must be >= minSegments"),
        ("default={}", "two policies have this name"),
    ],
)
def test_a_policy_that_is_none_is_named_and_the_others_go_on(text: str, why: str) -> None:
    found, faults = parse_policies(["default", text])
    assert list(found) == ["default"]
    ((name, told),) = faults.items()
    assert name in text
    assert why in told
