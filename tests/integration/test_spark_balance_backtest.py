"""The back-test of the balancer in real Spark, from the sample to its reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.spark_replay.balance.brokers import models_of
from anabranch.spark_replay.balance.replay import BalanceReplay, ReplayRules
from anabranch.spark_replay.balance.run import SAMPLE, bins_of, read_recording
from anabranch.spark_replay.balance.variants import parse_variants

pytestmark = pytest.mark.spark

_VARY = "loadBalancerBrokerLoadTargetStd=0.25,0.1"
_STEP_S = 20.0


def test_the_command_tries_a_grid_of_settings_on_the_sample(tmp_path: Path) -> None:
    json_path, html_path = tmp_path / "result.json", tmp_path / "result.html"
    command = [
        *(sys.executable, "-m", "anabranch.broker.cli", "backtest", "balance"),
        *("--settings", "default", "--settings", 'off={"loadBalancerSheddingEnabled": false}'),
        *("--settings", 'wrong={"loadBalancerSheddingIntervalMinutes": 0}'),
        *("--vary", _VARY, "--step", f"{_STEP_S:g}"),
        *("--json", str(json_path), "--html", str(html_path)),
    ]
    answer = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
        cwd=tmp_path,
    )
    assert answer.returncode == 2, answer.stderr
    assert "The settings wrong BrokerLoadTargetStd=0.1 are left out: loadBalancerSheddi" in (
        answer.stderr
    )
    found = {each["name"]: each for each in json.loads(json_path.read_text())["settings"]}
    settings, _ = parse_variants(["default", 'off={"loadBalancerSheddingEnabled": false}'], [_VARY])
    assert list(found) == list(settings)
    recording, rules = read_recording(SAMPLE), ReplayRules(step_s=_STEP_S)
    models, bins = models_of(recording), bins_of(recording, rules)
    yardstick = next(iter(settings.values()))
    for name, each in settings.items():
        alone = BalanceReplay(recording, models, each, yardstick, rules, bins).run(name)
        own = {key: found[name][key] for key in alone.figures.form()}
        assert own == alone.figures.form(), "a task comes to what the replay comes to here"
        assert found[name]["deviation"] == [round(value, 4) for value in alone.deviations]
        assert name in answer.stdout
    default, off = (found[f"{name} BrokerLoadTargetStd=0.25"] for name in ("default", "off"))
    assert off["moves"] == 0
    assert default["moves"] > 0
    assert default["above_s"] < off["above_s"]
    assert "<svg" in html_path.read_text()
    assert set(tmp_path.iterdir()) == {json_path, html_path}
