"""A large cluster whose loads change comes to rest when they do."""

from __future__ import annotations

import pytest

from simulation.balance_world import SETTINGS, BalanceWorld

CYCLE_STEPS = 3  # a shedding interval
CYCLES_MAX = 60  # after the load stands still: cool-down and hits let every seventh one act


@pytest.mark.parametrize(
    ("seed", "nodes", "bundles"),
    [(1, 20, 2_000), pytest.param(2, 100, 10_000, marks=[pytest.mark.long, pytest.mark.lasting])],
)
def test_deviation_comes_under_its_target_once_the_load_stands_still(
    seed: int, nodes: int, bundles: int
) -> None:
    world = BalanceWorld(seed, nodes, bundles)
    world.begin()
    assert world.deviation() > SETTINGS.broker_load_target_std
    for _ in range(25):
        world.change_loads()
        world.run(CYCLE_STEPS)
    cycles = 0
    while world.deviation() > SETTINGS.broker_load_target_std:
        assert cycles < CYCLES_MAX, world.deviation()
        world.run(CYCLE_STEPS)
        cycles += 1
    assert sum(map(len, world.moved.values())) > 0
    world.run(CYCLE_STEPS * 20)
    assert world.deviation() <= SETTINGS.broker_load_target_std, "and it stays there"
