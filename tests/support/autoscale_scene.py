"""A topic, its controller and Kafka, on one clock that a test moves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.autoscale.policy import AutoScalePolicy, checked_override, override_flat
from anabranch.core.autoscale.schedule import AutoScaleSettings, Evaluation
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.subscription import SubscriptionKind, SubscriptionOp
from anabranch.core.entities.topic import Operation, ScalableTopic, TopicMove
from anabranch.core.log.records import PolicyOp, TopicChange
from anabranch.core.topics import controller
from anabranch.core.topics.tasks import SealSegments, Task, TaskDone, TaskFailed
from support.autoscale import POLICY
from support.there import there
from support.world import FIRST, TOPIC, A, World

INTERVAL_S = 60.0


class ClockedWorld(World):
    """A world whose log tells the time that a test sets."""

    clock_ms = 1_000_000_000

    @property
    def now_ms(self) -> int:
        return self.clock_ms


class Scene:
    """The topic is open; its controller has not looked at it yet."""

    def __init__(self, segments: int = 1, policy: AutoScalePolicy = POLICY) -> None:
        self.world = ClockedWorld(A)
        self.world.owned(A)
        self.world.opened(segments)
        self.now = 50.0
        self.acts = True
        self.fits = True  # clients can be told of any layout
        self.tasks: list[Task] = []  # for Kafka
        self.loads: dict[int, SegmentLoad] | None = {}  # None: not read yet
        self.loads_asked: list[tuple[str, int]] = []
        self.settings = controller.ControllerSettings(
            auto_scale=AutoScaleSettings(policy, INTERVAL_S), retention_s=1e9
        )
        self.controller = self.fresh()

    def fresh(self) -> controller.TopicController:
        """A controller that knows only what the log says."""
        return controller.TopicController(
            TOPIC,
            self.world.replica,
            self.settings,
            lambda: self.world.actor(A),
            lambda now: self.acts,
            self.world.new_id,
            self._load,
            lambda parts: self.fits,
        )

    def _load(self, topic: str, incarnation: int) -> dict[int, SegmentLoad] | None:
        self.loads_asked.append((topic, incarnation))
        return self.loads

    @property
    def topic(self) -> ScalableTopic:
        return self.world.scalable()

    @property
    def active(self) -> tuple[SegmentInfo, ...]:
        return self.topic.layout.active

    @property
    def buckets(self) -> list[int]:
        return [part.buckets for part in self.active]

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.world.clock_ms += round(seconds * 1000)

    # --- who asks for what ----------------------------------------------------------------

    def join(
        self, *consumers: str, name: str = "sub", kind: SubscriptionKind = SubscriptionKind.STREAM
    ) -> None:
        if self.world.replica.subscription(TOPIC, name) is None:
            self.world.must(self.world.subscription(SubscriptionOp.CREATE, name, kind=kind))
        for number, each in enumerate(consumers, 1):
            joined: dict[str, Any] = {"consumer": each, "instance": number}
            self.world.must(self.world.subscription(SubscriptionOp.JOIN, name, **joined))

    def leave(self, consumer: str, name: str = "sub") -> None:
        self.world.must(self.world.subscription(SubscriptionOp.LEAVE, name, consumer=consumer))

    def override(self, **fields: object) -> None:
        flat = override_flat(checked_override(fields))
        self.world.must(self.world.topic(TopicMove.POLICY, auto_scale=flat))

    def override_namespace(self, **fields: object) -> None:
        flat = override_flat(checked_override(fields))
        self.world.must(self.world.namespace(FIRST, PolicyOp.UPDATE, auto_scale=flat))

    def by_hand(self, operation: Operation, children: tuple[SegmentInfo, ...]) -> None:
        self.world.committed(operation, children)

    # --- what the controller does -----------------------------------------------------------

    def look(self) -> list[controller.ControllerEffect]:
        effects = self.controller.reconcile(self.now, self.world.now_ms)
        self.tasks += [each.task for each in effects if isinstance(each, controller.RunTask)]
        return effects

    def evaluation(self) -> Evaluation | None:
        """What comes of one look, whose proposals are lost."""
        return next(iter(evaluations(self.look())), None)

    def evaluated(self) -> Evaluation:
        """What comes of one look, which has to evaluate."""
        return there(self.evaluation())

    def begin(self) -> TopicChange:
        """The one operation that comes of one look, and that is logged."""
        (record,) = begins(self.look())
        self.world.must(record)
        return record

    def begin_children(self) -> tuple[SegmentInfo, ...]:
        """What the one operation that comes of one look would make."""
        (record,) = begins(self.look())
        return record.segments

    def carry_on(self, failure: TaskFailed | None = None) -> list[Evaluation]:
        """Until nothing is left to do now; Kafka does, or fails, what it is told.

        Each step takes a millisecond of the log's time.
        """
        found: list[Evaluation] = []
        for _ in range(200):
            self.world.clock_ms += 1
            effects = self.look()
            while self.tasks:
                effects += self._answer(self.tasks.pop(0), failure)
            if not effects:
                return found
            found += evaluations(effects)
            for effect in effects:
                if isinstance(effect, controller.Propose):
                    self.world.must(effect.record)
        raise AssertionError("the controller does not come to rest")

    def _answer(self, task: Task, failure: TaskFailed | None) -> list[controller.ControllerEffect]:
        ends: tuple[int, ...] = ()
        if isinstance(task, SealSegments):
            ends = (0,) * sum(part.buckets for part in task.segments)
        result = failure or TaskDone(ends)
        effects = self.controller.finished(task, result, self.now, self.world.now_ms)
        self.tasks += [each.task for each in effects if isinstance(each, controller.RunTask)]
        return effects


def evaluations(effects: Iterable[controller.ControllerEffect]) -> list[Evaluation]:
    return [each.evaluation for each in effects if isinstance(each, controller.Evaluated)]


def begins(effects: Iterable[controller.ControllerEffect]) -> list[TopicChange]:
    """The operations that are proposed."""
    records = [each.record for each in effects if isinstance(each, controller.Propose)]
    return [each for each in records if isinstance(each, TopicChange)]
