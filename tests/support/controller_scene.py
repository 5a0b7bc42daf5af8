"""A topic whose controller a test drives, step by step; Kafka answers what the test says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anabranch.core.entities.layout import initial_segments
from anabranch.core.entities.subscription import SubscriptionOp
from anabranch.core.entities.topic import Operation, ScalableTopic, TopicMove, TopicState
from anabranch.core.log.records import SubscriptionChange, TopicCause, TopicChange
from anabranch.core.subscriptions.propose import subscription_change
from anabranch.core.topics import controller
from anabranch.core.topics.propose import topic_change
from anabranch.core.topics.tasks import Task, TaskDone, TaskFailed
from support.there import there
from support.world import A, World

NAME = "public/default/orders"


class Scene:
    """The topic's controller is broker A, on a log of its own."""

    def __init__(self, segments: int = 1) -> None:
        self.world = World(A)
        self.world.elect(A)
        self.world.owned(A)
        self.now = 50.0
        self.acts = True
        self.controller = self.fresh()
        self.must(self.change(TopicMove.CREATE, segments=initial_segments(segments)))

    def fresh(self) -> controller.TopicController:
        return controller.TopicController(
            NAME,
            self.world.replica,
            controller.ControllerSettings(retention_s=0.0, doubt_s=0.0),
            lambda: self.world.actor(A),
            lambda now: self.acts,
            self.world.new_id,
        )

    @property
    def topic(self) -> ScalableTopic:
        return there(self.world.replica.topic(NAME))

    def state(self) -> TopicState:
        return self.topic.state

    def change(self, move: TopicMove, **fields: Any) -> TopicChange:
        before = self.world.replica.topic(NAME)
        return topic_change(self.world.actor(A), NAME, before, move, self.world.new_id(), **fields)

    def begin_split(self, segment_id: int = 0) -> None:
        children = self.topic.layout.split_children(segment_id)
        self.must(
            self.change(
                TopicMove.BEGIN, operation=Operation.SPLIT, parents=(segment_id,), segments=children
            )
        )

    def must(self, record: TopicChange | SubscriptionChange) -> None:
        self.world.must(record)

    def look(self) -> list[controller.ControllerEffect]:
        return self.controller.reconcile(self.now, self.world.now_ms)

    def task(self) -> Task:
        """The one thing that the controller wants done in Kafka."""
        (run,) = [each for each in self.look() if isinstance(each, controller.RunTask)]
        return run.task

    def answer(
        self, task: Task, result: TaskDone | TaskFailed
    ) -> list[controller.ControllerEffect]:
        return self.take(self.controller.finished(task, result, self.now, self.world.now_ms))

    def take(
        self, effects: Iterable[controller.ControllerEffect]
    ) -> list[controller.ControllerEffect]:
        """Folds what is proposed; returns the rest."""
        rest: list[controller.ControllerEffect] = []
        for effect in effects:
            if isinstance(effect, controller.Propose):
                self.must(effect.record)  # type: ignore[arg-type]
            else:
                rest.append(effect)
        return rest

    def pushes(self) -> dict[int, list[int]]:
        """By connection, the segments that consumers are told of now."""
        pushes = [each for each in self.look() if isinstance(each, controller.SendAssignment)]
        return {each.connection: [s for s, _ in each.assignment.shares] for each in pushes}

    def causes(self, what: TopicMove | SubscriptionOp) -> list[TopicCause]:
        """Why the log has it."""
        return [
            record.cause
            for record, _ in self.world.log
            if (isinstance(record, TopicChange) and record.move is what)
            or (isinstance(record, SubscriptionChange) and record.op is what)
        ]

    def open(self) -> None:
        self.answer(self.task(), TaskDone())
        assert self.topic.state is TopicState.STABLE

    def join(self, name: str, consumer: str, instance: int, connection: int) -> None:
        """A consumer is registered and subscribes."""
        self.subscribe(SubscriptionOp.JOIN, name, consumer=consumer, instance=instance)
        assert self.controller.opened(name, consumer, instance, connection, (), (), self.now)

    def subscribe(self, op: SubscriptionOp, name: str = "sub", **fields: Any) -> None:
        before = self.world.replica.subscription(NAME, name)
        actor, new_id = self.world.actor(A), self.world.new_id()
        self.must(subscription_change(actor, NAME, self.topic, name, before, op, new_id, **fields))


def finish_split(scene: Scene) -> None:
    """Kafka makes the children and seals the parent, whose first bucket has one message."""
    scene.answer(scene.task(), TaskDone())
    scene.answer(scene.task(), TaskDone(end_offsets=(1, 0, 0, 0)))


def split_with_a_consumer() -> Scene:
    scene = Scene()
    scene.open()
    scene.subscribe(SubscriptionOp.CREATE)
    scene.join("sub", "c", 1, 11)
    scene.begin_split()
    finish_split(scene)
    return scene
