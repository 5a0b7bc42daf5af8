"""Who may do what, under faults: the log refuses what its principal has no right to just then."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.core.log import fold
from anabranch.core.security import changes
from anabranch.core.tenants import evolve as tenants
from anabranch.core.topics import evolve as topics
from simulation.planted import first_violation
from simulation.run import simulate

SEEDS = 60
SEEDS_PER_TEST = 20
SEEDS_MAX = 40

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_no_fault_lets_a_change_through_that_somebody_had_no_right_to(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        report = simulate(seed, roles=True)
        if report.violation:
            pytest.fail(report.explain(), pytrace=False)


def test_the_runs_see_what_they_are_made_to_see() -> None:
    seen: Counter[str] = Counter()
    for seed in range(20):
        report = simulate(seed, roles=True)
        seen.update(report.seen)
    assert set(seen) == {
        "granted",
        "revoked",
        "let through",
        "let through by a proxy",
        "refused, or revoked, for the proxy",
        "refused",
        "revoked meanwhile",
        "gone with what it was on",
    }


def test_a_seed_repeats_its_run_exactly() -> None:
    assert simulate(3, roles=True) == simulate(3, roles=True)


def violation_found(expected: str) -> None:
    report = first_violation(range(SEEDS_MAX), roles=True)
    assert expected in report.violation, report.explain()
    assert "--roles --trace" in report.explain()


def test_a_fold_that_does_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "is_permitted", lambda state, record: True)
    violation_found("had no right to")


def test_a_fold_that_asks_nothing_of_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = changes.is_permitted

    def of_principals(state: Any, record: Any) -> bool:
        by_itself = hasattr(record, "proxied_by")
        return ask(state, replace(record, proxied_by="") if by_itself else record)

    monkeypatch.setattr(fold, "is_permitted", of_principals)
    violation_found("gate had no right to")


def test_a_fold_that_takes_a_broker_s_look_for_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers look at what they have read; what was revoked behind that lands all the same."""
    looked: set[str] = set()
    ask = changes.is_permitted

    def by_the_look(state: object, record: object) -> bool:
        return getattr(record, "proposal_id", "") in looked or ask(state, record)  # type: ignore[arg-type]

    def look(state: object, record: object) -> bool:
        found = ask(state, record)  # type: ignore[arg-type]
        if found:
            looked.add(record.proposal_id)  # type: ignore[attr-defined]
        return found

    monkeypatch.setattr(fold, "is_permitted", by_the_look)
    monkeypatch.setattr("simulation.roles.is_permitted", look)
    violation_found("had no right to")


@pytest.mark.parametrize("module", [tenants, topics])
def test_what_is_granted_on_a_thing_that_outlives_it(
    module: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "revoked_with", lambda state, scope: [])
    violation_found("something is still granted to")
