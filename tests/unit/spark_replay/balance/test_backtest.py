"""The back-test of the balancer without Spark: settings, a run, the sample, reports."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from anabranch.core.balance.recording import BrokerLine, LoadRecording
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.errors import InvalidInputError
from anabranch.spark_replay.balance import run
from anabranch.spark_replay.balance.brokers import models_of
from anabranch.spark_replay.balance.outcome import BalanceComparison
from anabranch.spark_replay.balance.page import page
from anabranch.spark_replay.balance.replay import BalanceReplay, ReplayRules
from anabranch.spark_replay.balance.table import table
from anabranch.spark_replay.balance.variants import parse_variants
from support.load_recording import HOT, MB, MINUTE_MS, PARTS, B

DEFAULT = BalanceSettings()


# --- settings -------------------------------------------------------------------------------------


def test_settings_are_named_and_varied_in_all_combinations(tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    file.write_text('{"loadBalancerTransferEnabled": false}')
    found, faults = parse_variants(
        ["default", f"own={file}"],
        ["loadBalancerBrokerLoadTargetStd=0.1,0.2", "loadBalancerSheddingIntervalMinutes=2"],
    )
    assert faults == {}
    assert list(found) == [
        f"{name} BrokerLoadTargetStd={std},SheddingIntervalMinutes=2"
        for name in ("default", "own")
        for std in ("0.1", "0.2")
    ]
    assert list(found.values())[-1] == BalanceSettings(
        transfer_enabled=False, broker_load_target_std=0.2, shedding_interval_minutes=2.0
    )


@pytest.mark.parametrize(
    ("given", "name", "why"),
    [
        ('x={"brokerLoadTargetStd": 1}', "x", "there is no setting brokerLoadTargetStd"),
        ('x={"loadBalancerBrokerLoadTargetStd": "wide"}', "x", "Expected `float`, got `str`"),
        ('x={"loadBalancerBrokerLoadTargetStd": -1}', "x", "must be a number from 0 to"),
        ("default", "default", "two settings have this name"),
    ],
)
def test_settings_that_cannot_be_used_are_named(given: str, name: str, why: str) -> None:
    found, faults = parse_variants(["default", given], [])
    assert list(found) == ["default"]
    assert why in faults[name]


@pytest.mark.parametrize(
    ("varied", "why"),
    [
        (["loadBalancerBrokerLoadTargetStd"], "is not of the form SETTING=VALUE,VALUE"),
        ([f"loadBalancerBrokerLoadTargetStd={','.join(map(str, range(1_001)))}"], "1,001 settings"),
    ],
)
def test_what_is_no_list_of_values_is_refused(varied: list[str], why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        parse_variants(["default"], varied)


# --- a run ----------------------------------------------------------------------------------------


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines))
    return path


def test_what_cannot_be_used_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = written(tmp_path / "bad.jsonl", '{"timeMs": 1, "broker": "b1:80", "capacity": -1}')
    torn = tmp_path / "torn.gz"
    torn.write_bytes(gzip.compress(b"{}")[:-4])
    cases = (
        (run.BalanceBacktestOptions(settings=["x={"]), "no settings are left"),
        (run.BalanceBacktestOptions(Path("/nowhere.jsonl")), "/nowhere.jsonl: No such file"),
        (run.BalanceBacktestOptions(bad), "line 1: a capacity of -1 bytes a second is none"),
        (run.BalanceBacktestOptions(torn), "torn.gz: "),
        (run.BalanceBacktestOptions(rules=ReplayRules(step_s=0.001)), "give a longer --step"),
    )
    for options, why in cases:
        assert run.run_balance_backtest(options) == 2
        told = capsys.readouterr().err
        assert "The back-test could not run: " in told
        assert why in told


def test_the_sample_is_the_one_that_its_note_describes() -> None:
    packed = run.SAMPLE.read_bytes()
    note = run.SAMPLE.with_name("README.md").read_text(encoding="utf-8")
    assert f"sha256: {hashlib.sha256(gzip.decompress(packed)).hexdigest()}" in note
    recording = run.read_recording(run.SAMPLE)
    assert f"{len(recording.lines):,} lines" in note
    assert f"{len(recording.bundles)} bundles" in note
    assert f"{len(recording.brokers)} brokers" in note


# --- reports --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared() -> BalanceComparison:
    recording = LoadRecording([*HOT, BrokerLine(30 * MINUTE_MS, B[0], 10 * MB)])
    rules = ReplayRules()
    models, bins = models_of(recording), run.bins_of(recording, rules)
    settings, _ = parse_variants(["default", '<off>={"loadBalancerEnabled": false}'], [])
    outcomes = [
        BalanceReplay(recording, models, each, DEFAULT, rules, bins).run(name)
        for name, each in settings.items()
    ]
    return BalanceComparison(
        "load.jsonl",
        (recording.begin_ms, recording.end_ms),
        len(recording.bundles),
        models,
        settings,
        outcomes,
        {"bad": "no JSON"},
        {"step s": rules.step_s},
        bins,
        1.5,
    )


def test_the_json_has_all_figures_and_what_differs(compared: BalanceComparison) -> None:
    found = json.loads(compared.json())
    default, off = found["settings"]
    assert (default["moves"], off["moves"]) == (2, 0)
    assert (default["settings"], off["settings"]) == ({}, {"loadBalancerEnabled": False})
    assert (default["until_below_s"], off["until_below_s"]) == (245, None)
    assert [each["bundle"] for each in default["log"]] == PARTS[:2]
    assert len(default["deviation"]) == compared.bins.count
    assert found["left_out"] == {"bad": "no JSON"}
    assert found["brokers"][0] == {
        "broker": B[0],
        "measured": 0,
        "capacity_bytes_per_s": 10_000_000,
        "error": 0.0,
    }


def test_the_table_has_a_line_for_each_setting(compared: BalanceComparison) -> None:
    lines = table(compared).splitlines()
    assert lines[0].startswith("load.jsonl: 4 bundles on 2 brokers, 1970-01-01T00:00:00")
    rows = {line.split()[0]: line.split() for line in lines if line}
    assert rows["default"][1:8] == ["2", "2", "0", "0", "0.400", "0.054", "0.000"]
    assert "never" in rows["<off>"]
    assert rows[B[0]] == [B[0], "as", "given", "10", "MB/s", "-"]


def test_the_page_needs_nothing_else_and_shows_each_move(compared: BalanceComparison) -> None:
    found = page(compared)
    assert "<svg" in found
    assert "http" not in found.replace("http://www.w3.org/", "")
    assert "&lt;off&gt;" in found
    assert "<off>" not in found
    for name in PARTS[:2]:
        assert f"<code>{name}</code>" in found
    assert "no JSON" in found
