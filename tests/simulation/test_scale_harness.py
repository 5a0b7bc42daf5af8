"""The simulation of auto-scaling finds planted bugs: a test breaks one rule, a seed must notice."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.core.autoscale import schedule as autoscaler
from anabranch.core.autoscale.decide import decide
from anabranch.core.autoscale.schedule import AutoScaler, Trigger
from anabranch.core.topics import evolve as topic_fold
from anabranch.core.topics.topic import ScalableTopic
from simulation import run
from simulation.planted import violation_found
from simulation.topic_plan import TopicPlan, draw_topics

pytestmark = pytest.mark.simulation


def stormy(monkeypatch: pytest.MonkeyPatch, policy: Mapping[str, object], **topics: object) -> None:
    """Every seed is drawn as usual, except for this: what a rare bug needs happens all the time."""

    def drawn(rng: random.Random) -> TopicPlan:
        plan = draw_topics(rng)
        settings = plan.auto_scale
        auto_scale = replace(settings, policy=replace(settings.policy, enabled=True, **policy))
        return replace(plan, auto_scale=auto_scale, overrides=False, **topics)

    monkeypatch.setattr(run, "draw_topics", drawn)


def deciding(monkeypatch: pytest.MonkeyPatch, **policy: object) -> None:
    """Controllers decide by another policy than the one in force."""

    def other(*args: Any) -> object:
        layout, load, demand, given, now_ms, last = args
        return decide(layout, load, demand, replace(given, **policy), now_ms, last)

    monkeypatch.setattr(autoscaler, "decide", other)


def test_a_controller_that_forgets_the_cooldowns_when_it_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    due = AutoScaler.due
    found: dict[AutoScaler, tuple[int, int, int]] = {}

    def forgetful(self: AutoScaler, state: Any, topic: ScalableTopic, *rest: Any) -> object:
        clocks = (topic.split_ms, topic.merge_ms, topic.rebucket_ms)
        before = found.setdefault(self, clocks)
        split, merge, rebucket = (
            0 if now == then else now for now, then in zip(clocks, before, strict=True)
        )
        own = replace(topic, split_ms=split, merge_ms=merge, rebucket_ms=rebucket)
        return due(self, state, own, *rest)

    monkeypatch.setattr(AutoScaler, "due", forgetful)
    violation_found("the cooldown of")


def test_operations_by_hand_that_start_no_cooldown(monkeypatch: pytest.MonkeyPatch) -> None:
    committed = topic_fold._committed

    def quietly(topic: ScalableTopic, *rest: Any) -> ScalableTopic:
        after = committed(topic, *rest)
        return replace(after, split_ms=0, merge_ms=0, rebucket_ms=0)

    monkeypatch.setattr(topic_fold, "_committed", quietly)
    violation_found("the cooldown of")


def test_a_controller_that_ignores_the_most_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    deciding(monkeypatch, max_segments=64)
    violation_found("segments of at most")


def test_a_controller_that_ignores_the_fewest_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    deciding(monkeypatch, min_segments=1)
    violation_found("segments of at least")


def test_a_controller_that_ignores_how_often_a_lineage_was_merged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stormy(monkeypatch, {"max_dag_depth": 1, "max_segments": 6}, segments=3)
    deciding(monkeypatch, max_dag_depth=64)
    violation_found("the merge depth is")


def test_a_controller_that_ignores_the_ceiling_of_buckets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = {"max_entry_buckets_per_segment": 2, "max_segments": 2}
    stormy(monkeypatch, few, bucket_budget=1, segments=1, consumers=4)
    deciding(monkeypatch, max_entry_buckets_per_segment=1024)
    violation_found("buckets are more than the ceiling")


def test_a_controller_that_scales_what_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    deciding(monkeypatch, enabled=True)
    violation_found("it is switched off")


def test_a_controller_that_looks_at_consumers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = AutoScaler._trigger

    def deaf(self: AutoScaler, *args: Any, **named: Any) -> Trigger | None:
        found = trigger(self, *args, **named)
        return found if found is Trigger.CONSUMERS else None

    monkeypatch.setattr(AutoScaler, "_trigger", deaf)
    violation_found("has yet to do by itself")
