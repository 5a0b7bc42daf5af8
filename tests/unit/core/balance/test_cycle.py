"""What every node keeps between the balancer's cycles, and what a cycle proposes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from anabranch.core.balance.choosing import Candidate
from anabranch.core.balance.counters import SplitReason, UnloadReason
from anabranch.core.balance.cycle import BalanceCycle, splits, unloads
from anabranch.core.balance.offload import ClusterView
from anabranch.core.balance.policies import NO_POLICIES
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.balance.shedding import Round, RoundEnd, Unload
from anabranch.core.balance.splitting import BundleSplit, SplitRound, TopicLoad
from anabranch.core.balancer import Balancer, NoCycle
from anabranch.core.bundles import propose
from anabranch.core.entities.unit import Move, UnitState
from anabranch.core.log.records import Cause, UnitMove
from support.stage import Actor, Stage, request, state_of
from support.there import there
from support.world import HALVES, UNIT, A, B, World

NOW = BalanceSettings(shedding_condition_hit_count_threshold=0)
GRACE_MS = 30 * 60_000


def seen(
    high: float = 0.9,
    low: float = 0.1,
    at_ms: int = 0,
    owner_of: Callable[[str], str] = lambda _: A,
) -> ClusterView:
    """A has much to do, B has not; A reports two bundles."""
    loads = {
        broker: BrokerLoadData(
            msg_throughput_in=load * 100, weighted_max_ema=load, updated_at_ms=at_ms
        )
        for broker, load in ((A, high), (B, low))
    }
    bundles = ((UNIT, BundleLoad(msg_throughput_in=20.0)), ("t/n/x", BundleLoad()))
    return ClusterView(
        loads,
        {A: TopBundlesLoadData(bundles)},
        [Candidate(A, "1.0.0"), Candidate(B, "1.0.0")],
        owner_of,
        NO_POLICIES,
        lambda _: {},
    )


def on_a() -> tuple[World, BalanceCycle]:
    """A owns the bundle, and somebody has read all that led to it."""
    world = World(A, B)
    cycle = BalanceCycle()
    cycle.began(world.replica)
    tell(world, cycle, Move.ASSIGN, A, broker=A)
    tell(world, cycle, Move.OWN, A)
    return world, cycle


def tell(world: World, cycle: BalanceCycle, what: Move, by: str, **fields: Any) -> None:
    entry = world.fold(world.move(what, by, **fields))
    cycle.folded(entry, entry.timestamp_ms)


def shed_once(world: World, cycle: BalanceCycle, settings: BalanceSettings) -> Round:
    now_ms = world.now_ms
    owner_of = cycle.owners(world.replica, settings, now_ms)
    return cycle.shed(seen(at_ms=now_ms, owner_of=owner_of), settings, now_ms)


def moved(world: World, cycle: BalanceCycle, cause: Cause) -> None:
    """To B, until it is through."""
    tell(world, cycle, Move.RELEASE, A, broker=B, cause=cause)
    tell(world, cycle, Move.HAND_OVER, A)
    tell(world, cycle, Move.OWN, B)


def test_an_interval_is_over_once() -> None:
    cycle = BalanceCycle()
    found = [cycle.due("shedding", 60.0, now) for now in (5.0, 64.9, 65.0, 66.0, 125.0)]
    assert found == [False, False, True, False, True]
    assert not cycle.due("splitting", 60.0, 200.0), "an interval of its own"


def test_a_cycle_proposes_what_is_decided_with_its_grounds() -> None:
    world, cycle = on_a()
    view = seen(at_ms=world.now_ms)
    found = shed_once(world, cycle, NOW)
    [record] = unloads(found, world.replica, view, NOW, world.actor(A), world.new_id)
    assert (record.unit, record.move, record.broker) == (UNIT, Move.RELEASE, B)
    assert record.cause is Cause.OVERLOADED
    [grounds] = record.choice
    assert (grounds.rule, grounds.brokers, grounds.grace_ms) == ("Overloaded", 2, GRACE_MS)
    assert grounds.predicted < grounds.deviation
    assert [(each.broker, each.load) for each in grounds.weighed] == [(A, 0.9), (B, 0.1)]
    world.must(record)


def test_a_record_says_which_strategy_and_thresholds_decided() -> None:
    world, _ = on_a()
    unload = Unload(UNIT, A, B, UnloadReason.OVERLOADED, 0.4, 0.3)
    moved = Round((unload,), RoundEnd.SERVED, 0, strategy="own", thresholds="hits 2")
    cut = SplitRound((BundleSplit(UNIT, 0x7FFFFFFF, SplitReason.TOPICS, ""),), (), (), "hits 2")
    [release] = unloads(moved, world.replica, seen(), NOW, world.actor(A), world.new_id)
    [split] = splits(cut, world.replica, world.actor(A), world.new_id)
    rules = [record.choice[0].rule for record in (release, split)]
    assert rules == ["Overloaded; strategy own; hits 2", "Topics; hits 2"]
    world.must(split)


def test_a_bundle_that_the_balancer_has_moved_stays_for_the_grace_period() -> None:
    world, cycle = on_a()
    moved(world, cycle, Cause.OVERLOADED)
    done_ms = world.now_ms - 1_000
    state = cycle.state(NOW, done_ms + GRACE_MS - 1)
    assert (state.unloaded_bundles, state.unloaded_brokers) == ({UNIT: done_ms}, {A: done_ms})
    assert cycle.state(NOW, done_ms + GRACE_MS).unloaded_bundles == {}


def test_a_log_whose_clock_falls_back_shortens_no_grace_period() -> None:
    stage, leader, owner = two()
    beat = leader.beats[-1]
    ahead_ms = stage.now_ms + 3_600_000
    leader.core.heard(beat, ahead_ms, stage.now)  # of a Kafka broker whose clock was wrong
    unit, new_id = there(owner.replica.unit(UNIT)), stage.new_id()
    moved = propose.release(owner.core.actor(), UNIT, unit, A, new_id, Cause.OVERLOADED)
    stage.write(there(moved))
    assert state_of(leader)[:2] == (UnitState.OWNED, A)
    notes = leader.core.balance.state(SOON, leader.core.log_ms)
    assert (notes.unloaded_bundles, notes.unloaded_brokers) == ({UNIT: ahead_ms}, {B: ahead_ms})


def test_a_move_by_hand_is_none_of_the_balancer_s() -> None:
    world, cycle = on_a()
    moved(world, cycle, Cause.OPERATOR)
    assert cycle.state(NOW, world.now_ms).unloaded_bundles == {}


def test_whoever_has_not_read_why_a_bundle_moved_takes_it_for_the_balancer_s_move() -> None:
    world, _ = on_a()
    late = BalanceCycle()
    late.began(world.replica)
    since_ms = world.unit().since_ms
    owner_of = late.owners(world.replica, NOW, since_ms + GRACE_MS - 1)
    assert owner_of(UNIT) == ""
    owner_of = late.owners(world.replica, NOW, since_ms + GRACE_MS)
    assert owner_of(UNIT) == A
    assert owner_of("t/n/gone") == ""


def test_what_was_under_way_when_a_node_began_to_read_counts_too() -> None:
    world, _ = on_a()
    world.must(world.move(Move.RELEASE, A, broker=B, cause=Cause.OVERLOADED))
    late = BalanceCycle()
    late.began(world.replica)
    tell(world, late, Move.HAND_OVER, A)
    tell(world, late, Move.OWN, B)
    assert UNIT in late.state(NOW, world.now_ms).unloaded_bundles


def test_cycles_in_which_the_condition_held_count_on_until_somebody_has_acted() -> None:
    world, cycle = on_a()
    patient = BalanceSettings()
    for hits in (1, 2, 3):
        found = shed_once(world, cycle, patient)
        assert (found.hits, found.ended) == (hits, RoundEnd.HITS)
    tell(world, cycle, Move.RELEASE, A, broker=B, cause=Cause.OVERLOADED)
    found = shed_once(world, cycle, patient)
    assert found.hits == 1


def test_what_has_changed_hands_since_it_was_decided_is_not_proposed() -> None:
    world, cycle = on_a()
    decided = Round((Unload(UNIT, A, B, UnloadReason.OVERLOADED, 0.4, 0.3),), RoundEnd.SERVED, 0)
    moved(world, cycle, Cause.OPERATOR)
    assert unloads(decided, world.replica, seen(), NOW, world.actor(A), world.new_id) == []
    split = SplitRound((BundleSplit(UNIT, 0x7FFFFFFF, SplitReason.TOPICS, ""),), (), ())
    assert splits(split, world.replica, world.actor(A), world.new_id) == []
    [record] = splits(split, world.replica, world.actor(B), world.new_id)
    assert record.children == HALVES
    assert record.cause is Cause.TOPICS


# --- a node's part ------------------------------------------------------------------------------

MANY = {UNIT: BundleLoad(topics=2_000)}
SOON = BalanceSettings(
    shedding_condition_hit_count_threshold=0, namespace_bundle_split_condition_hit_count_threshold=0
)


def shed(stage: Stage, node: Actor) -> list[UnitMove]:
    """The second of two cycles: the first one begins the interval."""
    balancer = Balancer(node.core, stage.new_id)
    for _ in range(2):
        view = seen(0.1, 0.9, stage.now_ms)
        top = {B: TopBundlesLoadData(view.top[A].bundles)}
        _, records = balancer.shed(view.loads, top, stage.now)
        stage.pass_time(60.0)
    return records


def split(stage: Stage, node: Actor) -> list[UnitMove]:
    balancer = Balancer(node.core, stage.new_id)
    for _ in range(2):
        _, records = balancer.split(MANY, _topics, stage.now)
        stage.pass_time(60.0)
    return records


def _topics(bundle: str) -> list[TopicLoad]:
    return []


def two(settings: BalanceSettings = SOON) -> tuple[Stage, Actor, Actor]:
    """A leads; B owns the only unit."""
    stage = Stage()
    first = stage.start(A, balance=settings)
    stage.pass_time(0.5)
    second = stage.start(B, balance=settings)
    stage.pass_time(0.5)
    request(stage, first, Move.ASSIGN, broker=B)
    return stage, first, second


def test_the_leader_alone_sheds_and_the_owner_alone_splits() -> None:
    stage, leader, owner = two()
    assert shed(stage, owner) == []
    [record] = shed(stage, leader)
    assert (record.unit, record.move, record.broker) == (UNIT, Move.RELEASE, A)
    assert split(stage, leader) == []
    [record] = split(stage, owner)
    assert (record.unit, record.move, record.children) == (UNIT, Move.SPLIT, HALVES)


def test_who_does_not_lead_counts_on_for_whoever_comes_to_lead() -> None:
    stage, leader, owner = two(BalanceSettings())
    for node in (leader, owner):
        assert shed(stage, node) == []
        assert node.core.balance.state(SOON, stage.now_ms).hits == 1


@pytest.mark.parametrize(
    "off", [{"enabled": False}, {"shedding_enabled": False, "auto_bundle_split_enabled": False}]
)
def test_what_is_switched_off_is_not_done(off: dict[str, bool]) -> None:
    stage, leader, owner = two(msgspec.structs.replace(SOON, **off))
    assert shed(stage, leader) == []
    assert split(stage, owner) == []


def test_what_the_next_cycle_would_do_can_be_asked_and_nothing_is_noted() -> None:
    stage, leader, _ = two()
    balancer, cycle = Balancer(leader.core, stage.new_id), leader.core.balance
    view = seen(0.1, 0.9, stage.now_ms)
    top = {B: TopBundlesLoadData(view.top[A].bundles)}
    found = [balancer.outlook(view.loads, top, stage.now) for _ in range(2)]
    assert repr(found[0]) == repr(found[1])
    assert (found[0].hits, cycle.state(SOON, stage.now_ms).hits) == (0, 0)
    [unload] = there(found[0].cycle).decisions
    assert (unload.bundle, unload.source, unload.destination) == (UNIT, B, A)
    assert found[0].due_in_s is None, "no interval has begun"
    balancer.shed(view.loads, top, stage.now)
    later = balancer.outlook(view.loads, top, stage.now + 20.0)
    assert later.due_in_s == pytest.approx(40.0)


def configured(stage: Stage, node: Actor, settings: BalanceSettings) -> None:
    node.core.configure(msgspec.structs.replace(node.core.settings, balance=settings), stage.now)


def test_why_there_is_no_cycle_is_told() -> None:
    stage, leader, _ = two()
    balancer = Balancer(leader.core, stage.new_id)

    def prevented(settings: BalanceSettings) -> NoCycle | None:
        configured(stage, leader, settings)
        found = balancer.outlook(seen(0.1, 0.9, stage.now_ms).loads, {}, stage.now)
        assert (found.cycle is None) is (found.prevented is not None)
        return found.prevented

    assert prevented(SOON) is None
    for off in ({"enabled": False}, {"shedding_enabled": False}):
        assert prevented(msgspec.structs.replace(SOON, **off)) is NoCycle.SWITCHED_OFF
    leader.core.stop()
    assert prevented(SOON) is NoCycle.NOT_SERVING


def test_who_is_about_to_leave_balances_nothing() -> None:
    stage, leader, owner = two()
    leader.core.stop()
    assert shed(stage, leader) == []
    owner.core.stop()
    assert split(stage, owner) == []
