"""Which broker a node chooses by filters and load, what it says of it, and OWN in one go."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.chooser import ChoiceRules, LoadChooser
from anabranch.core.balance.filters import BrokerFilter, Candidate
from anabranch.core.balance.policies import NO_POLICIES, IsolationPolicy, Policies
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.bundles import propose
from anabranch.core.bundles.unit import Move, UnitState
from anabranch.core.log.records import WEIGHED_MAX, Cause, UnitMove, Weighed
from anabranch.core.log.replica import MemoryReplica
from support.stage import Actor, Stage, state_of
from support.world import UNIT as WORLD_UNIT
from support.world import A, B

UNIT = "public/default/0x00000000_0x40000000"
CLASS = "a.Class"


def chooser(
    loads: dict[str, float | None],
    policies: Policies = NO_POLICIES,
) -> LoadChooser:
    def candidate(broker: str) -> Candidate:
        load = loads[broker]
        data = None if load is None else BrokerLoadData(weighted_max_ema=load)
        return Candidate(broker, "1.0.0", CLASS, data)

    return LoadChooser(MemoryReplica(), ChoiceRules(BalanceSettings(), CLASS, policies), candidate)


def test_of_brokers_clearly_below_the_average_the_one_with_the_fewest_units_is_chosen() -> None:
    choose = chooser({"a:1": 0.9, "b:1": 0.2, "c:1": 0.25})
    counts = {"a:1": 0, "b:1": 7, "c:1": 5}
    broker, (grounds,) = choose(UNIT, counts)
    assert broker == "c:1"
    assert grounds.rule == "less loaded than the average by the threshold"
    assert grounds.brokers == 3
    assert grounds.weighed == (Weighed("c:1", 0.25), Weighed("b:1", 0.2), Weighed("a:1", 0.9))
    assert grounds.deviation == pytest.approx(0.318852, abs=1e-6)
    assert grounds.predicted == -1.0


def test_without_any_load_the_one_with_the_fewest_units_is_chosen() -> None:
    broker, (grounds,) = chooser({"a:1": None, "b:1": None})(UNIT, {"a:1": 3, "b:1": 2})
    assert broker == "b:1"
    assert grounds.deviation == -1.0
    assert grounds.weighed == (Weighed("b:1", -1.0), Weighed("a:1", -1.0))


def test_who_is_excluded_is_not_asked_and_who_is_filtered_is_named() -> None:
    policy = IsolationPolicy(("public/.*",), ("a",), ("b",), 1)
    choose = chooser({"a:1": 0.9, "b:1": 0.1, "c:1": 0.1}, Policies({"iso": policy}))
    counts = dict.fromkeys(("a:1", "b:1", "c:1"), 0)
    broker, (grounds,) = choose(UNIT, counts)
    assert broker == "a:1"
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
    assert broker == "b77:1"
    assert grounds.brokers == 100
    assert len(grounds.weighed) == WEIGHED_MAX
    assert grounds.weighed[0].broker == "b77:1"
    assert msgspec.structs.asdict(grounds)["deviation"] == 0.0


# --- a node that assigns to itself --------------------------------------------------------------


FREE = WORLD_UNIT  # of a cluster that starts with one bundle


def two_and_a_free_unit() -> tuple[Stage, Actor, Actor]:
    stage = Stage()
    first = stage.start(A)
    stage.pass_time(0.5)
    second = stage.start(B)
    stage.pass_time(0.5)
    return stage, first, second


def assigned(stage: Stage, proposer: Actor, broker: str) -> UnitMove:
    """An assignment that is on its way: in the log, and read by nobody yet."""
    unit = proposer.replica.unit(FREE)
    assert unit is not None
    record = propose.move(
        proposer.core.actor(), FREE, unit, Move.ASSIGN, stage.new_id(), Cause.LOOKUP, broker=broker
    )
    stage.log.append((record, stage.now_ms))
    return record


def owns(node: Actor) -> list[UnitMove]:
    return [r for r in node.proposed if isinstance(r, UnitMove) and r.move is Move.OWN]


def test_a_node_owns_what_it_assigns_to_itself_with_two_records_at_once() -> None:
    stage, first, _ = two_and_a_free_unit()
    record = assigned(stage, first, first.core.me)
    first.do(first.core.claim(record, stage.now))
    assert [each.version for each in owns(first)] == [record.version + 1], "before any is read"
    stage.settle()
    assert state_of(first, FREE)[0] is UnitState.OWNED
    assert len(owns(first)) == 1, "no second one when the first two are read"
    assert FREE in first.opened


def test_a_claim_whose_assignment_lost_is_rejected() -> None:
    stage, first, second = two_and_a_free_unit()
    assigned(stage, second, second.core.me)
    late = assigned(stage, first, first.core.me)
    first.do(first.core.claim(late, stage.now))
    stage.settle()
    state, broker, _ = state_of(first, FREE)
    assert (state, broker) == (UnitState.OWNED, second.core.me)
    assert FREE in second.opened
    assert FREE not in first.opened


def test_nothing_is_claimed_for_others_or_without_a_lease() -> None:
    stage, first, second = two_and_a_free_unit()
    record = assigned(stage, first, second.core.me)
    assert first.core.claim(record, stage.now) == []
    mine = msgspec.structs.replace(record, broker=first.core.me)
    assert first.core.claim(mine, stage.now + 3_600) == []
