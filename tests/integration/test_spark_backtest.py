"""The back-test in real Spark, from its files to its comparison."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from anabranch.core.autoscale.policy import AutoScalePolicy
from anabranch.core.errors import InvalidInputError
from anabranch.spark_replay.backtest.run import backtest
from support.processes import CTRL_C_S_MAX, START_S_MAX

pytestmark = pytest.mark.spark

_MINUTE = 60_000
_DEFAULT = {"default": AutoScalePolicy()}


def _written(path: Path, rates: dict[str, list[float]]) -> Path:
    """A load with a row a minute for each topic."""
    first_ms = 1_735_689_600_000
    rows = [
        (topic, first_ms + at * _MINUTE, rate)
        for topic, every in rates.items()
        for at, rate in enumerate(every)
    ]
    pd.DataFrame(rows, columns=["topic", "time_ms", "msg_rate_in"]).to_parquet(path, index=False)
    return path


def test_the_command_compares_policies_and_names_what_it_leaves_out(tmp_path: Path) -> None:
    loads = {
        "shop/orders": [15_000.0] * 10 + [100.0] * 20,
        "shop/returns": [3.0] * 30,
        "bad/negative": [1.0, -1.0],
    }
    load = _written(tmp_path / "load.parquet", loads)
    json_path = tmp_path / "result.json"
    answer = subprocess.run(
        [
            *(sys.executable, "-m", "anabranch.cli", "backtest", "--load", load.name),
            *("--json", json_path.name, "--policy", "default"),
            *("--policy", 'off={"enabled": false}'),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=START_S_MAX,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
        cwd=tmp_path,
    )
    assert answer.returncode == 2
    why = "The topic bad/negative is left out: a rate is negative at 2025-01-01T00:01"
    assert why in answer.stderr
    found = json.loads(json_path.read_text())
    assert [each["name"] for each in found["policies"]] == ["default", "off"]
    default, off = (each["total"] for each in found["policies"])
    assert (default["splits"], default["merges"], default["flaps"]) == (1, 1, 1)
    assert (default["over_threshold_s"], off["over_threshold_s"]) == (60, 600)
    assert (default["segment_hours"], off["segment_hours"]) == (1.25, 1.0)
    assert list(found["left_out"]) == ["bad/negative"]
    rows = [" ".join(line.split()) for line in answer.stdout.splitlines()]
    assert "default 1 1 0 1 1.0 min 1.2 1.25 2" in rows
    assert "default done for: cold 1, msgRateIn 1; blocked by: nothing" in rows
    assert set(tmp_path.iterdir()) == {load, json_path}


def test_what_is_no_load_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    for columns, what in (
        ({"msg_rate_in": [1.0], "when": [2]}, "has no column topic, time_ms; it has msg_rate_in"),
        ({"topic": ["t"], "time_ms": [1], "msg_rate_in": ["much"]}, "is no load in Parquet"),
        (
            {"topic": [], "time_ms": [], "msg_rate_in": []},
            "no topic of the load can be used: it has no rows",
        ),
    ):
        file = tmp_path / "load.parquet"
        pd.DataFrame(columns).to_parquet(file, index=False)
        with pytest.raises(InvalidInputError, match=what):
            backtest(spark, file, _DEFAULT)
    with pytest.raises(InvalidInputError, match="there is no load in /nowhere"):
        backtest(spark, Path("/nowhere/load.parquet"), _DEFAULT)
    text = tmp_path / "load.txt"
    text.write_text("nothing")
    with pytest.raises(InvalidInputError, match="is no load in Parquet"):
        backtest(spark, text, _DEFAULT)
    only_bad = _written(file, {"t": [math.inf]})
    with pytest.raises(InvalidInputError, match="no topic of the load can be used: a rate is no"):
        backtest(spark, only_bad, _DEFAULT)


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_interrupted_has_told_where_it_is_and_leaves_no_folder(
    how: signal.Signals, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with told.open("wb") as errors:
        running = subprocess.Popen(
            [sys.executable, "-m", "anabranch.cli", "backtest"],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, "TMPDIR": str(scratch)},
            # Whoever runs the tests in the background has made them, and it, ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    deadline = time.monotonic() + START_S_MAX
    try:
        # Once while Spark is being started, and once when it is at work.
        step = "starting Spark" if how is signal.SIGINT else "replaying the loads"
        while f"backtest: {step}\n" not in told.read_text() or not list(scratch.iterdir()):
            assert time.monotonic() < deadline, told.read_text()
            time.sleep(0.05)
        running.send_signal(how)
        assert running.wait(CTRL_C_S_MAX) == 130, told.read_text()
    finally:
        running.kill()
        running.wait()
    assert list(scratch.glob("anabranch-*")) == []
    assert "Traceback" not in told.read_text()
