"""The simulation of auto-scaling finds planted bugs: a test breaks one rule, a seed must notice."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.core.autoscale import schedule as autoscaler
from anabranch.core.autoscale.decide import decide
from anabranch.core.autoscale.schedule import AutoScaler, Trigger
from anabranch.core.entities.topic import ScalableTopic
from simulation.planted import noticed

pytestmark = pytest.mark.simulation

violation_found = partial(noticed, "topics")


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
    violation_found("the cooldown of", first_seed=2)


@pytest.mark.parametrize(
    ("policy", "expected", "first_seed"),
    [
        ({"max_segments": 64}, "segments of at most", 2),
        ({"min_segments": 1}, "segments of at least", 9),
        ({"enabled": True}, "it is switched off", 3),
    ],
)
def test_a_controller_that_decides_by_another_policy_than_the_one_in_force(
    monkeypatch: pytest.MonkeyPatch, policy: dict[str, object], expected: str, first_seed: int
) -> None:
    def other(*args: Any) -> object:
        layout, load, demand, given, now_ms, last = args
        return decide(layout, load, demand, replace(given, **policy), now_ms, last)

    monkeypatch.setattr(autoscaler, "decide", other)
    violation_found(expected, first_seed=first_seed)


def test_a_controller_that_looks_at_consumers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = AutoScaler._trigger

    def deaf(self: AutoScaler, *args: Any, **named: Any) -> Trigger | None:
        found = trigger(self, *args, **named)
        return found if found is Trigger.CONSUMERS else None

    monkeypatch.setattr(AutoScaler, "_trigger", deaf)
    violation_found("has yet to do by itself", first_seed=1)
