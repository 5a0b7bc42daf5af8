"""What brokers use, and what the balancer would have done: models and replays, by hand."""

from __future__ import annotations

import gzip
import hashlib
import json
import pickle
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from anabranch.core.balance.offload import ClusterView
from anabranch.core.balance.recording import (
    BrokerLine,
    BundleLine,
    Line,
    LoadRecording,
    RecordedLoad,
    RecordedResources,
    RecordedUse,
)
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.balance.strategies import Strategies, StrategyKind, WantedMove
from anabranch.core.errors import InvalidInputError
from anabranch.spark_replay.balance import run
from anabranch.spark_replay.balance.brokers import UseLine, models_of
from anabranch.spark_replay.balance.outcome import BalanceComparison, BalanceOutcome
from anabranch.spark_replay.balance.page import page
from anabranch.spark_replay.balance.replay import BalanceReplay, ReplayRules
from anabranch.spark_replay.balance.run import bins_of
from anabranch.spark_replay.balance.table import table
from anabranch.spark_replay.balance.variants import parse_variants
from support.load_recording import HOT, MB, MINUTE_MS, PARTS, B, bundle, carrying

DEFAULT = BalanceSettings()


def replayed(
    lines: Sequence[Line],
    settings: BalanceSettings = DEFAULT,
    rules: ReplayRules | None = None,
    yardstick: BalanceSettings = DEFAULT,
    minutes: int = 30,
    strategies: Strategies | None = None,
) -> BalanceOutcome:
    """The recording, to so many minutes after its last line."""
    end = BrokerLine(lines[-1].time_ms + minutes * MINUTE_MS, B[0], 10 * MB)
    recording = LoadRecording([*lines, end])
    how = rules or ReplayRules()
    bins = bins_of(recording, how)
    models = models_of(recording)
    run = BalanceReplay(recording, models, settings, yardstick, how, bins, strategies)
    return run.run("x")


def moves(outcome: BalanceOutcome) -> list[tuple[float, str, str, str]]:
    """Minute, bundle, from and to."""
    return [
        (each.at_ms / MINUTE_MS, each.bundle, each.source, each.destination) for each in outcome.log
    ]


# --- what brokers use -----------------------------------------------------------------------------


def measured(broker: str, *points: tuple[float, float]) -> list[Line]:
    """A bundle's megabytes a second, and the processor that its broker uses then."""
    lines: list[Line] = []
    for minute, (megabytes, cpu) in enumerate(points):
        uses = RecordedResources(cpu=RecordedUse(cpu, 100.0))
        lines += [
            bundle(0, broker, megabytes, minute),
            BrokerLine(minute * MINUTE_MS, broker, resources=uses),
        ]
    return lines


@pytest.mark.parametrize(
    ("points", "idle", "per_mb", "error"),
    [
        ([(1, 12.0), (2, 14.0), (5, 20.0)], 10.0, 2.0, 0.0),
        ([(0, 7.0), (0, 9.0)], 8.0, 0.0, 0.01),  # no traffic: all idle
        ([(1, 30.0), (5, 10.0)], 20.0, 0.0, 0.1),  # it does not fall
        ([(2, 0.0), (4, 20.0)], 0.0, 4.0, 0.06),  # nor begin below nothing
    ],
)
def test_a_broker_s_use_is_the_line_closest_to_what_it_measured(
    points: list[tuple[float, float]], idle: float, per_mb: float, error: float
) -> None:
    model = models_of(LoadRecording(measured(B[0], *points)))[B[0]]
    cpu = model.lines[0]
    assert [cpu.idle, cpu.per_byte * MB] == pytest.approx([idle, per_mb])
    assert model.error == pytest.approx(error, abs=1e-9)
    assert model.measured == len(points)
    assert model.lines[1:] == (UseLine(0.0, 0.0, 0.0),) * 4
    assert model.resources(3 * MB).cpu.usage == pytest.approx(idle + 3 * per_mb)


def test_a_capacity_that_was_given_is_where_the_broker_is_full() -> None:
    model = models_of(LoadRecording(carrying(B[0], capacity=8 * MB, idle=0.2)))[B[0]]
    assert model.capacity == pytest.approx(8 * MB)
    assert model.measured == 0
    assert [model.resources(each * MB).cpu.percent for each in (0, 4, 8, 12)] == pytest.approx(
        [20.0, 60.0, 100.0, 140.0]
    )


def test_a_bundle_counts_for_the_broker_that_had_it_when_it_measured() -> None:
    lines = [
        *measured(B[0], (1, 12.0), (2, 14.0)),
        bundle(0, B[1], 9, 2),
        BrokerLine(2 * MINUTE_MS, B[0], resources=RecordedResources(cpu=RecordedUse(10.0, 100.0))),
        BrokerLine(2 * MINUTE_MS, B[1], resources=RecordedResources(cpu=RecordedUse(90.0, 100.0))),
    ]
    found = models_of(LoadRecording(lines))
    assert found[B[0]].lines[0].idle == pytest.approx(10.0)
    assert found[B[0]].capacity == pytest.approx(45 * MB)
    assert found[B[1]].capacity == pytest.approx(10 * MB)


# --- replays --------------------------------------------------------------------------------------


def test_an_overloaded_broker_gives_half_of_the_difference_in_the_fourth_cycle() -> None:
    outcome = replayed(HOT)
    assert moves(outcome) == [(4, PARTS[0], B[0], B[1]), (4, PARTS[1], B[0], B[1])]
    figures = outcome.figures
    assert (figures.moves, figures.bundles_moved, figures.moved_again) == (2, 2, 0)
    assert (figures.reasons, figures.acting, figures.flaps) == ({"Overloaded": 2}, 1, 0)
    assert (figures.deviation_start, figures.deviation_end) == pytest.approx((0.4, 0.0))
    assert figures.until_below_s == 245  # the first measurement after that
    assert figures.above_s == figures.above_first_s == 245
    assert figures.deviation_mean == pytest.approx(0.4 * 245 / figures.seconds)
    assert outcome.log[-1].predicted == pytest.approx(0.0, abs=1e-9)
    assert figures.cycles == sum(figures.ended.values()) == 29
    assert figures.ended["hits"] == 3
    assert outcome.deviations[0] == pytest.approx(0.4)
    assert outcome.deviations[-1] == 0


@pytest.mark.parametrize(
    "settings",
    [
        BalanceSettings(shedding_enabled=False),
        BalanceSettings(shedding_excluded_namespaces=("t/n",)),
        BalanceSettings(shedding_condition_hit_count_threshold=1_000),
    ],
)
def test_under_some_settings_nothing_moves(settings: BalanceSettings) -> None:
    outcome = replayed(HOT, settings)
    assert (outcome.figures.moves, outcome.log) == (0, [])
    assert outcome.figures.until_below_s is None
    assert outcome.figures.above_s == outcome.figures.seconds
    assert outcome.figures.deviation_end == pytest.approx(0.4)


def heats(minute: float, hot: Sequence[int], cold: Sequence[int], owner: str) -> list[Line]:
    return [
        bundle(number, owner, 2.0 if number in hot else 0.2, minute) for number in (*hot, *cold)
    ]


def test_without_a_grace_period_bundles_go_back_and_forth() -> None:
    first, second = (0, 1, 2, 3), (4, 5, 6, 7)
    begin = [
        *carrying(*B[:2]),
        *(bundle(number, B[0], 2.0) for number in first),
        *(bundle(number, B[1], 0.2) for number in second),
    ]
    # Without an average over time, a load that jumps once is told as it is.
    patient_ones = BalanceSettings(history_resource_percentage=0.0)
    settled = replayed(begin, patient_ones)
    there = {name: to for _, name, _, to in moves(settled)}
    hot = [n for n in range(8) if there.get(PARTS[n], B[0] if n in first else B[1]) == B[1]]
    turned = [*begin, *heats(15, hot, [n for n in range(8) if n not in hot], "b0:80")]
    no_grace = msgspec.structs.replace(patient_ones, shedding_grace_period_minutes=0.0)
    restless = replayed(turned, no_grace, minutes=14)
    patient = replayed(turned, patient_ones, minutes=14)  # the grace period is over after that
    assert restless.figures.flaps > 0
    assert restless.figures.moved_again >= restless.figures.flaps
    assert patient.figures.flaps == 0
    assert patient.figures.moves > settled.figures.moves
    later = replayed(turned, no_grace, ReplayRules(flap_s=60.0), minutes=14)
    assert (later.figures.flaps, later.figures.moves) == (0, restless.figures.moves)


def test_the_parts_of_a_bundle_are_where_it_was_moved_to() -> None:
    halves = ["t/n/0x00000000_0x08000000", "t/n/0x08000000_0x10000000"]
    assert PARTS[0] == "t/n/0x00000000_0x10000000"
    half = RecordedLoad(msg_throughput_in=MB)
    split = [
        bundle(0, B[0], 0.0, 10),
        *(BundleLine(10 * MINUTE_MS, name, B[0], half) for name in halves),
    ]
    outcome = replayed([*HOT, *split])
    assert (len(moves(outcome)), outcome.figures.deviation_end) == (2, 0)


def test_what_the_recorded_cluster_moved_is_not_followed() -> None:
    off = BalanceSettings(shedding_enabled=False)
    outcome = replayed([*HOT, bundle(0, B[1], 2.0, 5), bundle(1, B[1], 2.0, 5)], off)
    assert outcome.figures.deviation_end == pytest.approx(0.4)


def test_each_setting_has_its_own_target_and_the_first_one_s() -> None:
    uneven = [
        *carrying(*B[:2]),
        *(bundle(number, B[number // 2], 3.0 - number // 2) for number in range(4)),
    ]
    off = BalanceSettings(shedding_enabled=False, broker_load_target_std=0.05)
    figures = replayed(uneven, off, yardstick=BalanceSettings(broker_load_target_std=0.2)).figures
    assert figures.deviation_end == pytest.approx(0.1)
    assert (figures.above_s, figures.above_first_s) == (figures.seconds, 0)


def nothing(view: ClusterView, settings: BalanceSettings) -> None:
    return None


def the_first_goes(view: ClusterView, settings: BalanceSettings) -> list[WantedMove]:
    """Of HOT, to the other broker, as long as it is reported by the first."""
    top = view.top.get(B[0])
    return [WantedMove(PARTS[0], B[1])] if top and PARTS[0] in dict(top.bundles) else []


def test_the_back_test_says_which_strategy_decided() -> None:
    own = {"the-first": the_first_goes, "nothing": nothing}
    sent = pickle.loads(pickle.dumps(Strategies({StrategyKind.SHEDDER: own})))
    figures = {
        name: replayed(HOT, BalanceSettings(load_shedding_strategy=name), strategies=sent).figures
        for name in ("", *own)
    }
    assert figures["the-first"].decided_by == {"the-first": 1}
    assert figures[""].decided_by == figures["nothing"].decided_by == {"built-in": 2}
    [(fault, cycles)] = figures["nothing"].faults.items()
    assert "strategy nothing did not decide: it raised TypeError" in fault
    assert cycles == figures["nothing"].cycles - figures["nothing"].ended.get("cooling_down", 0)


# --- the back-test of the balancer without Spark: settings, a run, the sample, reports ------------


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
