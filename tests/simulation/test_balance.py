"""A large cluster whose loads change and whose nodes crash and stop comes to rest when they do."""

from __future__ import annotations

import pytest

from anabranch.core.log.state import leader_of
from simulation.balance_world import SETTINGS, BalanceWorld

CYCLE_STEPS = 3  # a shedding interval
CYCLES_MAX = 60  # after the load stands still: cool-down and hits let every seventh one act


@pytest.mark.parametrize(
    ("seed", "nodes", "bundles"),
    [(1, 20, 2_000), pytest.param(2, 100, 10_000, marks=pytest.mark.long)],
)
def test_deviation_comes_under_its_target_once_the_load_stands_still(
    seed: int, nodes: int, bundles: int
) -> None:
    world = BalanceWorld(seed, nodes, bundles)
    world.begin()
    assert world.deviation() > SETTINGS.broker_load_target_std
    for _ in range(25):
        world.change_loads()
        world.disturb()
        world.run(CYCLE_STEPS)
        world.check_owners()
    assert min(world.faults["crash"], world.faults["pause"]) >= 5
    world.run(20)  # whoever went is back
    cycles = 0
    while world.deviation() > SETTINGS.broker_load_target_std:
        assert cycles < CYCLES_MAX, world.deviation()
        world.run(CYCLE_STEPS)
        world.check_owners()
        cycles += 1
    assert sum(map(len, world.moved.values())) > 0
    world.run(CYCLE_STEPS * 20)
    assert world.deviation() <= SETTINGS.broker_load_target_std, "and it stays there"
    world.check_owners()


def test_a_leader_that_goes_in_the_middle_of_a_cycle_leaves_the_rest_to_the_next_one() -> None:
    world = BalanceWorld(7, 10, 500)
    world.begin()
    world.crash_after = 1
    leaders = {leader_of(world.replica)[0]}
    for _ in range(60):
        world.run(CYCLE_STEPS)
        world.check_owners()
        leaders.add(leader_of(world.replica)[0])
    assert len(leaders) > 1
    assert world.faults["crash"] > 1
    world.crash_after = None
    world.run(CYCLE_STEPS * CYCLES_MAX)
    assert world.deviation() <= SETTINGS.broker_load_target_std
    assert world.under_way() == []
