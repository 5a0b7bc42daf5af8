"""The promises of the cluster, under faults, for a fixed set of seeds."""

from __future__ import annotations

import msgspec
import pytest

from simulation.run import Report, simulate

SEEDS = 500
SEEDS_PER_TEST = 20

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_no_fault_makes_two_owners_and_all_units_are_owned_again(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        report = simulate(seed)
        if report.violation:
            pytest.fail(report.explain(), pytrace=False)


def test_a_seed_repeats_its_run_exactly() -> None:
    for seed in (3, 4):
        assert simulate(seed) == simulate(seed)
        assert simulate(seed).fingerprint != simulate(seed + 100).fingerprint


def test_the_runs_see_what_they_are_made_to_see() -> None:
    """A harness that no longer provokes anything would pass every seed."""
    reports = [simulate(seed) for seed in range(30)]
    seen = {kind for report in reports for kind in report.accepted}
    assert seen >= {
        "ASSIGN",
        "OWN",
        "RELEASE",
        "HAND_OVER",
        "FREE",
        "SPLIT",
        "SPLIT_COMMIT",
        "TOMBSTONE",
        "RECLAIM",
        "OVERRIDE",
        "ELECT",
        "SUCCEED",
        "RESIGN",
        "SessionChange.OPEN",
        "SessionChange.CLOSE",
        "SessionChange.EXPIRE",
        "NamespaceChange.CREATE",
    }
    lost = {reason for report in reports for reason in report.rejected}
    assert lost >= {"STALE_VERSION", "REPEATED", "SESSION_OVER", "TARGET_UNKNOWN", "UNREADABLE"}
    assert {report.nodes for report in reports} >= {3, 5, 7}


def test_a_failure_names_the_command_that_repeats_it() -> None:
    found = Report(
        seed=7,
        violation="two owners at once",
        fingerprint="",
        nodes=3,
        simulated_s=1.0,
        rest_s=0.0,
        events=1,
        accepted={},
        rejected={},
        busiest_second=1,
    )
    assert "python -m simulation.run --seed 7 --trace" in found.explain()
    found = msgspec.structs.replace(found, world="--topics")
    assert "python -m simulation.run --seed 7 --topics --trace" in found.explain()
