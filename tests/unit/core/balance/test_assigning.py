"""Which broker a node chooses by filters and load, what it says of it, and OWN in one go."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.core.balance.assigning import ChoiceRules, LoadChooser
from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.filters import BrokerFilter, Candidate
from anabranch.core.balance.policies import NO_POLICIES, IsolationPolicy, Policies
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

UNIT = "public/default/0x00000000_0x40000000"


def chooser(loads: dict[str, float | None], policies: Policies = NO_POLICIES) -> LoadChooser:
    def candidate(broker: str) -> Candidate:
        load = loads[broker]
        data = None if load is None else BrokerLoadData(weighted_max_ema=load)
        return Candidate(broker, "1.0.0", data)

    return LoadChooser(MemoryReplica(), ChoiceRules(BalanceSettings(), policies), candidate)


def test_of_brokers_clearly_below_the_average_the_one_with_the_fewest_units_is_chosen() -> None:
    choose = chooser({"a:1": 0.9, "b:1": 0.2, "c:1": 0.25})
    broker, (grounds,) = choose(UNIT, {"a:1": 0, "b:1": 7, "c:1": 5})
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
    choose = chooser({"a:1": 0.9, "b:1": 0.1, "c:1": 0.1}, Policies({"iso": policy}))
    counts = dict.fromkeys(("a:1", "b:1", "c:1"), 0)
    broker, (grounds,) = choose(UNIT, counts)
    assert (broker, grounds.brokers) == ("a:1", 3)
    removed = BrokerFilter.ISOLATION_POLICIES.value
    assert grounds.weighed == (
        Weighed("a:1", 0.9),
        Weighed("b:1", -1.0, removed),
        Weighed("c:1", -1.0, removed),
    )
    assert choose(UNIT, counts, excluded=("a:1",))[0] == "b:1"
    assert choose(UNIT, counts, excluded=("a:1", "b:1"))[0] == ""


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
    rules = ChoiceRules(BalanceSettings(), policies)
    choose = LoadChooser(world.replica, rules, lambda broker: Candidate(broker, "1.0.0"))
    assert choose("public/other/0x00000000_0xffffffff", {A: 0, B: 9})[0] == B


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
    rules = ChoiceRules(only, NO_POLICIES)
    choose = LoadChooser(MemoryReplica(), rules, lambda broker: Candidate(broker, "1.0.0"))
    found = [choose(unit, counts)[0] for unit in (FREE, "t/n/0x00000000_0xffffffff") * 2]
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
