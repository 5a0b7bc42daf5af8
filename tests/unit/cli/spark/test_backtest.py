"""What `anabranch backtest` refuses before it starts Spark, and the examples of its modules."""

from __future__ import annotations

import doctest
import hashlib
from pathlib import Path
from types import ModuleType

import pytest

from anabranch.broker.settings import load_settings
from anabranch.cli.spark.backtest import backtest
from anabranch.spark_replay.backtest import run, spread, table
from anabranch.spark_replay.backtest.model import Rules
from anabranch.spark_replay.backtest.policies import DEFAULT, parse_policies
from anabranch.spark_replay.backtest.traces import SAMPLE


def test_sealed_segments_are_kept_as_on_a_node_where_nothing_else_is_said() -> None:
    flags = {option.name: option.default for option in backtest.params}
    node = load_settings(None, {}, {"advertisedAddress": "b1"})
    assert flags["retention"] == Rules().retention_s == node.scalable_topic_retention_seconds
    least = node.scalable_topic_sealed_retention_seconds
    assert flags["sealed_retention"] == Rules().sealed_retention_s == least


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (run.BacktestOptions(policies=["x={"]), "no policy is left"),
        (run.BacktestOptions(spread="even"), "'even' is no spread of load"),
        (run.BacktestOptions([Path("/nowhere/load.csv")]), "there is no load in /nowhere/load.csv"),
    ],
)
def test_what_cannot_be_used_is_named_with_status_2(
    options: run.BacktestOptions, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.run_backtest(options) == 2
    assert f"The back-test could not run: {why}" in capsys.readouterr().err


def test_without_arguments_the_sample_is_scaled_and_two_are_compared() -> None:
    found = run.with_defaults(run.BacktestOptions())
    assert (found.mean_rate, found.factor) == (run.SAMPLE_MEAN_RATE, None)
    policies, faults = parse_policies(found.policies)
    assert not faults
    default, other = policies.values()
    assert found.mean_rate is not None
    assert found.mean_rate > default.split_msg_rate_in_threshold / 10
    assert default != other


@pytest.mark.parametrize(
    "given",
    [
        run.BacktestOptions(factor=1.0, policies=["default"]),
        run.BacktestOptions(mean_rate=7.0, policies=["default"]),
        run.BacktestOptions([Path("load.csv")], policies=["default"]),
        run.BacktestOptions(load_archive=Path("loads"), policies=["default"]),
    ],
)
def test_what_is_given_is_replayed_as_it_is(given: run.BacktestOptions) -> None:
    assert run.with_defaults(given) == given


def test_a_load_of_ones_own_is_replayed_under_the_default_policy() -> None:
    assert run.with_defaults(run.BacktestOptions([Path("load.csv")])).policies == (DEFAULT,)


def test_the_sample_is_the_one_that_its_note_describes() -> None:
    digest = hashlib.sha256(SAMPLE.read_bytes()).hexdigest()
    assert f"sha256: {digest}" in SAMPLE.with_name("README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("module", [spread, table])
def test_examples_in_docstrings_hold(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0
