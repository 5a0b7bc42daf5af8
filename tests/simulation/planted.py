"""To plant a bug: seeds in which what it needs happens, and one of them that must find it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.client import Backoff, Retry
from simulation import run
from simulation.topic_load import LoadShape
from simulation.topic_plan import RunPlan

SEEDS_MAX = 150


def noticed(world: str, *expected: str, first_seed: int = 0) -> None:
    """Fails unless a seed finds a violation, and the first one found is one of those expected.

    A checkpoint's readers show a bug in other words than a stream's, and either may come first.
    `first_seed`: one known to find what few others do, so that it is found soon.
    """
    for seed in range(first_seed, first_seed + SEEDS_MAX):
        report = run.simulate(seed, world)
        if report.violation:
            assert any(each in report.violation for each in expected), report.explain()
            return
    pytest.fail(f"{SEEDS_MAX} seeds found nothing")


def drawn(monkeypatch: pytest.MonkeyPatch, name: str, **changes: object) -> None:
    """Each seed draws its plan as usual, except for this: what a rare bug needs always happens."""
    draw = getattr(run, name)

    def changed(*args: Any) -> Any:
        return replace(draw(*args), **changes)

    monkeypatch.setattr(run, name, changed)


def stormy(monkeypatch: pytest.MonkeyPatch, **topics: object) -> None:
    """Operators and clients are busy, on a steady load, with nothing else than what is named."""
    usual = {"operators": True, "load": LoadShape("constant", 1.0)}
    usual |= {"late": False, "removes": False, "adopts": False, "running": RunPlan()}
    drawn(monkeypatch, "draw_topics", **usual | topics)
    drawn(monkeypatch, "with_topics", client_interval_s=0.1)


def side_by_side(
    monkeypatch: pytest.MonkeyPatch, work: Mapping[str, object] | None = None, **topics: object
) -> None:
    """All consumers run handlers. `work`: of their `RunPlan`, what differs from the usual."""
    retry = Retry(attempts_max=3, delay_s=Backoff(first=0.05, most=0.5))
    usual = RunPlan(share=1.0, concurrency=10, retry=retry, busy_s=0.3, fails=0.1)
    running = replace(usual, **(work or {}))
    few = {"topics": 1, "passing_topics": 0, "subscriptions": 1, "checkpoints": False, "seeks": 0.0}
    few |= {"consumers": 3, "forgets": False, "client_fault_interval_s": 1.0}
    stormy(monkeypatch, **few | {"running": running} | topics)


def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little goes wrong with the cluster: what a bug needs is with Kafka and its clients."""
    rare = {"client_interval_s": 3.0, "fault_kinds": ("pause",), "fault_interval_s": 60.0}
    drawn(monkeypatch, "with_topics", **rare)
