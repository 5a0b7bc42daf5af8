"""To plant a bug: seeds in which what it needs happens, and one of them that must find it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from simulation import run
from simulation.run import Report, simulate
from simulation.topic_load import LoadShape
from simulation.topic_plan import draw_topics, with_topics

SEEDS_MAX = 150


def first_violation(seeds: Sequence[int], **of: bool) -> Report:
    """The report of the first seed that finds a violation; `of`: what `simulate` simulates."""
    for seed in seeds:
        report = simulate(seed, **of)
        if report.violation:
            return report
    raise AssertionError(f"{len(seeds)} seeds found nothing")


def violation_found(*expected: str, first_seed: int = 0) -> None:
    """Fails unless a seed finds a violation, and the first one found is one of those expected.

    A checkpoint's readers show a bug in other words than a stream's, and either may come first.
    `first_seed`: one known to find what few others do, so that it is found soon.
    """
    report = first_violation(range(first_seed, first_seed + SEEDS_MAX), topics=True)
    assert any(each in report.violation for each in expected), report.explain()


def stormy(monkeypatch: pytest.MonkeyPatch, **topics: object) -> None:
    """Every seed is drawn as usual, except for this: what a rare bug needs happens all the time."""
    usual = {
        "operators": True,
        "load": LoadShape("constant", 1.0),
        "queue_consumers": 0,
        "many": False,
    }
    by_hand = {**usual, **topics}
    monkeypatch.setattr(
        run, "draw_topics", lambda rng: msgspec.structs.replace(draw_topics(rng), **by_hand)
    )
    monkeypatch.setattr(
        run,
        "with_topics",
        lambda plan, rng: msgspec.structs.replace(with_topics(plan, rng), client_interval_s=0.1),
    )


def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little goes wrong with the cluster: what a bug needs is with Kafka and its clients."""
    rare = {"client_interval_s": 3.0, "fault_kinds": ("pause",), "fault_interval_s": 60.0}
    monkeypatch.setattr(
        run,
        "with_topics",
        lambda plan, rng: msgspec.structs.replace(with_topics(plan, rng), **rare),
    )
