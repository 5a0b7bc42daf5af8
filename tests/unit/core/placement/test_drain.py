"""A topic's controller moves its segments off brokers of Kafka that are drained, one by one."""

from __future__ import annotations

import pytest

from anabranch.core.entities.placement_policy import PolicyKind
from anabranch.core.entities.subscription import SubscriptionOp
from anabranch.core.entities.topic import Operation, TopicState
from anabranch.core.log.records import PolicyOp, TopicCause, TopicChange
from anabranch.core.placement.drain import drained_brokers, to_leave
from anabranch.core.placement.room import Copies, KafkaSurvey
from anabranch.core.topics.controller import Propose
from anabranch.core.topics.tasks import SealSegments, TaskDone, TaskFailed
from support.controller_scene import Scene
from support.there import there
from support.world import A, World


def opened() -> Scene:
    scene = Scene(2)
    scene.open()
    scene.subscribe(SubscriptionOp.CREATE)  # who has read nothing, so that nothing is pruned
    return scene


def run(scene: Scene) -> None:
    """What is under way is brought to its end."""
    while scene.topic.is_restless:
        task = scene.task()
        ends = (0,) * sum(part.buckets for part in task.segments)
        scene.answer(task, TaskDone(end_offsets=ends if isinstance(task, SealSegments) else ()))


def begun(scene: Scene) -> TopicChange | None:
    """The record that a look at the topic proposes, which the log takes."""
    records = [each.record for each in scene.look() if isinstance(each, Propose)]
    if not records:
        return None
    (record,) = records
    assert isinstance(record, TopicChange)
    scene.must(record)
    return record


def test_one_segment_after_the_other_leaves_a_drained_broker_and_then_nothing_more() -> None:
    scene = opened()
    scene.leaving = {0: (3,), 1: (3, 5)}
    for segment, brokers in scene.leaving.items():
        record = there(begun(scene))
        assert (record.operation, record.cause) == (Operation.RELOCATE, TopicCause.KAFKA_DRAIN)
        assert (record.parents, record.off) == ((segment,), brokers)
        run(scene)
        assert scene.state() is TopicState.STABLE
    assert begun(scene) is None  # what replaced them is not said to lie there
    assert [part.segment_id for part in scene.topic.layout.active] == [2, 3]


def test_nothing_leaves_while_another_operation_is_under_way_or_by_who_may_not_act() -> None:
    scene = opened()
    scene.leaving = {1: (3,)}
    scene.acts = False
    assert begun(scene) is None
    scene.acts = True
    scene.begin_split(0)
    run(scene)
    assert there(begun(scene)).parents == (1,)


def test_what_kafka_refuses_for_good_is_tried_again_only_after_a_while() -> None:
    scene = opened()
    scene.leaving = {0: (3,)}
    assert begun(scene) is not None
    scene.answer(scene.task(), TaskFailed("too few brokers are left", for_good=True))
    run(scene)
    assert scene.state() is TopicState.STABLE
    assert begun(scene) is None
    scene.now += 31.0
    assert begun(scene) is not None


def test_a_sealed_segment_stays_where_it_is() -> None:
    scene = opened()
    scene.begin_split(0)
    run(scene)
    scene.leaving = {0: (3,)}
    assert begun(scene) is None


def test_the_log_says_who_is_drained() -> None:
    world = World(A)
    world.owned(A)
    world.must(world.placement(PolicyKind.KAFKA_DRAIN, "3", PolicyOp.CREATE, A))
    world.must(world.placement(PolicyKind.KAFKA_DRAIN, "12", PolicyOp.CREATE, A))
    assert drained_brokers(world.replica) == {3, 12}
    world.must(world.placement(PolicyKind.KAFKA_DRAIN, "3", PolicyOp.DELETE, A))
    assert drained_brokers(world.replica) == {12}


@pytest.mark.parametrize(
    ("drained", "leaving"),
    [
        ((), {}),
        ((9,), {}),
        ((1,), {42: {0: (1,)}}),
        ((2, 3), {42: {0: (2,), 1: (2, 3)}, 50: {7: (3,)}}),
    ],
)
def test_a_copy_that_only_follows_is_left_behind_as_well(
    drained: tuple[int, ...], leaving: dict[int, dict[int, tuple[int, ...]]]
) -> None:
    survey = KafkaSurvey(
        {1: "", 2: "", 3: ""},
        {
            (42, 0): (Copies(1, (1, 2)),),
            (42, 1): (Copies(3, (3,)), Copies(2, (2,))),
            (50, 7): (Copies(None, (3,)),),
        },
    )
    assert to_leave(survey, drained) == leaving
