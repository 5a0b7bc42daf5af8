"""A schedule is data of its seed, and what it says can be done."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from faults.network import commands
from faults.schedule import FAULTS_MAX, Kind, Parties, Tier, rounds, schedule

_PARTIES = Parties(("node-1", "node-2"), ("kafka-1", "kafka-2", "kafka-3"), ("producers",))


def test_a_seed_gives_the_same_schedule_again_and_another_one_another() -> None:
    assert schedule(3, _PARTIES, 20) == schedule(3, _PARTIES, 20)
    assert schedule(3, _PARTIES, 20) != schedule(4, _PARTIES, 20)


def test_a_longer_schedule_begins_with_the_shorter_one() -> None:
    assert schedule(3, _PARTIES, 20)[:7] == schedule(3, _PARTIES, 7)


@pytest.mark.parametrize("faults", [0, 1, 50, 51, 120, 500])
def test_all_that_are_asked_for_are_done_and_no_run_has_more_than_it_bears(faults: int) -> None:
    seeds = [seed for seed, _ in rounds(faults, 7)]
    counts = [count for _, count in rounds(faults, 7)]
    assert sum(counts) == faults
    assert all(0 < count <= FAULTS_MAX for count in counts)
    assert seeds == list(range(7, 7 + len(seeds)))


def test_every_kind_comes_and_some_overlap() -> None:
    faults = schedule(5, _PARTIES, 500)
    assert set(Counter(each.kind for each in faults)) == set(Kind)
    assert any(one.at_s + one.for_s > next_one.at_s for one, next_one in pairwise(faults))


def test_n_faults_take_no_longer_than_six_seconds_each() -> None:
    for seed in range(20):
        assert max(each.at_s + each.for_s for each in schedule(seed, _PARTIES, 50)) < 50 * 6


@pytest.mark.parametrize("kind", Kind)
def test_a_kind_is_done_to_whom_it_can_be_done(kind: Kind) -> None:
    known = {name for tier in Tier for name in _PARTIES.of(tier)}
    for fault in schedule(7, _PARTIES, 50, [kind]):
        assert fault.kind is kind
        assert fault.targets
        assert {*fault.targets, *fault.peers} <= known
        assert not set(fault.targets) & set(fault.peers)
        assert str(fault).startswith(kind.name.lower())
        if kind.is_network:
            addresses = tuple(f"10.0.0.{at}" for at, _ in enumerate(fault.peers))
            told = " ".join(commands(kind, fault.strength, addresses))
            assert all(address in told for address in addresses)


def test_clients_do_not_speak_to_each_other() -> None:
    several = Parties(("node-1",), ("kafka-1",), ("producers", "consumers"))
    for fault in schedule(7, several, 200, [Kind.CUT]):
        if fault.targets[0] in several.clients:
            assert not set(fault.peers) & set(several.clients)
