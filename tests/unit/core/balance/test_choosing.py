"""The filters, the rule of the least use, and a node's choice by both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import count

import msgspec
import pytest
from msgspec.structs import replace

from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.choosing import (
    BrokerFilter,
    Candidate,
    ChoiceReason,
    Filtered,
    LoadChooser,
    Terms,
    choose,
    filtered,
    owned_in_group,
)
from anabranch.core.balance.policies import (
    NO_POLICIES,
    FailureDomain,
    IsolationPolicy,
    Policies,
)
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.entities.unit import Move, UnitState
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.grounds import WEIGHED_MAX, Weighed
from anabranch.core.log.records import Record, UnitMove
from anabranch.core.log.verdicts import Verdict
from support.stage import Actor, Stage, state_of
from support.there import there
from support.world import FIRST, A, B, World
from support.world import UNIT as WORLD_UNIT

TERMS = Terms("t/n", BalanceSettings(), Policies())


def candidate(name: str, **fields: object) -> Candidate:
    """`b1` is the broker b1:8080."""
    return replace(Candidate(f"{name}:8080", "1.2.3"), **fields)


def candidates(*names: str) -> list[Candidate]:
    return [candidate(name) for name in names]


def loaded(loads: Mapping[str, float]) -> list[Candidate]:
    return [
        candidate(name, load=BrokerLoadData(weighted_max_ema=load)) for name, load in loads.items()
    ]


def kept(found: Filtered) -> str:
    return " ".join(each.broker.removesuffix(":8080") for each in found.kept)


# --- each filter --------------------------------------------------------------------------------


def test_a_broker_with_the_most_topics_that_it_may_have_is_out() -> None:
    offered = [
        candidate("b1", load=BrokerLoadData(topics=49_999)),
        candidate("b2", load=BrokerLoadData(topics=50_000)),
        candidate("b3"),
    ]
    found = filtered(offered, TERMS)
    assert kept(found) == "b1 b3"
    assert found.removed == (("b2:8080", BrokerFilter.MAX_TOPIC_COUNT),)


POLICY = IsolationPolicy(("t/.*",), ("p.*",), ("s.*",), min_limit=2)


def test_without_a_policy_primary_brokers_of_others_are_out() -> None:
    offered = [
        candidate("p1"),
        candidate("s1"),
        candidate("x1"),
        Candidate("x2", "1.2.3"),  # no id
    ]
    terms = replace(TERMS, namespace="u/n", policies=Policies(isolation={"one": POLICY}))
    assert kept(filtered(offered, terms)) == "s1 x1"


LATEST = replace(TERMS, settings=BalanceSettings(prefer_later_versions=True))


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (("2.10.1", "2.10.0", "2.10.1"), "b0 b2"),
        (("2.10.1-SNAPSHOT", "2.10.1"), "b1"),
        (("2.10.2-SNAPSHOT", "2.10.1"), "b0"),
        (("2.10.1", "2.9.9"), "b0"),
        (("1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-9"), "b1"),
        (("1.0.0-rc.2", "1.0.0-rc.10"), "b1"),
        (("1.0.0+a", "1.0.0+b", "0.9.9"), "b0 b1"),
    ],
)
def test_where_it_is_wished_for_only_the_latest_version_is_left(
    versions: tuple[str, ...], expected: str
) -> None:
    offered = [candidate(f"b{at}", version=version) for at, version in enumerate(versions)]
    assert kept(filtered(offered, LATEST)) == expected
    assert len(filtered(offered, TERMS).kept) == len(versions)


@pytest.mark.parametrize("version", ["", "1.2", "1.2.3.dev1", "v1.2.3", "1.2.x"])
def test_a_version_that_is_none_fails_the_filter_which_then_removes_nobody(version: str) -> None:
    found = filtered([candidate("b1", version="1.2.2"), candidate("b2", version=version)], LATEST)
    assert kept(found) == "b1 b2"
    [(name, why)] = found.failed
    assert name is BrokerFilter.VERSION
    assert f"bad version {version!r}" in why


GROUPED = replace(TERMS, policies=Policies(groups={"t/n": "g"}))


def in_group(**counts: int) -> Terms:
    return replace(GROUPED, in_group={f"{name}:8080": count for name, count in counts.items()})


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, "b1 b2 b3"),
        ({"b1": 1}, "b2 b3"),
        ({"b1": 1, "b2": 2, "b3": 1}, "b1 b3"),
        ({"b1": 2, "b2": 2, "b3": 2}, "b1 b2 b3"),
        ({"elsewhere": 5}, "b1 b2 b3"),
    ],
)
def test_the_brokers_with_the_fewest_bundles_of_the_group_are_left(
    counts: dict[str, int], expected: str
) -> None:
    offered = candidates("b1", "b2", "b3")
    assert kept(filtered(offered, in_group(**counts))) == expected
    ungrouped = replace(in_group(**counts), policies=Policies(groups={"t/n": "  "}))
    assert kept(filtered(offered, ungrouped)) == "b1 b2 b3"


def test_failure_domains_go_before_their_brokers_when_they_are_switched_on() -> None:
    policies = Policies(
        domains={"west": FailureDomain(("b1:8080", "b2:8080"))}, groups={"t/n": "g"}
    )
    terms = replace(in_group(b1=3, b3=1, b4=1), policies=policies)
    offered = candidates("b1", "b2", "b3", "b4")
    assert kept(filtered(offered, terms)) == "b2"
    on = replace(terms, settings=BalanceSettings(failure_domains_enabled=True))
    assert kept(filtered(offered, on)) == "b3 b4", "of no domain, so of one together"
    single = replace(in_group(b1=1), policies=policies, settings=on.settings)
    assert kept(filtered(offered, single)) == "b3 b4"
    assert kept(filtered(offered, replace(on, policies=Policies(groups={"t/n": "g"})))) == "b2"


def test_each_filter_says_whom_it_removed_and_one_that_fails_stops_none() -> None:
    full = BrokerLoadData(topics=50_000)
    offered = [candidate("b1"), candidate("b2", load=full), candidate("b3", version="")]
    terms = replace(in_group(b1=1), settings=BalanceSettings(prefer_later_versions=True))
    found, names = filtered(offered, terms), BrokerFilter
    assert (kept(found), [name for name, _ in found.failed]) == ("b3", [names.VERSION])
    assert found.removed == (
        ("b2:8080", names.MAX_TOPIC_COUNT),
        ("b1:8080", names.ANTI_AFFINITY_GROUP),
    )


def test_no_broker_is_preferred_which_a_policy_bars() -> None:
    """The reference compares groups first, and would leave only the broker that is barred."""
    policies = Policies(isolation={"one": POLICY}, groups={"t/n": "g"})
    terms = replace(in_group(p1=1, p2=1), policies=policies)
    assert kept(filtered(candidates("p1", "p2", "x1"), terms)) == "p1 p2"


def test_bundles_of_a_group_are_counted_by_their_owners() -> None:
    world = World(A, B)
    policies = Policies(groups={"public/default": "G", "other/one": "g"})
    assert owned_in_group(world.replica, policies, "g") == {}
    world.must(world.move(Move.ASSIGN, A, broker=A))
    world.must(world.move(Move.OWN, A))
    assert owned_in_group(world.replica, policies, "g") == {A: 1}
    assert owned_in_group(world.replica, policies, "other") == {}
    world.must(world.move(Move.RELEASE, A, broker=B))
    assert owned_in_group(world.replica, policies, "g") == {}, "on its way"


# --- the choice ---------------------------------------------------------------------------------


def chosen(offered: list[Candidate], terms: Terms = TERMS) -> set[str]:
    equals: list[str] = []

    def first(best: Sequence[str]) -> str:
        equals.extend(best)
        return best[0]

    choose(filtered(offered, terms), terms, first, count())
    return {broker.removesuffix(":8080") for broker in equals}


def test_the_threshold_itself_is_enough() -> None:
    terms = replace(
        TERMS, settings=BalanceSettings(average_resource_usage_difference_threshold_percentage=25.0)
    )
    assert chosen(loaded({"b1": 0.25, "b2": 0.75}), terms) == {"b1"}


def test_without_a_difference_anybody_is_chosen_also_of_unknown_load() -> None:
    offered = [*loaded({"b1": 0.50, "b2": 0.51, "b3": math.nan}), candidate("b4")]
    assert chosen(offered) == {"b1", "b2", "b3", "b4"}
    found = choose(filtered(offered, TERMS), TERMS, min, count())
    assert found.reason is ChoiceReason.NO_DIFFERENCE
    assert found.considered[2:] == (("b3:8080", None), ("b4:8080", None))


# --- a node's choice ---------------------------------------------------------------------------

UNIT = "public/default/0x00000000_0x40000000"


def chooser(loads: dict[str, float | None], policies: Policies = NO_POLICIES) -> LoadChooser:
    def candidate(broker: str) -> Candidate:
        load = loads[broker]
        data = None if load is None else BrokerLoadData(weighted_max_ema=load)
        return Candidate(broker, "1.0.0", data)

    return LoadChooser(MemoryReplica(), BalanceSettings(), policies, candidate)


def test_of_brokers_clearly_below_the_average_the_one_with_the_fewest_units_is_chosen() -> None:
    chooses = chooser({"a:1": 0.9, "b:1": 0.2, "c:1": 0.25})
    broker, (grounds,) = chooses(UNIT, {"a:1": 0, "b:1": 7, "c:1": 5})
    assert (broker, grounds.rule) == ("c:1", "less loaded than the average by the threshold")
    assert grounds.brokers == 3
    assert grounds.weighed == (Weighed("c:1", 0.25), Weighed("b:1", 0.2), Weighed("a:1", 0.9))
    assert grounds.deviation == pytest.approx(0.318852, abs=1e-6)
    assert grounds.predicted == -1.0


def test_without_any_load_the_one_with_the_fewest_units_is_chosen() -> None:
    broker, (grounds,) = chooser({"a:1": None, "b:1": None})(UNIT, {"a:1": 3, "b:1": 2})
    assert (broker, grounds.deviation) == ("b:1", -1.0)
    assert grounds.weighed == (Weighed("b:1", -1.0), Weighed("a:1", -1.0))


def test_who_is_excluded_is_not_asked_and_who_is_filtered_is_named() -> None:
    policy = IsolationPolicy(("public/.*",), ("a",), ("b",), 1)
    chooses = chooser({"a:1": 0.9, "b:1": 0.1, "c:1": 0.1}, Policies({"iso": policy}))
    counts = dict.fromkeys(("a:1", "b:1", "c:1"), 0)
    broker, (grounds,) = chooses(UNIT, counts)
    assert (broker, grounds.brokers) == ("a:1", 3)
    removed = BrokerFilter.ISOLATION_POLICIES.value
    assert grounds.weighed == (
        Weighed("a:1", 0.9),
        Weighed("b:1", -1.0, removed),
        Weighed("c:1", -1.0, removed),
    )
    assert chooses(UNIT, counts, excluded=("a:1",))[0] == "b:1"
    assert chooses(UNIT, counts, excluded=("a:1", "b:1"))[0] == ""


def test_a_record_names_a_bounded_number_of_brokers_with_the_chosen_one_first() -> None:
    loads: dict[str, float | None] = {f"b{number}:1": 0.5 for number in range(100)}
    counts = dict.fromkeys(loads, 1) | {"b77:1": 0}
    broker, (grounds,) = chooser(loads)(UNIT, counts)
    assert (broker, grounds.brokers, len(grounds.weighed)) == ("b77:1", 100, WEIGHED_MAX)
    assert grounds.weighed[0].broker == "b77:1"
    assert msgspec.structs.asdict(grounds)["deviation"] == 0.0


def test_bundles_of_a_group_lie_apart() -> None:
    world = World(A, B)
    world.owned(A)
    policies = Policies(groups=dict.fromkeys((FIRST, "public/other"), "g"))
    chooses = LoadChooser(
        world.replica, BalanceSettings(), policies, lambda broker: Candidate(broker, "1.0.0")
    )
    assert chooses("public/other/0x00000000_0xffffffff", {A: 0, B: 9})[0] == B


def test_brokers_take_turns_for_a_namespace_that_is_excluded_from_shedding() -> None:
    stage = Stage()
    only = BalanceSettings(shedding_excluded_namespaces=(FREE.rpartition("/")[0],))
    nodes = [stage.start(broker, balance=only) for broker in (A, B)]
    stage.pass_time(1.0)
    unit = there(nodes[0].replica.unit(FREE))
    counts = {A: 7, B: 0}
    chosen = [
        node.core.assign(FREE, unit, counts, stage.now)[0].broker for node in nodes for _ in "123"
    ]
    assert chosen == [A, B, A] * 2, "each node counts by itself"
    chooses = LoadChooser(
        MemoryReplica(), only, NO_POLICIES, lambda broker: Candidate(broker, "1.0.0")
    )
    found = [chooses(unit, counts)[0] for unit in (FREE, "t/n/0x00000000_0xffffffff") * 2]
    assert found == [A, B, B, B], "the choices for other namespaces take no turn"


# --- a node that assigns to itself --------------------------------------------------------------


FREE = WORLD_UNIT  # of a cluster that starts with one bundle


def two_and_a_free_unit() -> tuple[Stage, Actor, Actor]:
    stage = Stage()
    first = stage.start(A)
    stage.pass_time(0.5)
    second = stage.start(B)
    stage.pass_time(0.5)
    return stage, first, second


def assigned(stage: Stage, proposer: Actor, *to: str) -> list[UnitMove]:
    """What a node proposes on a look-up, on its way: in the log, and read by nobody yet."""
    unit = there(proposer.replica.unit(FREE))
    records = proposer.core.assign(FREE, unit, dict.fromkeys(to, 0), stage.now)
    for record in records:
        stage.log.append((record, stage.now_ms))
    return records


def moves(records: list[UnitMove]) -> list[tuple[Move, int]]:
    return [(each.move, each.version) for each in records]


def owns(node: Actor) -> list[Record]:
    return [r for r in node.proposed if isinstance(r, UnitMove) and r.move is Move.OWN]


def test_a_node_owns_what_it_assigns_to_itself_with_two_records_at_once() -> None:
    stage, first, _ = two_and_a_free_unit()
    assigning, owning = moves(assigned(stage, first, first.core.me))
    assert (assigning[0], owning) == (Move.ASSIGN, (Move.OWN, assigning[1] + 1))
    before = len(stage.log)
    stage.settle()
    assert state_of(first, FREE)[0] is UnitState.OWNED
    assert FREE in first.opened
    assert (owns(first), len(stage.log)) == ([], before), "no third record when both are read"


def test_what_follows_an_assignment_that_lost_is_rejected_by_its_version() -> None:
    stage, first, second = two_and_a_free_unit()
    assigned(stage, second, second.core.me)
    late = assigned(stage, first, first.core.me)
    verdicts = {each.record: each.outcome.verdict for each in second.read()}
    assert [verdicts[each] for each in late] == [Verdict.STALE_VERSION] * 2
    stage.settle()
    state, broker, _ = state_of(first, FREE)
    assert (state, broker) == (UnitState.OWNED, second.core.me)
    assert FREE in second.opened
    assert FREE not in first.opened


def test_of_an_assignment_that_is_lost_on_its_way_nothing_is_left() -> None:
    stage, first, _ = two_and_a_free_unit()
    _, owning = assigned(stage, first, first.core.me)
    del stage.log[-2]
    assert [each.outcome.verdict for each in first.read()] == [Verdict.VERSION_GAP]
    assert FREE not in first.opened
    again = assigned(stage, first, first.core.me)
    assert [each.move for each in again] == [Move.ASSIGN], "OWN of that version was just proposed"
    stage.pass_time(2.0)
    assert state_of(first, FREE)[0] is UnitState.OWNED
    assert owning not in owns(first)


def test_nothing_follows_an_assignment_to_another_or_without_a_lease() -> None:
    stage, first, second = two_and_a_free_unit()
    unit = there(first.replica.unit(FREE))
    assert first.core.assign(FREE, unit, {}, stage.now) == []
    other = first.core.assign(FREE, unit, {second.core.me: 0}, stage.now)
    late = first.core.assign(FREE, unit, {first.core.me: 0}, stage.now + 3_600)
    assert [[each.move for each in found] for found in (other, late)] == [[Move.ASSIGN]] * 2
    unsettled = msgspec.structs.replace(unit, source=second.core.me)
    own = first.core.assign(FREE, unsettled, {first.core.me: 0}, stage.now)
    assert [each.move for each in own] == [Move.ASSIGN], "who held it has yet to see that it lost"


def test_a_node_prefers_itself_where_that_makes_hardly_a_difference() -> None:
    stage, first, second = two_and_a_free_unit()
    unit = there(first.replica.unit(FREE))
    me, other = first.core.me, second.core.me

    def chosen(mine: int, others: int) -> str:
        return first.core.assign(FREE, unit, {me: mine, other: others}, stage.now)[0].broker

    assert [chosen(mine, 1_600) for mine in (0, 1_600, 1_700, 1_701)] == [me, me, me, other]
    assert [chosen(mine, 15) for mine in (14, 15, 16)] == [me, me, other], "few are kept even"
