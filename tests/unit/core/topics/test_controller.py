"""A topic's controller: the protocol step by step, and what happens when steps fail."""

from __future__ import annotations

import pytest

from anabranch.core.entities.layout import initial_segments
from anabranch.core.entities.subscription import SubscriptionOp
from anabranch.core.entities.topic import TopicMove, TopicState
from anabranch.core.log.records import TopicCause
from anabranch.core.topics import tasks
from anabranch.core.topics.controller import Propose
from support.controller_scene import NAME, Scene, finish_split, split_with_a_consumer
from support.there import there
from support.world import UNIT, A


@pytest.fixture
def scene() -> Scene:
    """An open topic whose split has begun."""
    scene = Scene()
    scene.open()
    scene.begin_split()
    return scene


@pytest.mark.parametrize("steps", range(4))
def test_a_new_controller_finishes_what_was_begun_after_any_step(scene: Scene, steps: int) -> None:
    answers = [tasks.TaskDone(), tasks.TaskDone(end_offsets=(0, 0, 0, 0))]
    for step in range(steps):
        if step % 2 == 0:
            scene.task()  # runs in Kafka, and nobody hears of it
        elif answers:
            scene.controller = scene.fresh()
            scene.answer(scene.task(), answers.pop(0))
        scene.controller = scene.fresh()
    while scene.state() is not TopicState.STABLE:
        scene.answer(scene.task(), answers.pop(0))
    assert [part.segment_id for part in scene.topic.layout.active] == [1, 2]


def test_one_task_runs_at_a_time() -> None:
    scene = Scene()
    scene.task()
    assert scene.look() == []


def test_without_the_right_to_act_nothing_comes_out() -> None:
    scene = Scene()
    task = scene.task()
    scene.acts = False
    assert scene.controller.finished(task, tasks.TaskDone(), scene.now, 0) == []
    assert scene.look() == []
    scene.acts = True
    assert scene.task() == task


def test_a_split_that_kafka_refuses_for_good_is_undone_and_says_why(scene: Scene) -> None:
    scene.answer(scene.task(), tasks.TaskFailed("no right to create topics", for_good=True))
    assert scene.state() is TopicState.STABLE
    assert scene.topic.move is TopicMove.ABORT
    assert scene.causes(TopicMove.ABORT) == [TopicCause.FAILURE]
    assert scene.controller.last_failure == "no right to create topics"
    assert [part.segment_id for part in scene.topic.garbage] == [1, 2]
    clean_up = scene.task()
    assert isinstance(clean_up, tasks.DeleteSegments)
    scene.answer(clean_up, tasks.TaskDone())
    assert not scene.topic.garbage
    assert scene.controller.last_failure == ""
    assert scene.topic.next_segment_id == 3, "names in Kafka are never used again"


def test_a_topic_that_kafka_refuses_for_good_goes_again() -> None:
    scene = Scene()
    scene.answer(scene.task(), tasks.TaskFailed("no right to create topics", for_good=True))
    assert scene.state() is TopicState.DELETING


def test_what_may_pass_is_tried_again_after_a_pause_and_given_up_in_the_end(scene: Scene) -> None:
    scene.answer(scene.task(), tasks.TaskFailed("no answer"))
    assert scene.look() == []
    scene.now += 1.1
    scene.answer(scene.task(), tasks.TaskFailed("no answer"))
    assert scene.state() is TopicState.PREPARING
    scene.now += 31
    scene.answer(scene.task(), tasks.TaskFailed("no answer"))
    assert scene.topic.move is TopicMove.ABORT


def next_attempt(scene: Scene, pause_s: float) -> tasks.Task:
    """What is tried again after this pause, and not before."""
    scene.now += pause_s - 0.125
    assert scene.look() == []
    scene.now += 0.125
    return scene.task()


def test_the_pause_between_attempts_doubles_up_to_its_maximum() -> None:
    scene = Scene()
    scene.must(scene.change(TopicMove.DELETE))
    task = scene.task()
    for pause_s in (1, 2, 4, 8, 16, 30, 30):
        scene.answer(task, tasks.TaskFailed("no answer"))
        task = next_attempt(scene, pause_s)


def test_sealing_is_tried_again_soon_and_the_step_after_it_begins_anew(scene: Scene) -> None:
    scene.answer(scene.task(), tasks.TaskDone())
    task = scene.task()
    for pause_s in (1, 2, 4, 5, 5):
        scene.answer(task, tasks.TaskFailed("no right to alter configs", for_good=True))
        task = next_attempt(scene, pause_s)
    assert scene.state() is TopicState.SEALING, "it is never given up"
    scene.answer(task, tasks.TaskDone(end_offsets=(0, 0, 0, 0)))
    scene.begin_split(1)
    scene.answer(scene.task(), tasks.TaskFailed("no answer"))
    assert isinstance(next_attempt(scene, 1), tasks.MakeSegments)


def test_what_is_proposed_is_proposed_again_only_when_it_seems_to_be_lost() -> None:
    scene = Scene()
    (first,) = scene.controller.finished(
        scene.task(), tasks.TaskDone(), scene.now, scene.world.now_ms
    )
    assert isinstance(first, Propose)
    assert scene.look() == []
    scene.now += 0.875
    assert scene.look() == []
    scene.now += 0.125
    scene.answer(scene.task(), tasks.TaskDone())
    assert scene.topic.is_open


def test_a_controller_is_not_forgotten_while_what_it_proposed_is_on_its_way() -> None:
    scene = Scene()
    effects = scene.controller.finished(
        scene.task(), tasks.TaskDone(), scene.now, scene.world.now_ms
    )
    assert not scene.controller.is_idle, "another one would propose it again at once"
    scene.take(effects)
    scene.take(scene.look())
    assert scene.controller.is_idle, "the log shows it"


def test_a_drained_segment_is_pruned_and_its_kafka_topic_deleted() -> None:
    scene = split_with_a_consumer()
    scene.take(scene.look())
    assert not scene.topic.garbage, "the subscription has still to read it"
    scene.controller.heard("sub", "c", 11, (), [(0, bucket) for bucket in range(4)], scene.now)
    scene.take(scene.look())
    scene.take(scene.look())
    assert [part.segment_id for part in scene.topic.garbage] == [0]
    assert scene.causes(TopicMove.PRUNE) == [TopicCause.RETENTION]
    scene.answer(scene.task(), tasks.TaskDone())
    assert [part.segment_id for part in scene.topic.segments] == [1, 2]
    assert not scene.topic.garbage
    assert there(scene.world.replica.subscription(NAME, "sub")).drained == ()


def test_a_consumer_that_stays_away_for_its_grace_is_struck_off() -> None:
    scene = split_with_a_consumer()
    scene.controller.closed("sub", "c", 11, scene.now, hung_up=False)
    scene.now += 61
    scene.take(scene.look())
    assert there(scene.world.replica.subscription(NAME, "sub")).consumers == ()
    assert scene.causes(SubscriptionOp.LEAVE) == [TopicCause.GRACE_OVER]


def test_deleting_takes_everything_and_a_new_topic_of_the_name_is_another() -> None:
    scene = split_with_a_consumer()
    before = scene.topic.incarnation
    scene.must(scene.change(TopicMove.DELETE))
    task = scene.task()
    assert isinstance(task, tasks.DeleteSegments)
    assert {part.segment_id for part in task.segments} == {0, 1, 2}
    assert [name for name, _ in task.subscriptions] == ["sub"]
    scene.answer(task, tasks.TaskDone())
    assert scene.world.replica.subscription(NAME, "sub") is None
    scene.must(scene.change(TopicMove.CREATE, segments=initial_segments(1)))
    assert scene.topic.incarnation > before
    assert scene.world.unit(UNIT).holder == A


def test_garbage_that_kafka_keeps_delays_neither_a_split_nor_pruning(scene: Scene) -> None:
    scene.answer(scene.task(), tasks.TaskFailed("no right to create topics", for_good=True))
    for _ in range(6):
        scene.answer(scene.task(), tasks.TaskFailed("no right to delete topics", for_good=True))
        scene.now += 31
    scene.answer(scene.task(), tasks.TaskFailed("no right to delete topics", for_good=True))
    scene.begin_split()
    finish_split(scene)
    scene.take(scene.look())
    assert [part.segment_id for part in scene.topic.garbage] == [1, 2, 0]
