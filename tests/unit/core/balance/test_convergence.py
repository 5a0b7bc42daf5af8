"""From everything on one of ten nodes: no more cycles and moves than the rules step by step."""

from __future__ import annotations

import math
from collections.abc import Callable

from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.balance.shedding import ShedderState, decide
from support.rules_view import NOW_MS, view_of
from support.shedder_by_the_rules import RulesBroker, RulesSettings, RulesShedder

MB = 1e6
BROKERS = [f"b{number}:8080" for number in range(10)]
CYCLES_MAX = 200  # at which it is given up

Moves = list[tuple[str, str, str]]


def ours(brokers: list[RulesBroker]) -> Moves:
    settings = BalanceSettings(shedding_condition_hit_count_threshold=0)
    _, found = decide(ShedderState(), view_of(brokers), settings, NOW_MS)
    return [(each.bundle, each.source, each.destination) for each in found.decisions]


def come_to_rest(call: Callable[[list[RulesBroker]], Moves]) -> tuple[int, int]:
    """Cycles that moved something, and moves."""
    weights = [1 / rank**1.1 for rank in range(1, 1_001)]
    traffic = {f"t/n/{rank}": 2 * each / math.fsum(weights) for rank, each in enumerate(weights)}
    owner = dict.fromkeys(traffic, BROKERS[0])
    cycles = moves = 0
    while cycles < CYCLES_MAX:
        found = call([_broker(name, traffic, owner) for name in BROKERS])
        if not found:
            break
        cycles, moves = cycles + 1, moves + len(found)
        owner.update((bundle, to) for bundle, _, to in found)
    return cycles, moves


def _broker(name: str, traffic: dict[str, float], owner: dict[str, str]) -> RulesBroker:
    mine = sorted((amount, bundle) for bundle, amount in traffic.items() if owner[bundle] == name)
    load = math.fsum(amount for amount, _ in mine)
    top = [(bundle, amount * 100 * MB) for amount, bundle in mine[-10:]]
    return RulesBroker(name, load, load * 100 * MB, load * 100 * MB, top)


def test_no_more_cycles_and_moves_than_the_rules_take() -> None:
    theirs = come_to_rest(RulesShedder(RulesSettings(threshold=0)).call)
    assert theirs == (10, 109), "as docs/figures.md says"
    found = come_to_rest(ours)
    assert found[0] <= theirs[0]
    assert found[1] <= theirs[1]
