"""When a controller evaluates its topic's load, and how it carries a decision out."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from anabranch.core.autoscale import schedule
from anabranch.core.autoscale.decide import Demand
from anabranch.core.autoscale.decisions import Blocked, Merge, NoAction, Reason, Rebucket, Split
from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.autoscale.policy import Level
from anabranch.core.autoscale.schedule import Trigger
from anabranch.core.entities.layout import Merges
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.subscription import SubscriptionKind, SubscriptionOp
from anabranch.core.entities.topic import Operation, TopicMove, TopicState
from anabranch.core.log.records import TopicCause
from anabranch.core.topics.tasks import TaskFailed
from support.autoscale import POLICY, load, policy, quiet
from support.autoscale_scene import INTERVAL_S, Scene, begins, evaluations
from support.world import TOPIC


def seen(scene: Scene, trigger: schedule.Trigger) -> NoAction:
    """What an evaluation that nothing comes of says."""
    found = scene.evaluated()
    assert found.trigger is trigger
    assert isinstance(found.decision, NoAction), found
    return found.decision


# --- what is looked at ------------------------------------------------------------------------


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_every_reason_is_a_cause_on_the_log() -> None:
    assert {reason.name for reason in Reason} <= set(TopicCause.__members__)


def test_consumers_of_queues_do_not_count(scene: Scene) -> None:
    scene.join("a", "b")
    scene.join("a", "b", "c", name="points", kind=SubscriptionKind.CHECKPOINT)
    scene.join(name="work", kind=SubscriptionKind.QUEUE)
    assert schedule.demand_of(scene.world.replica, TOPIC) == {
        "sub": Demand(2),
        "points": Demand(3),
    }


def test_the_load_is_asked_for_by_topic_and_incarnation(scene: Scene) -> None:
    scene.look()
    assert scene.loads_asked == [(TOPIC, scene.topic.incarnation)]


def test_the_policy_is_the_topics_over_its_namespaces_over_the_brokers(scene: Scene) -> None:
    scene.override_namespace(maxSegments=7, minSegments=2)
    scene.override(maxSegments=5)
    found = schedule.policy_of(scene.world.replica, TOPIC, scene.topic, POLICY).policy
    assert (found.max_segments, found.min_segments, found.max_dag_depth) == (5, 2, 3)


def test_what_this_node_does_not_allow_is_off_whatever_is_overridden(scene: Scene) -> None:
    scene.override(enabled=True, maxSegments=5)
    allowed = schedule.policy_of(scene.world.replica, TOPIC, scene.topic, POLICY)
    for is_allowed in (True, False):
        settings = schedule.AutoScaleSettings(POLICY, is_allowed=is_allowed)
        found = schedule.policy_here(scene.world.replica, TOPIC, scene.topic, settings)
        assert found.policy == replace(allowed.policy, enabled=is_allowed)
        level = Level.TOPIC if is_allowed else Level.BROKER
        assert (found.origins, found.fault) == ({**allowed.origins, "enabled": level}, "")


# --- when it is looked at ---------------------------------------------------------------------


def test_a_new_controller_looks_at_once_and_then_once_an_interval(scene: Scene) -> None:
    seen(scene, schedule.Trigger.TICK)
    scene.pass_time(INTERVAL_S - 0.001)
    assert scene.evaluation() is None
    scene.pass_time(0.001)
    seen(scene, schedule.Trigger.TICK)
    assert scene.evaluation() is None


@pytest.mark.parametrize("kind", [SubscriptionKind.STREAM, SubscriptionKind.CHECKPOINT])
def test_a_consumer_that_registers_or_leaves_is_evaluated_at_the_next_look(
    scene: Scene, kind: SubscriptionKind
) -> None:
    scene.look()
    scene.join("a", kind=kind)
    seen(scene, schedule.Trigger.CONSUMERS)
    assert scene.evaluation() is None
    scene.leave("a")
    seen(scene, schedule.Trigger.CONSUMERS)


def test_a_consumer_that_lapsed_counts_no_more_until_it_is_back(scene: Scene) -> None:
    scene.loads = {0: load(50)}
    scene.join("a", "b")
    for op in (SubscriptionOp.LAPSED, SubscriptionOp.JOIN):
        scene.world.must(scene.world.subscription(op, consumer="b", instance=2))
        assert schedule.demand_of(scene.world.replica, TOPIC)["sub"].away == (
            op is SubscriptionOp.LAPSED
        )
        assert isinstance(scene.evaluated().decision, Split) is (op is SubscriptionOp.JOIN)


def test_a_layout_that_clients_could_not_be_told_is_not_begun(scene: Scene) -> None:
    scene.loads = {0: load(50)}
    scene.fits = False
    scene.join("a", "b")
    assert seen(scene, schedule.Trigger.TICK).blocked is Blocked.LAYOUT_SIZE
    scene.pass_time(INTERVAL_S - 0.001)
    assert scene.evaluation() is None, "nothing can have changed"
    scene.pass_time(0.001)
    assert seen(scene, schedule.Trigger.TICK).blocked is Blocked.LAYOUT_SIZE


def test_one_that_leaves_as_another_goes_away_is_evaluated_at_the_next_look(scene: Scene) -> None:
    scene.join("a", "b", "c")
    scene.look()
    scene.leave("a")
    scene.world.must(scene.world.subscription(SubscriptionOp.LAPSED, consumer="b", instance=2))
    seen(scene, schedule.Trigger.CONSUMERS)


@pytest.mark.parametrize("level", ["topic", "namespace"])
def test_a_changed_policy_is_evaluated_at_the_next_look(level: str) -> None:
    scene = Scene(segments=2)
    scene.look()
    set_ = scene.override if level == "topic" else scene.override_namespace
    set_(maxSegments=4)
    seen(scene, schedule.Trigger.POLICY)
    assert scene.evaluation() is None


def test_consumers_are_looked_at_again_when_a_rebucket_cooldown_is_over(scene: Scene) -> None:
    scene.join(*"abcde")
    scene.by_hand(Operation.REBUCKET, scene.topic.layout.rebucket_children(0, 1))
    assert "wait for the rebucket cooldown" in seen(scene, schedule.Trigger.TICK).why
    scene.pass_time(19.99)
    assert scene.evaluation() is None
    scene.pass_time(0.02)
    assert isinstance(scene.evaluated().decision, Rebucket)


@pytest.mark.parametrize(
    ("rate", "cooldown_s", "says", "then"),
    [(0, 30, "the merge cooldown is on", Merge), (150, 10, "the split cooldown is on", Split)],
)
def test_a_prepared_topic_keeps_its_segments_as_after_a_split_and_a_merge(
    rate: float, cooldown_s: float, says: str, then: type[Merge | Split]
) -> None:
    scene = Scene()
    scene.by_hand(Operation.PREPARE, scene.topic.layout.prepare_children(4))
    scene.loads = {part.segment_id: load(rate) for part in scene.topic.layout.active}
    scene.pass_time(cooldown_s - 0.01)
    assert says in quiet(scene.evaluated().decision)
    scene.pass_time(INTERVAL_S)
    assert isinstance(scene.evaluated().decision, then)


@pytest.mark.parametrize("lacked", [{}, None], ids=["not written", "not read"])
def test_a_look_that_lacked_loads_is_repeated_as_soon_as_they_are_there(
    scene: Scene, lacked: dict[int, SegmentLoad] | None
) -> None:
    scene.by_hand(Operation.SPLIT, scene.topic.layout.split_children(0))
    scene.loads = lacked
    scene.join(*"abcdefgh")
    assert "not" in seen(scene, schedule.Trigger.TICK).why
    scene.pass_time(4)
    assert scene.evaluation() is None
    scene.loads = {1: load()}
    assert scene.evaluation() is None
    scene.loads = {1: load(), 2: load()}
    found = scene.evaluated()
    assert found.trigger is schedule.Trigger.TICK
    assert isinstance(found.decision, Rebucket)


def test_of_merges_only_those_of_new_segments_are_worked_out_after_an_operation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[int] = []
    with_segments = Merges.with_segments

    def counted(self: Merges, parts: Iterable[SegmentInfo]) -> Merges:
        given = list(parts)
        looked_at.append(len(given))
        return with_segments(self, given)

    monkeypatch.setattr(Merges, "with_segments", counted)
    scene = Scene(segments=4)
    scene.loads = {segment_id: load(since_ms=0) for segment_id in range(6)}
    for _ in range(2):
        assert scene.begin().operation is Operation.MERGE
        scene.carry_on()
        scene.pass_time(INTERVAL_S)
    assert looked_at[0] == 4
    assert sum(looked_at[1:]) == 2, "what each merge made"
    remade = scene.topic.incarnation
    for move in (TopicMove.DELETE, TopicMove.REMOVE):
        scene.world.must(scene.world.topic(move))
    scene.look()
    scene.world.opened(5)
    assert scene.topic.incarnation != remade
    assert scene.begin().operation is Operation.MERGE
    assert looked_at[-1] == 5


# --- one operation at a time ------------------------------------------------------------------


def test_a_merge_becomes_an_operation_with_no_more_buckets_than_the_broker_allows() -> None:
    scene = Scene(segments=2, policy=policy(enabled=False))
    scene.loads = {0: load(since_ms=0), 1: load(since_ms=0)}
    seen(scene, schedule.Trigger.TICK)
    allowed = policy(max_entry_buckets_per_segment=3)
    scene.controller.configure(schedule.AutoScaleSettings(allowed, INTERVAL_S))
    record = scene.begin()
    assert (record.operation, record.parents) == (Operation.MERGE, (0, 1))
    assert record.cause is TopicCause.COLD
    scene.carry_on()
    assert scene.buckets == [3]


def test_nothing_is_evaluated_during_an_operation_and_at_once_after_it(scene: Scene) -> None:
    scene.loads = {0: load(150)}
    scene.begin()
    scene.join(*"abc")
    assert scene.topic.state is TopicState.PREPARING
    assert evaluations(scene.look()) == []
    assert [each.trigger for each in scene.carry_on()] == [schedule.Trigger.CONSUMERS]


def test_an_operation_by_hand_is_evaluated_at_the_next_look(scene: Scene) -> None:
    scene.look()
    scene.by_hand(Operation.SPLIT, scene.topic.layout.split_children(0))
    seen(scene, schedule.Trigger.OPERATION)
    assert scene.evaluation() is None


def test_a_new_controller_keeps_the_cooldowns(scene: Scene) -> None:
    scene.loads = {0: load(150), 1: load(150), 2: load(150)}
    scene.carry_on()
    assert len(scene.active) == 2
    scene.controller = scene.fresh()
    assert "the split cooldown is on" in seen(scene, schedule.Trigger.TICK).why
    scene.pass_time(10)
    scene.controller = scene.fresh()
    assert scene.begin().operation is Operation.SPLIT


def test_a_policy_that_cannot_work_keeps_everything_as_it_is_and_is_told(scene: Scene) -> None:
    scene.loads = {0: load(150)}
    scene.override(minSegments=9)
    found = seen(scene, schedule.Trigger.TICK)
    assert found.blocked is Blocked.INVALID_POLICY
    assert found.why == "Invalid auto split/merge configuration: maxSegments must be >= minSegments"
    scene.override(minSegments=2)
    assert isinstance(scene.evaluated().decision, Split)


# --- when the log or Kafka does not take it -----------------------------------------------------


def test_what_kafka_refused_is_not_begun_again_before_the_next_tick(scene: Scene) -> None:
    scene.loads = {0: load(150)}
    scene.begin()
    scene.carry_on(TaskFailed("no space", for_good=True))
    assert scene.topic.move is TopicMove.ABORT
    for _ in range(5):
        scene.pass_time(INTERVAL_S / 6)
        assert scene.evaluation() is None
    scene.pass_time(INTERVAL_S / 6)
    assert len(begins(scene.look())) == 1


# --- decisions about several segments -------------------------------------------------------------


COOLDOWN_S = 61.0  # more than that of the policy


def is_waiting(three: Scene) -> bool:
    return three.controller.scaler.is_waiting


@pytest.fixture
def three() -> Scene:
    """Three segments of one bucket each shall have four."""
    three = Scene(segments=3)
    three.join(*"abcdefghi")
    return three


def test_segments_of_one_decision_are_rebucketed_and_told_one_after_the_other(three: Scene) -> None:
    first = three.begin()
    assert (first.operation, first.parents) == (Operation.REBUCKET, (0,))
    assert first.cause is TopicCause.BELOW_SPLIT_RATE_FLOOR
    assert begins(three.look()) == []
    found = three.carry_on()
    assert three.buckets == [4, 4, 4]
    decisions = [each.decision for each in found if isinstance(each.decision, Rebucket)]
    assert [each.segment_ids for each in decisions] == [(1,), (2,)]
    assert {each.buckets for each in decisions} == {4}
    told = [each.done for each in found]
    assert [each.segment_ids for each in told if isinstance(each, Rebucket)] == [(0,), (1,), (2,)]


def test_the_rest_waits_for_no_rebucket_cooldown_but_the_next_decision_does(three: Scene) -> None:
    three.carry_on()
    assert three.buckets == [4, 4, 4]
    three.join(*"jklm")
    found = three.evaluated()
    assert found.trigger is Trigger.CONSUMERS
    assert isinstance(found.decision, NoAction)
    assert "wait for the rebucket cooldown" in found.decision.why


def test_a_failure_in_the_middle_keeps_what_is_done_and_stops_the_rest(three: Scene) -> None:
    three.world.committed(Operation.REBUCKET, three.begin_children())
    three.world.must(next(each for each in begins(three.look()) if each.parents == (1,)))
    three.carry_on(TaskFailed("no space", for_good=True))
    assert three.buckets == [4, 1, 1]
    three.pass_time(5)
    three.carry_on()
    assert three.buckets == [4, 1, 1]
    three.pass_time(INTERVAL_S)
    three.carry_on()
    assert three.buckets == [4, 4, 4]


def test_another_operation_in_between_has_the_rest_decided_anew(three: Scene) -> None:
    assert len(begins(three.look())) == 1  # is overtaken
    three.by_hand(Operation.MERGE, three.topic.layout.merge_children(1, 2))
    three.pass_time(1.0)
    three.carry_on()
    assert three.buckets == [8, 8]


def test_a_rebucket_by_hand_that_overtakes_one_begins_the_cooldown(three: Scene) -> None:
    """Found by the simulation: the rest went on, as if it had been the decision's."""
    assert len(begins(three.look())) == 1  # is overtaken
    three.by_hand(Operation.REBUCKET, three.topic.layout.rebucket_children(0, 2))
    three.pass_time(1.0)
    three.carry_on()
    assert three.buckets == [2, 1, 1]
    three.pass_time(COOLDOWN_S)
    three.carry_on()
    assert three.buckets == [4, 4, 4]


@pytest.mark.parametrize("level", ["topic", "namespace"])
def test_switching_off_stops_the_rest(three: Scene, level: str) -> None:
    three.begin()
    if level == "topic":
        three.override(enabled=False)
    else:
        three.override_namespace(enabled=False)
    three.carry_on()
    assert three.buckets == [4, 1, 1]


def test_a_topic_made_again_is_none_of_the_former_ones_business(three: Scene) -> None:
    three.begin()
    world = three.world
    world.must(world.topic(TopicMove.DELETE))
    world.must(world.topic(TopicMove.REMOVE))
    world.opened(3)
    three.pass_time(1.0)
    three.carry_on()
    assert three.buckets == [1, 1, 1]


# --- what is told of decisions that took over ---------------------------------------------------


def test_what_was_decided_is_told_once_when_it_has_taken_over() -> None:
    three = Scene()
    three.loads = {0: load(150)}
    begun = three.evaluated()
    assert begun.done is None
    assert is_waiting(three)
    three.pass_time(1.0)
    assert [each.done for each in three.carry_on()] == [None, begun.decision]
    assert is_waiting(three), "for the end of the cooldown"
    three.pass_time(COOLDOWN_S)
    assert [each.done for each in three.carry_on()] == [None]
    assert not is_waiting(three)


def test_nothing_is_told_when_another_of_the_kind_took_over_instead() -> None:
    three = Scene(segments=2)
    three.loads = {0: load(150)}
    assert len(begins(three.look())) == 1  # is overtaken
    three.by_hand(Operation.SPLIT, three.topic.layout.split_children(1))
    three.pass_time(1.0)
    assert three.evaluated().done is None


def test_nothing_is_told_of_what_was_given_up_or_done_by_hand() -> None:
    three = Scene()
    three.by_hand(Operation.REBUCKET, three.topic.layout.rebucket_children(0, 1))
    assert [each.done for each in three.carry_on()] == [None]
    three.loads = {1: load(150)}
    three.pass_time(INTERVAL_S)
    three.begin()
    assert [each.done for each in three.carry_on(TaskFailed("no space", for_good=True))] == []
    three.pass_time(COOLDOWN_S + INTERVAL_S)
    three.loads = {}
    three.carry_on()
    assert not is_waiting(three)
