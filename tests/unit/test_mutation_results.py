"""What `make mutants` says of mutants: which count, and which survivors are explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutation import results, tree
from mutation.results import Explained, Mutant
from mutation.run import PROJECT
from mutation.targets import ROOTS, TARGETS, Target

PAGE = Path(results.__file__).with_name("survivors.toml")


def mutants(*statuses: str) -> list[Mutant]:
    return [
        Mutant(f"anabranch.core.sessions.lease.xǁLeaseǁrenew__mutmut_{number}", status)
        for number, status in enumerate(statuses)
    ]


def test_the_share_is_of_the_mutants_that_were_run() -> None:
    found = mutants("killed", "caught by type check", "timeout", "survived", "not checked")
    assert results.score(found) == (3, 4)
    assert results.survivors(found) == [found[3]]
    assert found[3].function == "core.sessions.lease.Lease.renew"
    told = results.table({"core-rules": found})
    assert "| core-rules | 5 | 4 | 3 | 75.0%, **below 95%** |" in told


def test_a_survivor_is_explained_in_its_function_or_by_a_pattern_that_matches_all_of_it() -> None:
    one = Explained("a > b -> a >= b", "why", "core.sessions.lease.due")
    assert one.covers("core.sessions.lease.due", "a > b -> a >= b")
    assert not one.covers("core.sessions.lease.other", "a > b -> a >= b")
    pattern = Explained(r"(.*)\.get\((\w+), None\) -> \1\.get\(\2, \)", "the same")
    assert pattern.covers("core.sessions.lease.due", "x = d.get(k, None) -> x = d.get(k, )")
    assert not pattern.covers("core.sessions.lease.due", "x = d.get(k, None) -> x = d.get(j, )")
    assert not pattern.covers("core.sessions.lease.due", "x = d.get(k, None) -> x = d.get(k, ) + 1")


def test_every_explanation_gives_a_change_and_a_reason() -> None:
    for each in results.explanations(PAGE):
        assert each.change
        assert each.reason


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_type_checker_is_given_each_package_once_and_by_a_path_that_exists(
    target: Target,
) -> None:
    """Else it would refuse no mutant, and those that tests leave to it would survive."""
    packages = [Path(each) for each in tree.packages(target)]
    for package in packages:
        below = package.relative_to("src")
        assert any((PROJECT / root / below).is_dir() for root in ROOTS), package
        assert not set(package.parents) & set(packages), package
