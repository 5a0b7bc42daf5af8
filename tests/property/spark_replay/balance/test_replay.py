"""Whatever was recorded, a replay of the balancer answers, and keeps what a balancer promises."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

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
from anabranch.spark_replay.balance.brokers import models_of
from anabranch.spark_replay.balance.replay import BalanceReplay, ReplayRules
from anabranch.spark_replay.balance.run import bins_of
from support.load_recording import MINUTE_MS, PARTS, B

BROKERS, BUNDLES = B[:3], PARTS[:6]

_amounts = st.sampled_from([0.0, 1.0, 1e5, 2e6, 2e6, 5e6, 4e7])
_loads = st.builds(
    RecordedLoad,
    msg_rate_in=_amounts,
    msg_throughput_in=_amounts,
    msg_throughput_out=_amounts,
    topics=st.integers(0, 3),
)
_uses = st.builds(RecordedUse, usage=st.sampled_from([0.0, 10.0, 90.0, 300.0]), limit=_amounts)
_resources = st.builds(RecordedResources, cpu=_uses, memory=_uses, bandwidth_out=_uses)
_settings = st.builds(
    BalanceSettings,
    history_resource_percentage=st.sampled_from([0.0, 0.9]),
    shedding_grace_period_minutes=st.sampled_from([0.0, 5.0, 30.0]),
    shedding_delay_in_seconds=st.sampled_from([0.0, 180.0]),
    shedding_condition_hit_count_threshold=st.sampled_from([0, 3]),
    broker_load_target_std=st.sampled_from([0.0, 0.1, 0.25]),
    max_number_of_bundles_in_bundle_load_report=st.sampled_from([1, 2, 10]),
    transfer_enabled=st.booleans(),
    memory_resource_weight=st.sampled_from([0.0, 1.0]),
)
_rules = st.builds(
    ReplayRules,
    step_s=st.sampled_from([5.0, 30.0, 90.0]),
    move_s=st.sampled_from([0.0, 10.0, 400.0]),
    flap_s=st.sampled_from([0.0, 3_600.0]),
)


@st.composite
def recordings(draw: st.DrawFn) -> LoadRecording:
    lines: list[Line] = [
        BrokerLine(0, broker, capacity=1e7)
        if draw(st.booleans())
        else BrokerLine(0, broker, resources=draw(_resources))
        for broker in BROKERS
    ]
    measured = [each.broker for each in lines if isinstance(each, BrokerLine) and each.resources]
    at_ms = 0
    for _ in range(draw(st.integers(1, 25))):
        at_ms += draw(st.sampled_from([0, 1_000, MINUTE_MS, 20 * MINUTE_MS]))
        if measured and draw(st.integers(0, 4)) == 0:
            broker = draw(st.sampled_from(measured))
            lines.append(BrokerLine(at_ms, broker, resources=draw(_resources)))
        else:
            owner = draw(st.sampled_from(BROKERS))
            lines.append(BundleLine(at_ms, draw(st.sampled_from(BUNDLES)), owner, draw(_loads)))
    last = lines[0]
    assert isinstance(last, BrokerLine)
    end_ms = at_ms + 20 * MINUTE_MS
    return LoadRecording(
        [*lines, BrokerLine(end_ms, last.broker, last.capacity, None, last.resources)]
    )


def first_owners(lines: Sequence[Line]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        if isinstance(line, BundleLine):
            found.setdefault(line.bundle, line.broker)
    return found


@given(recordings(), _settings, _rules)
def test_bundles_move_from_their_owners_and_not_within_the_grace_period(
    recording: LoadRecording, how: BalanceSettings, rules: ReplayRules
) -> None:
    models, bins = models_of(recording), bins_of(recording, rules)
    outcome = BalanceReplay(recording, models, how, BalanceSettings(), rules, bins).run("x")
    figures = outcome.figures
    assert len(outcome.log) == min(figures.moves, 500)
    assert sum(figures.reasons.values()) == figures.moves
    assert sum(figures.ended.values()) == figures.cycles
    assert figures.flaps <= figures.moves
    assert 0 <= figures.deviation_end <= figures.deviation_max
    assert len(outcome.deviations) == bins.count
    owners = first_owners(recording.lines)
    through: dict[str, float] = {}
    for move in outcome.log:
        assert move.source == owners[move.bundle]
        if how.transfer_enabled:
            assert move.destination != move.source
            assert move.predicted <= move.before + 1e-9, "no decision makes it worse"
        if move.bundle in through:
            waited_ms = move.at_ms - through[move.bundle]
            assert waited_ms >= how.shedding_grace_period_minutes * MINUTE_MS
        owners[move.bundle] = move.destination
        through[move.bundle] = move.at_ms + rules.move_s * 1000
