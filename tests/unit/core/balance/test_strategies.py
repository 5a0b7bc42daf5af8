"""Strategies of one's own: what they decide, within which rules, and what becomes of nonsense."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.bundle_load import BundleLoad
from anabranch.core.balance.choosing import Candidate, LoadChooser
from anabranch.core.balance.counters import SplitReason, UnloadReason
from anabranch.core.balance.offload import ClusterView, Unmoved
from anabranch.core.balance.policies import NO_POLICIES
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.balance.shedding import RoundEnd, ShedderState, decide
from anabranch.core.balance.splitting import OwnerView, decide_splits
from anabranch.core.balance.strategies import Cut, Strategies, StrategyKind, WantedMove
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.grounds import strategy_of
from support.rules_view import NOW_MS, view_of
from support.shedder_by_the_rules import RulesBroker

A, B, C = "a:80", "b:80", "c:80"
X, Y = "t/n/0x00000000_0x40000000", "t/n/0x40000000_0x80000000"
OWN = BalanceSettings(
    load_shedding_strategy="own",
    load_placement_strategy="own",
    bundle_split_strategy="own",
    shedding_condition_hit_count_threshold=0,
    namespace_bundle_split_condition_hit_count_threshold=0,
)
BUILT_IN = replace(
    OWN, load_shedding_strategy="", load_placement_strategy="", bundle_split_strategy=""
)
VIEW = view_of(
    [
        RulesBroker(A, 0.9, 90.0, 90.0, [(X, 10.0), (Y, 30.0)]),
        RulesBroker(B, 0.3, 30.0, 30.0, []),
        RulesBroker(C, 0.2, 20.0, 20.0, []),
    ]
)


class Text(str):
    """As numpy's: equal to a string, and no record takes it."""

    __slots__ = ()


def own(kind: StrategyKind, strategy: Callable[..., Any]) -> Strategies:
    return Strategies({kind: {"own": strategy}})


def shedder(*wanted: Any) -> Strategies:
    return own(StrategyKind.SHEDDER, lambda view, settings: wanted)


def raises(*given: object) -> None:
    raise ZeroDivisionError("by nothing")


def own_raises() -> Strategies:
    return own(StrategyKind.SHEDDER, raises)


def endless(view: ClusterView, settings: BalanceSettings) -> Iterator[WantedMove]:
    while True:
        yield WantedMove(X, B)


def test_a_shedder_of_one_s_own_decides_what_moves_and_is_named() -> None:
    asked = shedder(WantedMove(Y, B, UnloadReason.UNDERLOADED), WantedMove(X, C))
    patient = replace(OWN, shedding_condition_hit_count_threshold=1)
    state, found = decide(ShedderState(), VIEW, patient, NOW_MS, asked)
    assert (found.ended, found.decisions) == (RoundEnd.HITS, ()), "the hit count is the house's"
    _, found = decide(state, VIEW, patient, NOW_MS, asked)
    moved = [(each.bundle, each.source, each.destination, each.reason) for each in found.decisions]
    assert moved == [(Y, A, B, UnloadReason.UNDERLOADED), (X, A, C, UnloadReason.OVERLOADED)]
    assert (found.strategy, found.fault, found.ended) == ("own", "", RoundEnd.ASKED)
    first, second = found.decisions
    assert first.std_before > first.std_after == second.std_before > second.std_after
    _, found = decide(state, replace(VIEW, top={}), patient, NOW_MS, own_raises())
    assert (found.hits, found.fault) == (2, ""), "who does not lead does not ask, and counts on"
    _, found = decide(ShedderState(9), VIEW, OWN, NOW_MS, shedder())
    assert (found.decisions, found.hits, found.ended) == ((), 0, RoundEnd.ASKED)


@pytest.mark.parametrize(
    ("settings", "lately", "why"),
    [
        (replace(OWN, shedding_excluded_namespaces=("t/n",)), {}, Unmoved.EXCLUDED),
        (OWN, {X: NOW_MS - 1}, Unmoved.MOVED_LATELY),
    ],
)
def test_what_may_not_move_stays_whatever_a_strategy_asks(
    settings: BalanceSettings, lately: dict[str, int], why: Unmoved
) -> None:
    state = ShedderState(unloaded_bundles=lately)
    _, found = decide(state, VIEW, settings, NOW_MS, shedder(WantedMove(X, B)))
    assert (found.decisions, found.strategy) == ((), "own")
    assert found.exchanges[0].unmoved == ((X, why),)


@pytest.mark.parametrize(
    ("strategies", "why"),
    [
        (Strategies(), "it is not installed on this node"),
        (own_raises(), "it raised ZeroDivisionError: by nothing"),
        (own(StrategyKind.SHEDDER, lambda view, settings: None), "it raised TypeError"),
        (own(StrategyKind.SHEDDER, endless), f"{X} is named twice"),
        (shedder("x"), "it answered 'x', which is no WantedMove"),
        (shedder(WantedMove("t/n/z", B)), "no broker has reported bundle 't/n/z'"),
        (shedder(WantedMove(X, "z:80")), "'z:80' has no load"),
        (shedder(WantedMove(X, A)), f"{A} has {X} already"),
        (shedder(WantedMove(X, B, UnloadReason.ADMIN)), "is no reason to move a bundle"),
        (shedder(WantedMove(X, B, 3)), "Expected `str`, got `int`"),  # type: ignore[arg-type]
        (shedder(WantedMove(X, Text(B))), "objects of type Text"),
        (own(StrategyKind.SHEDDER, lambda view, settings: view.loads.clear()), "AttributeError"),
    ],
)
def test_a_shedder_that_raises_or_answers_nonsense_is_named_and_the_built_in_one_goes_on(
    strategies: Strategies, why: str
) -> None:
    _, found = decide(ShedderState(), VIEW, OWN, NOW_MS, strategies)
    _, wanted = decide(ShedderState(), VIEW, BUILT_IN, NOW_MS)
    assert found.decisions
    assert replace(found, fault="") == wanted
    assert found.fault.startswith("strategy own did not decide: ")
    assert why in found.fault
    assert strategies.faults[StrategyKind.SHEDDER] == found.fault
    good = shedder(WantedMove(X, B))
    good.faults = dict(strategies.faults)
    assert decide(ShedderState(), VIEW, OWN, NOW_MS, good)[1].fault == "", "until it does"
    assert good.faults == {StrategyKind.SHEDDER: ""}


def chosen(strategy: Callable[..., Any]) -> tuple[str, str]:
    """Who takes a bundle, and by which rule; the built-in one would take C."""
    topics = {B: OWN.broker_max_topics}  # so that B is filtered out

    def candidate(broker: str) -> Candidate:
        usage = {A: 0.9, B: 0.1, C: 0.1}[broker]
        load = BrokerLoadData(topics=topics.get(broker, 0), weighted_max_ema=usage)
        return Candidate(broker, "1.0.0", load)

    asked = own(StrategyKind.ASSIGNMENT, strategy)
    choose = LoadChooser(MemoryReplica(), OWN, NO_POLICIES, candidate, asked)
    broker, (grounds,) = choose(X, {A: 3, B: 2, C: 1})
    return broker, grounds.rule


def test_an_assignment_of_one_s_own_chooses_among_those_that_all_filters_left() -> None:
    broker, rule = chosen(lambda unit, kept, counts, settings: max(kept, key=str).broker)
    assert (broker, strategy_of(rule)) == (C, "own")
    broker, rule = chosen(lambda unit, kept, counts, settings: max(counts, key=counts.__getitem__))
    assert (broker, strategy_of(rule)) == (A, "own")


@pytest.mark.parametrize("answer", [raises, lambda *_: B, lambda *_: "", lambda *_: Text(A)])
def test_an_assignment_that_makes_no_sense_is_named_and_the_built_in_one_goes_on(
    answer: Callable[..., Any],
) -> None:
    broker, rule = chosen(answer)
    assert (broker, strategy_of(rule)) == (C, "")
    assert "; strategy own did not decide: " in rule


LOADS = {X: BundleLoad(topics=2_000), Y: BundleLoad(topics=2, consumers=500)}


def split(strategy: Callable[..., Any], settings: BalanceSettings = OWN) -> Any:
    view = OwnerView(LOADS, lambda _: True, lambda _: 2, (), lambda _: ())
    return decide_splits({}, view, settings, own(StrategyKind.SPLIT, strategy))[1]


def test_a_split_of_one_s_own_decides_what_is_cut_and_where() -> None:
    found = split(lambda loads, settings: [Cut(Y, SplitReason.SESSIONS, "hot", 0x50000000)])
    [cut] = found.decisions
    assert (cut.bundle, cut.boundary, cut.reason, cut.why) == (
        *(Y, 0x50000000),
        *(SplitReason.SESSIONS, "hot"),
    )
    assert (found.strategy, found.fault) == ("own", "")
    [middle] = split(lambda *_: [Cut(Y, SplitReason.TOPICS)]).decisions
    assert middle.boundary == 0x60000000, "where the algorithm of the settings cuts"
    one = replace(OWN, max_number_of_bundles_to_split_per_cycle=1)
    both = split(lambda *_: [Cut(Y, SplitReason.TOPICS), Cut(X, SplitReason.TOPICS)], one)
    assert [each.bundle for each in both.decisions] == [Y], "the first one is the most urgent"
    full = replace(OWN, namespace_maximum_bundles=2)
    assert not split(lambda *_: [Cut(Y, SplitReason.TOPICS)], full).decisions


@pytest.mark.parametrize(
    "strategy",
    [
        raises,
        lambda *_: [X],
        lambda *_: [Cut("t/n/z", SplitReason.TOPICS)],
        lambda *_: [Cut(X, SplitReason.TOPICS), Cut(X, SplitReason.TOPICS)],
        lambda *_: [Cut(X, SplitReason.ADMIN)],
        lambda *_: [Cut(X, SplitReason.TOPICS, "", 0x40000000)],
        lambda *_: [Cut(X, SplitReason.TOPICS, "", 0.5)],  # type: ignore[arg-type]
        lambda *_: [Cut(X, "Heat")],  # type: ignore[arg-type]
    ],
)
def test_a_split_that_makes_no_sense_is_named_and_the_built_in_one_goes_on(
    strategy: Callable[..., Any],
) -> None:
    found = split(strategy)
    assert found.fault.startswith("strategy own did not decide: ")
    assert replace(found, fault="") == split(strategy, BUILT_IN)
    assert [each.bundle for each in found.decisions] == [X]
