"""Options and policies as they are given, and the three forms of the report."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pandas as pd
import pytest

from anabranch.core.autoscale.policy import AutoScalePolicy
from anabranch.core.errors import InvalidInputError
from anabranch.spark_replay.backtest import run
from anabranch.spark_replay.backtest.comparison import Comparison, TopicResult, page, table
from anabranch.spark_replay.backtest.loads import SAMPLE
from anabranch.spark_replay.backtest.run import BacktestOptions, parse_policies, topic_result
from anabranch.spark_replay.report import Bins

_POLICIES = {"default": AutoScalePolicy(), "patient": AutoScalePolicy(split_cooldown_seconds=600)}
_BINS = Bins(0, 120_000, 15)


def _result(topic: str, rates: list[float], mean_rate: float | None = None) -> TopicResult:
    names = ("msg_rate_in", "bytes_rate_in", "msg_rate_out", "bytes_rate_out")
    times = [60_000 * at for at in range(len(rates))]
    frame = pd.DataFrame({"topic": topic, "time_ms": times, **dict.fromkeys(names, rates)})
    return topic_result(topic, frame, BacktestOptions(mean_rate=mean_rate), _POLICIES, _BINS)


@pytest.fixture
def compared() -> Comparison:
    return Comparison(
        "load.parquet",
        {"step s": 60},
        _POLICIES,
        [_result("shop/<orders>", [15_000.0] * 10 + [100.0] * 20), _result("idle", [1.0] * 30)],
        {"broken": "a rate is negative"},
        _BINS,
        1.5,
    )


def test_every_figure_is_in_the_json(compared: Comparison) -> None:
    found = json.loads(compared.json())
    assert (found["topics"], found["topic_days"]) == (2, 0.042)
    assert found["left_out"] == {"broken": "a rate is negative"}
    default = found["policies"][0]
    assert (default["name"], default["policy"]["splitCooldownSeconds"]) == ("default", 60)
    total = default["total"]
    assert (total["splits"], total["merges"], total["flaps"]) == (1, 1, 1)
    assert (total["seconds"], total["over_threshold_s"]) == (3600.0, 60.0)
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
    rows = [" ".join(line.split()) for line in table(compared).splitlines()]
    assert "default 1 1 0 1 1.0 min 1.0 min 1.2 1.25 2" in rows
    assert "idle patient 0 0 0 0 0 0 0.5 1.00 1" in rows
    assert "default done for: cold 1, msgRateIn 1" in rows


def test_the_page_has_all_and_needs_nothing_but_itself(compared: Comparison) -> None:
    text = page(compared)
    assert not re.search(r"(src|href)=|https?:|<script|@import|url\(", text)
    assert "shop/&lt;orders&gt;" in text
    assert "<orders>" not in text
    for what in ("default", "patient", "a rate is negative", "msgRateIn"):
        assert what in text
    assert text.count("<svg") == 2


def test_load_and_segments_over_time_are_means_over_bins() -> None:
    topic = _result("t", [15_000.0] * 10 + [100.0] * 20)
    assert topic.load == [15_000.0] * 5 + [100.0] * 10
    assert topic.outcomes["default"].segments == [1.5, *[2] * 7, *[1] * 7]


def test_rates_are_scaled_to_a_mean() -> None:
    assert sum(_result("t", [1.0] * 10 + [3.0] * 20, mean_rate=7).load) / 15 == pytest.approx(7)
    assert sum(_result("t", [0.0] * 30, mean_rate=7).load) == 0


def test_a_topic_that_cannot_be_used_has_its_fault() -> None:
    assert _result("t", [1.0, -1.0]).fault.startswith("a rate is negative")
    assert _result("", [1.0]).fault == "the topic is missing in some rows"


# --- options ------------------------------------------------------------------------------------


def test_a_policy_is_the_default_but_for_what_it_sets(tmp_path: Path) -> None:
    file = tmp_path / "eager.json"
    file.write_text('{"splitCooldownSeconds": 5}')
    assert parse_policies(["default", f"eager={file}", 'cap={"maxSegments": 3}']) == {
        "default": AutoScalePolicy(),
        "eager": AutoScalePolicy(split_cooldown_seconds=5),
        "cap": AutoScalePolicy(max_segments=3),
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("other", "give default, NAME=FILE"),
        ("x=/nowhere/p.json", "/nowhere/p.json: No such file"),
        ('x={"splitCooldown": 1}', "unknown field `splitCooldown`"),
        ('x={"minSegments": 5, "maxSegments": 4}', "maxSegments must be >= minSegments"),
        ("default={}", "two policies have the name default"),
    ],
)
def test_a_policy_that_is_none_is_named(text: str, why: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_policies(["default", text])
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (BacktestOptions(policies=["x={"]), "the policy x cannot be used"),
        (BacktestOptions(spread="even"), "'even' is no spread of load"),
        (BacktestOptions(Path("/nowhere/load.parquet")), "there is no load in /nowhere"),
    ],
)
def test_what_cannot_be_used_is_named_with_status_2(
    options: BacktestOptions, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.run_backtest(options) == 2
    assert f"The back-test could not run: {why}" in capsys.readouterr().err


def test_without_arguments_the_sample_is_scaled_and_two_are_compared() -> None:
    found = run.with_defaults(BacktestOptions())
    default, other = parse_policies(found.policies).values()
    assert found.mean_rate is not None
    assert found.mean_rate > default.split_msg_rate_in_threshold / 10
    assert default != other


@pytest.mark.parametrize(
    "given", [BacktestOptions(Path("load.parquet")), BacktestOptions(load_archive=Path("loads"))]
)
def test_a_load_of_ones_own_is_replayed_as_it_is(given: BacktestOptions) -> None:
    found = run.with_defaults(given)
    assert (found.policies, found.mean_rate) == ((run.DEFAULT,), None)


def test_the_sample_is_the_one_that_its_note_describes() -> None:
    digest = hashlib.sha256(SAMPLE.read_bytes()).hexdigest()
    assert f"sha256: {digest}" in SAMPLE.with_name("README.md").read_text(encoding="utf-8")
