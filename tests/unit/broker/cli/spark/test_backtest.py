"""What `anabranch backtest` refuses before it starts Spark, and the examples of its modules."""

from __future__ import annotations

import doctest
import hashlib
from pathlib import Path
from types import ModuleType

import pytest
from click import UsageError

from anabranch.broker.cli.spark.backtest import backtest
from anabranch.broker.settings import load_settings
from anabranch.spark_replay.backtest import spread, table
from anabranch.spark_replay.backtest.model import Rules
from anabranch.spark_replay.backtest.policies import DEFAULT, parse_policies
from anabranch.spark_replay.backtest.run import (
    SAMPLE_MEAN_RATE,
    BacktestOptions,
    run_backtest,
    with_defaults,
)
from anabranch.spark_replay.backtest.traces import SAMPLE


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--factor", "2", "--mean-rate", "5"], "--factor or --mean-rate, not both"),
        (["--archive-dir", "/tmp"], "--archive-dir goes with --load-archive"),
        (["--factor", "0"], "--factor"),
        (["--step", "0"], "--step"),
        (["--factor", "inf"], "inf is no finite number"),
        (["--mean-rate", "nan"], "nan is no finite number"),
        (["--operation-seconds", "nan"], "nan is no finite number"),
        (["--flap-window", "inf"], "inf is no finite number"),
        (["--retention", "1e400"], "1e400 is no finite number"),
        (["--sealed-retention", "-1"], "--sealed-retention"),
        (["--message-bytes", "NaN"], "NaN is no finite number"),
        (["--subscriptions", "Infinity"], "Infinity is no finite number"),
    ],
)
def test_flags_that_make_no_sense_are_refused(arguments: list[str], why: str) -> None:
    with pytest.raises(UsageError) as refused:
        backtest.main(arguments, standalone_mode=False)
    assert why in refused.value.format_message()


def test_sealed_segments_are_kept_as_on_a_node_where_nothing_else_is_said() -> None:
    flags = {option.name: option.default for option in backtest.params}
    node = load_settings(None, {}, {"advertisedAddress": "b1"})
    assert flags["retention"] == Rules().retention_s == node.scalable_topic_retention_seconds
    least = node.scalable_topic_sealed_retention_seconds
    assert flags["sealed_retention"] == Rules().sealed_retention_s == least


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (BacktestOptions(policies=["x={"]), "no policy is left"),
        (BacktestOptions(spread="even"), "'even' is no spread of load"),
        (BacktestOptions([Path("/nowhere/load.csv")]), "there is no load in /nowhere/load.csv"),
    ],
)
def test_what_cannot_be_used_is_named_with_status_2(
    options: BacktestOptions, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_backtest(options) == 2
    assert f"The back-test could not run: {why}" in capsys.readouterr().err


def test_without_arguments_the_sample_is_scaled_to_where_policies_act_and_two_are_compared() -> (
    None
):
    found = with_defaults(BacktestOptions())
    assert (found.mean_rate, found.factor) == (SAMPLE_MEAN_RATE, None)
    policies, faults = parse_policies(found.policies)
    assert not faults
    default, other = policies.values()
    assert found.mean_rate is not None
    assert found.mean_rate > default.split_msg_rate_in_threshold / 10
    assert default != other


@pytest.mark.parametrize(
    "given",
    [
        BacktestOptions(factor=1.0, policies=["default"]),
        BacktestOptions(mean_rate=7.0, policies=["default"]),
        BacktestOptions([Path("load.csv")], policies=["default"]),
        BacktestOptions(load_archive=Path("loads"), policies=["default"]),
    ],
)
def test_what_is_given_is_replayed_as_it_is(given: BacktestOptions) -> None:
    assert with_defaults(given) == given


def test_a_load_of_ones_own_is_replayed_under_the_default_policy() -> None:
    assert with_defaults(BacktestOptions([Path("load.csv")])).policies == (DEFAULT,)


def test_the_sample_is_the_one_that_its_note_describes() -> None:
    digest = hashlib.sha256(SAMPLE.read_bytes()).hexdigest()
    assert f"sha256: {digest}" in SAMPLE.with_name("README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("module", [spread, table])
def test_examples_in_docstrings_hold(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0
