"""A topic's controller: the protocol step by step, and what happens when steps fail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from anabranch.core.controller import (
    ControllerEffect,
    ControllerSettings,
    Propose,
    Push,
    Run,
    TopicController,
)
from anabranch.core.layout import initial_segments
from anabranch.core.records import SubscriptionChange, TopicChange
from anabranch.core.segment_tasks import (
    DeleteSegments,
    Done,
    Failed,
    MakeSegments,
    SealSegments,
    Task,
)
from anabranch.core.subscriptions import SubscriptionOp
from anabranch.core.topic_proposals import subscription_change, topic_change
from anabranch.core.topics import Operation, ScalableTopic, TopicMove, TopicState
from support.world import UNIT, A, World

NAME = "public/default/orders"


class Scene:
    """A topic whose controller is broker A, on its own log; Kafka answers what the test says."""

    def __init__(self, segments: int = 1) -> None:
        self.world = World(A)
        self.world.elect(A)
        self.world.owned(A)
        self.now = 50.0
        self.acts = True
        self.controller = self.fresh()
        first = initial_segments(segments)
        self.must(self.change(TopicMove.CREATE, segments=first))

    def fresh(self) -> TopicController:
        return TopicController(
            NAME,
            self.world.replica,
            ControllerSettings(retention_s=0.0),
            lambda: self.world.actor(A),
            lambda now: self.acts,
            self.world.new_id,
        )

    @property
    def topic(self) -> ScalableTopic:
        topic = self.world.replica.topic(NAME)
        assert topic is not None
        return topic

    def state(self) -> TopicState:
        return self.topic.state

    def change(self, move: TopicMove, **fields: Any) -> TopicChange:
        before = self.world.replica.topic(NAME)
        return topic_change(self.world.actor(A), NAME, before, move, self.world.new_id(), **fields)

    def begin_split(self, segment_id: int = 0) -> None:
        children = self.topic.layout.split_children(segment_id)
        self.must(
            self.change(
                TopicMove.BEGIN,
                operation=Operation.SPLIT,
                parents=(segment_id,),
                segments=children,
            )
        )

    def must(self, record: TopicChange | SubscriptionChange) -> None:
        self.world.must(record)

    def look(self) -> list[ControllerEffect]:
        return self.controller.reconcile(self.now, self.world.now_ms)

    def task(self) -> Task:
        """The one thing that the controller wants done in Kafka."""
        (run,) = [each for each in self.look() if isinstance(each, Run)]
        return run.task

    def answer(self, task: Task, result: Done | Failed) -> list[ControllerEffect]:
        return self.take(self.controller.finished(task, result, self.now, self.world.now_ms))

    def take(self, effects: Iterable[ControllerEffect]) -> list[ControllerEffect]:
        """Folds what is proposed; returns the rest."""
        rest: list[ControllerEffect] = []
        for effect in effects:
            if isinstance(effect, Propose):
                self.must(effect.record)  # type: ignore[arg-type]
            else:
                rest.append(effect)
        return rest

    def open(self) -> None:
        self.answer(self.task(), Done())
        assert self.topic.state is TopicState.STABLE

    def subscribe(self, op: SubscriptionOp, **fields: Any) -> None:
        before = self.world.replica.subscription(NAME, "sub")
        actor, new_id = self.world.actor(A), self.world.new_id()
        self.must(subscription_change(actor, NAME, self.topic, "sub", before, op, new_id, **fields))


def test_a_topic_opens_once_its_kafka_topics_are_made() -> None:
    scene = Scene(segments=2)
    task = scene.task()
    assert isinstance(task, MakeSegments)
    assert [part.descriptor for part in task.segments] == ["0000-7fff-0", "8000-ffff-1"]
    assert scene.state() is TopicState.CREATING
    scene.answer(task, Done())
    assert scene.topic.is_open
    assert scene.topic.epoch == 0


def test_a_split_makes_the_children_then_seals_the_parent_then_commits() -> None:
    scene = Scene()
    scene.open()
    scene.begin_split()
    make = scene.task()
    assert isinstance(make, MakeSegments)
    scene.answer(make, Done())
    seal = scene.task()
    assert isinstance(seal, SealSegments)
    assert scene.state() is TopicState.SEALING
    scene.answer(seal, Done(end_offsets=(5, 6, 7, 8)))
    layout = scene.topic.layout
    assert [part.segment_id for part in layout.active] == [1, 2]
    assert layout.segments[0].end_offsets == (5, 6, 7, 8)
    assert layout.segments[0].sealed_at_epoch == layout.epoch == scene.topic.epoch == 3


@pytest.mark.parametrize("steps", range(4))
def test_another_controller_finishes_what_was_begun_after_any_step(steps: int) -> None:
    scene = Scene()
    scene.open()
    scene.begin_split()
    answers = [Done(), Done(end_offsets=(0, 0, 0, 0))]
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
    assert scene.controller.finished(task, Done(), scene.now, 0) == []
    assert scene.look() == []
    scene.acts = True
    assert scene.task() == task


def test_a_split_that_kafka_refuses_for_good_is_undone_and_says_why() -> None:
    scene = Scene()
    scene.open()
    scene.begin_split()
    scene.answer(scene.task(), Failed("no right to create topics", for_good=True))
    assert scene.state() is TopicState.STABLE
    assert scene.topic.move is TopicMove.ABORT
    assert scene.controller.last_failure == "no right to create topics"
    assert [part.segment_id for part in scene.topic.garbage] == [1, 2]
    clean_up = scene.task()
    assert isinstance(clean_up, DeleteSegments)
    scene.answer(clean_up, Done())
    assert not scene.topic.garbage
    assert scene.topic.next_segment_id == 3, "names in Kafka are never used again"


def test_a_topic_that_kafka_refuses_for_good_goes_again() -> None:
    scene = Scene()
    scene.answer(scene.task(), Failed("too few brokers", for_good=True))
    assert scene.state() is TopicState.DELETING
    scene.answer(scene.task(), Done())
    assert scene.world.replica.topic(NAME) is None


def test_what_may_pass_is_tried_again_after_a_pause_and_given_up_in_the_end() -> None:
    scene = Scene()
    scene.open()
    scene.begin_split()
    scene.answer(scene.task(), Failed("no answer"))
    assert scene.look() == []
    scene.now += 1.1
    scene.answer(scene.task(), Failed("no answer"))
    assert scene.state() is TopicState.PREPARING
    scene.now += 31
    scene.answer(scene.task(), Failed("no answer"))
    assert scene.topic.move is TopicMove.ABORT


def test_sealing_is_never_given_up() -> None:
    scene = Scene()
    scene.open()
    scene.begin_split()
    scene.answer(scene.task(), Done())
    for _ in range(20):
        scene.answer(scene.task(), Failed("no right to alter configs", for_good=True))
        scene.now += 31
    assert scene.state() is TopicState.SEALING
    scene.answer(scene.task(), Done(end_offsets=(0, 0, 0, 0)))
    assert scene.state() is TopicState.STABLE


def split_with_a_consumer() -> Scene:
    scene = Scene()
    scene.open()
    scene.subscribe(SubscriptionOp.CREATE)
    scene.subscribe(SubscriptionOp.JOIN, consumer="c", instance=1)
    assert scene.controller.opened("sub", "c", 1, 11, (), (), scene.now)
    scene.begin_split()
    scene.answer(scene.task(), Done())
    scene.answer(scene.task(), Done(end_offsets=(1, 0, 0, 0)))
    return scene


def test_children_are_given_out_once_their_parent_is_drained() -> None:
    scene = split_with_a_consumer()
    pushes = [each for each in scene.look() if isinstance(each, Push)]
    assert [share[0] for share in pushes[-1].assignment.shares] == [0]
    drained = [(0, bucket) for bucket in range(4)]
    assert scene.controller.heard("sub", "c", 11, (), drained, scene.now)
    scene.take(scene.look())
    pushes = [each for each in scene.look() if isinstance(each, Push)]
    assert [share[0] for share in pushes[-1].assignment.shares] == [1, 2]


def test_a_drained_segment_is_pruned_and_its_kafka_topic_deleted() -> None:
    scene = split_with_a_consumer()
    scene.take(scene.look())
    assert not scene.topic.garbage, "the subscription has still to read it"
    drained = [(0, bucket) for bucket in range(4)]
    scene.controller.heard("sub", "c", 11, (), drained, scene.now)
    scene.take(scene.look())
    scene.take(scene.look())
    assert [part.segment_id for part in scene.topic.garbage] == [0]
    scene.answer(scene.task(), Done())
    assert [part.segment_id for part in scene.topic.segments] == [1, 2]
    assert not scene.topic.garbage
    subscription = scene.world.replica.subscription(NAME, "sub")
    assert subscription is not None
    assert subscription.drained == ()


def test_a_consumer_that_stays_away_for_its_grace_is_struck_off() -> None:
    scene = split_with_a_consumer()
    scene.controller.closed("sub", "c", 11, scene.now)
    scene.now += 61
    scene.take(scene.look())
    subscription = scene.world.replica.subscription(NAME, "sub")
    assert subscription is not None
    assert subscription.consumers == ()


def test_deleting_takes_everything_and_a_new_topic_of_the_name_is_another() -> None:
    scene = split_with_a_consumer()
    before = scene.topic.incarnation
    scene.must(scene.change(TopicMove.DELETE))
    task = scene.task()
    assert isinstance(task, DeleteSegments)
    assert {part.segment_id for part in task.segments} == {0, 1, 2}
    assert [name for name, _ in task.subscriptions] == ["sub"]
    scene.answer(task, Done())
    assert scene.world.replica.subscription(NAME, "sub") is None
    scene.must(scene.change(TopicMove.CREATE, segments=initial_segments(1)))
    assert scene.topic.incarnation > before
    assert scene.world.unit(UNIT).holder == A


def test_garbage_that_kafka_keeps_delays_neither_a_split_nor_pruning() -> None:
    scene = Scene()
    scene.open()
    scene.begin_split()
    scene.answer(scene.task(), Failed("no right to create topics", for_good=True))
    for _ in range(6):
        scene.answer(scene.task(), Failed("no right to delete topics", for_good=True))
        scene.now += 31
    scene.answer(scene.task(), Failed("no right to delete topics", for_good=True))
    scene.begin_split()
    scene.answer(scene.task(), Done())
    scene.answer(scene.task(), Done(end_offsets=(0, 0, 0, 0)))
    scene.take(scene.look())
    assert [part.segment_id for part in scene.topic.garbage] == [1, 2, 0]


def test_a_subscription_made_again_starts_with_nobody() -> None:
    scene = split_with_a_consumer()
    scene.subscribe(SubscriptionOp.DELETE)
    scene.subscribe(SubscriptionOp.CREATE)
    scene.look()
    assert scene.controller.coordinators["sub"].connected == []
