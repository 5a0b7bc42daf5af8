"""The back-test of the balancer in real Spark, from the sample to its reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.broker.balance.strategies import installed
from anabranch.spark_replay.balance.brokers import models_of
from anabranch.spark_replay.balance.replay import BalanceReplay, ReplayRules
from anabranch.spark_replay.balance.run import SAMPLE, bins_of, read_recording
from anabranch.spark_replay.balance.variants import parse_variants
from support.example_strategies import installed_in

pytestmark = pytest.mark.spark

_VARY = "loadBalancerBrokerLoadTargetStd=0.25,0.1"
_STEP_S = 20.0
_OFF = 'off={"loadBalancerSheddingEnabled": false}'
_OWN = 'own={"loadBalancerLoadSheddingStrategy": "even-keel"}'


def test_the_command_tries_a_grid_of_settings_on_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    json_path, html_path = made / "result.json", made / "result.html"
    made.mkdir()
    site = installed_in(tmp_path)
    monkeypatch.syspath_prepend(str(site))
    path = os.pathsep.join((str(site), os.environ.get("PYTHONPATH", "")))
    command = [
        *(sys.executable, "-m", "anabranch.broker.cli", "backtest", "balance"),
        *("--settings", "default", "--settings", _OFF, "--settings", _OWN),
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
        env=os.environ | {"PYTHONWARNINGS": "ignore", "PYTHONPATH": path},
        cwd=made,
    )
    assert answer.returncode == 2, answer.stderr
    assert "The settings wrong BrokerLoadTargetStd=0.1 are left out: loadBalancerSheddi" in (
        answer.stderr
    )
    found = {each["name"]: each for each in json.loads(json_path.read_text())["settings"]}
    settings, _ = parse_variants(["default", _OFF, _OWN], [_VARY])
    assert list(found) == list(settings)
    recording, rules = read_recording(SAMPLE), ReplayRules(step_s=_STEP_S)
    models, bins = models_of(recording), bins_of(recording, rules)
    yardstick = next(iter(settings.values()))
    for name, each in settings.items():
        replay = BalanceReplay(recording, models, each, yardstick, rules, bins, installed())
        alone = replay.run(name)
        own = {key: found[name][key] for key in alone.figures.form()}
        assert own == alone.figures.form(), "a task comes to what the replay comes to here"
        assert found[name]["deviation"] == [round(value, 4) for value in alone.deviations]
        assert name in answer.stdout
    default, off = (found[f"{name} BrokerLoadTargetStd=0.25"] for name in ("default", "off"))
    assert off["moves"] == 0
    assert default["moves"] > 0
    assert default["above_s"] < off["above_s"]
    assert "<svg" in html_path.read_text()
    assert set(made.iterdir()) == {json_path, html_path}
    assert [*found["own BrokerLoadTargetStd=0.1"]["decided_by"]] == ["even-keel"]
    assert "decided by even-keel" in answer.stdout
