"""Policies as they are given, and the two forms of the comparison."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import msgspec
import pandas as pd
import pytest

from anabranch.core.autoscale.policy import AutoScalePolicy
from anabranch.core.errors import InvalidInputError
from anabranch.spark_replay.backtest.loads import SAMPLE
from anabranch.spark_replay.backtest.run import (
    Comparison,
    TopicResult,
    parse_policies,
    topic_result,
)

_POLICIES = {"default": AutoScalePolicy(), "patient": AutoScalePolicy(split_cooldown_seconds=600)}


def _result(topic: str, rates: list[float]) -> TopicResult:
    names = ("msg_rate_in", "bytes_rate_in", "msg_rate_out", "bytes_rate_out")
    times = [60_000 * at for at in range(len(rates))]
    frame = pd.DataFrame({"topic": topic, "time_ms": times, **dict.fromkeys(names, rates)})
    return topic_result(topic, frame, _POLICIES)


def test_every_figure_is_in_the_json() -> None:
    topics = [_result("shop/orders", [15_000.0] * 10 + [100.0] * 20), _result("idle", [1.0] * 30)]
    compared = Comparison(_POLICIES, topics, {"broken": "a rate is negative"})
    found = json.loads(msgspec.json.encode(compared.form()))
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
    assert (orders["from"], orders["to"]) == ("1970-01-01T00:00:00Z", "1970-01-01T00:30:00Z")
    assert (orders["merges"], idle["splits"], idle["segment_hours"]) == (1, 0, 0.5)


def test_a_topic_that_cannot_be_used_has_its_fault() -> None:
    assert _result("t", [1.0, -1.0]).fault.startswith("a rate is negative")
    assert _result("", [1.0]).fault == "the topic is missing in some rows"


# --- policies -----------------------------------------------------------------------------------


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
        ("x={", "the policy x cannot be used: it is no auto-scale policy in JSON"),
        ('x={"splitCooldown": 1}', "unknown field `splitCooldown`"),
        ('x={"minSegments": 5, "maxSegments": 4}', "maxSegments must be >= minSegments"),
        ("default={}", "two policies have the name default"),
    ],
)
def test_a_policy_that_is_none_is_named(text: str, why: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_policies(["default", text])
    assert why in str(refused.value)


def test_the_sample_is_the_one_that_its_note_describes() -> None:
    digest = hashlib.sha256(SAMPLE.read_bytes()).hexdigest()
    assert f"sha256: {digest}" in SAMPLE.with_name("README.md").read_text(encoding="utf-8")
