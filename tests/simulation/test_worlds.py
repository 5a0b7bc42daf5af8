"""Each world keeps its promises under faults (docs/simulation.md names them), seed by seed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from anabranch.core.entities.subscription import SubscriptionOp
from anabranch.core.entities.topic import Operation, TopicMove
from simulation.run import WORLDS, Report, simulate
from support.budget import Budget

_TESTS = Path(__file__).parents[1]
PARTS = 4  # of a world's seeds, so that several processes share them
PART_SEEDS = 1_000_000
PART_S = 6.0

pytestmark = [pytest.mark.simulation, pytest.mark.parametrize("world", WORLDS)]


@pytest.mark.timeout(0)  # it takes as long as its budget says
@pytest.mark.parametrize("part", range(PARTS))
def test_no_fault_breaks_a_promise(world: str, part: int, budget: Budget) -> None:
    for seed in replace(budget, first_seed=budget.first_seed + part * PART_SEEDS).seeds(PART_S):
        report = simulate(seed, world)
        if report.violation:
            pytest.fail(report.explain(), pytrace=False)


def test_a_seed_repeats_its_run_exactly_in_this_process_and_in_others(world: str) -> None:
    """The order of a set of strings differs from process to process, unless that is forbidden."""
    command = [sys.executable, "-m", "simulation.run", "--world", world, "--seed", "1"]
    inherited = {**os.environ, "PYTHONPATH": str(_TESTS), "PYTHONHASHSEED": "1"}
    done = subprocess.run(command, env=inherited, capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stdout[-2000:] + done.stderr[-2000:]
    assert msgspec.json.decode(done.stdout, type=Report) == simulate(1, world) == simulate(1, world)


def test_a_failure_names_the_command_that_repeats_it(world: str) -> None:
    report = Report(world, 7, "two owners at once", "", 3, 1.0, 0.0, 1, {}, {}, 1)
    assert f"python -m simulation.run --world {world} --seed 7 --trace" in report.explain()


_UNITS = (
    *("ASSIGN", "OWN", "RELEASE", "HAND_OVER", "FREE", "SPLIT", "SPLIT_COMMIT", "TOMBSTONE"),
    *("RECLAIM", "OVERRIDE", "ELECT", "SUCCEED", "RESIGN", "NamespaceChange.CREATE"),
    *("SessionChange.OPEN", "SessionChange.CLOSE", "SessionChange.EXPIRE"),
)
_NOT_SHOWN = {TopicMove.UPDATE, TopicMove.LOST, TopicMove.BEGIN}  # that is told by its operation
_TOPICS = (
    # Nobody updates a topic or loses one of Kafka here, and there are no queues.
    *(f"TopicChange.{each.name}" for each in {*Operation} - {Operation.NONE, Operation.RESTORE}),
    *(f"TopicChange.{each.name}" for each in {*TopicMove} - _NOT_SHOWN),
    *(f"SubscriptionChange.{op.name}" for op in {*SubscriptionOp} - {SubscriptionOp.DEAD_LETTER}),
    *("CONSUMER_COUNT", "MSG_RATE_IN", "COLD", "BELOW_SPLIT_RATE_FLOOR"),
)
_OFTEN = ("stored", "redelivered", "handed_on", "settled_in_doubt", "lapses")
# A seek is one record, positions included, so fewer fail on the way than are made.
_AT_TIMES = ("failed_seeks", "auto_split", "auto_merge", "auto_rebucket", "auto_after_fail_over")
# How many seeds show how often what they are made to show.
SHOWN: dict[str, tuple[int, dict[str, int]]] = {
    "cluster": (
        30,
        dict.fromkeys(
            (
                *_UNITS,
                *("STALE_VERSION", "REPEATED", "SESSION_OVER", "TARGET_UNKNOWN", "UNREADABLE"),
                *("3 nodes", "5 nodes", "7 nodes"),
            ),
            1,
        ),
    ),
    "topics": (
        80,
        dict.fromkeys((*_TOPICS, "STALE_VERSION", "SESSION_OVER"), 1)
        | dict.fromkeys((*_OFTEN, "seeks", "checkpoints", "stopped", "removed"), 20)
        | {"kept": 1}
        | dict.fromkeys(
            ("adopted", "cut_over", "cut_over_refused", "given_back", "released", "forgotten"), 1
        )
        | {"audited_drains": 1_000, "worked": 1_000}
        | dict.fromkeys(("failed", "told", "repeated", "maps", "aside"), 15)
        | dict.fromkeys(_AT_TIMES, 10),
    ),
}


@pytest.mark.long
@pytest.mark.timeout(0)
def test_the_runs_see_what_they_are_made_to_see(world: str) -> None:
    """A harness that no longer provokes anything would pass every seed."""
    seen: Counter[str] = Counter()
    seeds, least = SHOWN[world]
    for seed in range(seeds):
        report = simulate(seed, world)
        seen.update({f"{report.nodes} nodes": 1})
        for each in (report.accepted, report.rejected, report.seen):
            seen.update(each)
    assert {name: seen[name] for name, count in least.items() if seen[name] < count} == {}
