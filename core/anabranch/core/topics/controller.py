"""`TopicController`: the duties of the owner of a topic's bundle, without its shell.

Inputs in, effects out; no clock, thread or socket. Everything comes from reconciling the folded
topic with the running work. So a controller that takes over goes on from the last one's stop
(docs/topics.md; PIP-468, "ScalableTopicController").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from anabranch.core.autoscale.decisions import Blocked, NoAction
from anabranch.core.autoscale.schedule import (
    AutoScaler,
    AutoScaleSettings,
    Evaluation,
    LoadOf,
    demand_in,
)
from anabranch.core.bundles.propose import Actor, NewId
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.subscription import Subscription
from anabranch.core.entities.topic import ScalableTopic, TopicMove, TopicState
from anabranch.core.log.records import (
    Record,
    SubscriptionChange,
    TopicCause,
    TopicChange,
    subscription_key,
    topic_key,
)
from anabranch.core.log.state import StateReader
from anabranch.core.subscriptions.coordinator import ConsumerAssignment, SubscriptionCoordinator
from anabranch.core.subscriptions.draining import Bucket
from anabranch.core.subscriptions.propose import change_due, subscription_change
from anabranch.core.subscriptions.timing import Timing
from anabranch.core.topics.propose import action_change, topic_change
from anabranch.core.topics.retention import prunable, prunable_at_ms
from anabranch.core.topics.tasks import (
    Task,
    TaskDone,
    TaskFailed,
    after_task,
    next_task,
)


class ControllerSettings(msgspec.Struct, frozen=True):
    """The settings of a controller; durations in seconds."""

    timing: Timing = Timing()
    auto_scale: AutoScaleSettings = AutoScaleSettings()
    retention_s: float = 604_800.0  # for a sealed segment that everybody has drained
    doubt_s: float = 130.0  # the time one is kept in any case: producers settle from it
    retry_s: float = 1.0
    retry_s_max: float = 30.0
    sealing_retry_s_max: float = 5.0  # producers hold the segment's messages meanwhile
    prepare_s: float = 30.0  # an operation that cannot be prepared for this long is given up

    @property
    def sealed_s(self) -> float:
        """The least time for which a sealed segment is kept."""
        return max(self.retention_s, self.doubt_s)

    @property
    def settled_s(self) -> float:
        """The time after a seal by which each client knows of it, or has stopped: one that is cut
        off serves on for a session, and a controller that is none any more may answer it before.
        """
        return max(self.doubt_s, 2 * self.timing.lapse_s)


class RunTask(msgspec.Struct, frozen=True):
    """Carry this out and report `finished` with it."""

    task: Task


class Propose(msgspec.Struct, frozen=True):
    """Append this record to the log."""

    record: Record


class SendAssignment(msgspec.Struct, frozen=True):
    """Send this assignment to the consumer behind this connection."""

    connection: int
    subscription: str
    assignment: ConsumerAssignment


class CloseConsumer(msgspec.Struct, frozen=True):
    """The consumer behind this connection was silent for too long: close its session."""

    connection: int
    subscription: str


class Evaluated(msgspec.Struct, frozen=True):
    """The topic's load was looked at; the controller proposes the resulting action besides."""

    evaluation: Evaluation


class Unserved(msgspec.Struct, frozen=True):
    """These buckets have been without a consumer for longer than they may: somebody must look."""

    subscription: str
    buckets: tuple[Bucket, ...]
    bound_s: float


ControllerEffect = RunTask | Propose | SendAssignment | CloseConsumer | Evaluated | Unserved


class TopicController:
    """The controller of one topic, while this node holds its bundle. Called from one task only.

    `may_act` is asked before anything that only an owner may do; without it nothing comes out.
    """

    def __init__(
        self,
        name: str,
        state: StateReader,
        settings: ControllerSettings,
        actor: Callable[[], Actor],
        may_act: Callable[[float], bool],
        new_id: NewId,
        load: LoadOf = lambda topic, incarnation: {},
        fits: Callable[[tuple[SegmentInfo, ...]], bool] = lambda parts: True,
        next_fence: Callable[[], int] | None = None,
    ) -> None:
        self.name = name
        self.state = state
        self.coordinators: dict[str, SubscriptionCoordinator] = {}
        self.running: Task | None = None
        self.last_failure = ""  # why the last operation was given up, or does not get on
        self.scaler = AutoScaler(name, settings.auto_scale, load)
        self._next_fence = next_fence
        self._fits = fits  # tells whether clients can be told a layout of these segments
        self._settings = settings
        self._actor = actor
        self._may_act = may_act
        self._new_id = new_id
        self._proposed: dict[str, tuple[int, float]] = {}  # key: version, when to repeat
        self._failures = 0
        self._retry_at = 0.0
        self._failed_version = 0  # the topic's version for which the pause is meant
        self._preparing: tuple[int, float] = (0, 0.0)  # version, since when
        self._layout: tuple[int, int, SegmentLayout] | None = None  # with incarnation and version

    def configure(self, auto_scale: AutoScaleSettings) -> None:
        """Auto-scaling goes by these settings from now on, and looks anew when it is asked next."""
        self._settings = msgspec.structs.replace(self._settings, auto_scale=auto_scale)
        self.scaler.settings = auto_scale

    @property
    def is_idle(self) -> bool:
        """Tells whether it may be forgotten: nothing runs or waits, no consumer is connected or
        awaited.

        Nothing was just proposed either: another controller would propose it again at once.
        """
        if self.running is not None or self._proposed or self.scaler.is_waiting:
            return False
        return all(each.is_idle for each in self.coordinators.values())

    @property
    def due_ms(self) -> float | None:
        """The log's time of its next duty, even if nothing is logged; None: never."""
        topic = self.state.topic(self.name)
        if topic is None:
            return None
        return prunable_at_ms(self.state, self.name, topic, self._settings.sealed_s)

    # --- inputs -------------------------------------------------------------------------

    def reconcile(self, now: float, log_ms: int) -> list[ControllerEffect]:
        """The state was folded further, or time has passed. `log_ms`: the log's newest time."""
        topic = self.state.topic(self.name)
        if topic is None:
            self.coordinators.clear()
            self.scaler.ended()
            self._proposed = {}
            return []
        subscriptions = dict(self.state.subscriptions(self.name))
        known = {topic_key(self.name): topic.version} | {
            subscription_key(self.name, name): each.version for name, each in subscriptions.items()
        }
        self._proposed = {  # proposals on their way to the log
            key: (version, repeat_at)
            for key, (version, repeat_at) in self._proposed.items()
            if now < repeat_at and version > known.get(key, version)
        }
        if not self._may_act(now):
            return []
        if topic.is_open:
            self._sync(topic, subscriptions, now)
        effects = self._protocol(topic, now, log_ms)
        if topic.state is TopicState.STABLE and not effects:
            effects = self._scale(topic, subscriptions, now, log_ms)
        if topic.is_open:
            effects += self._consumers(topic, subscriptions, now)
        return effects

    def finished(
        self, task: Task, result: TaskDone | TaskFailed, now: float, log_ms: int
    ) -> list[ControllerEffect]:
        """The shell has carried a task out, or failed to."""
        self.running = None
        topic = self.state.topic(self.name)
        if topic is None or not self._may_act(now):
            return []
        if next_task(self.state, self.name, topic) != task:
            return self.reconcile(now, log_ms)  # the log has moved on meanwhile
        if isinstance(result, TaskDone):
            self.last_failure = ""
            return self._propose(
                after_task(self._actor(), topic, task, result, self._new_id()), now
            )
        return self._failed(topic, result, now)

    def opened(
        self,
        subscription: str,
        consumer: str,
        instance: int,
        connection: int,
        holdings: Iterable[Bucket],
        drained: Iterable[Bucket],
        now: float,
        *,
        anew: bool = False,
    ) -> bool:
        """A consumer whose registration is folded has subscribed; False when it is not."""
        topic = self.state.topic(self.name)
        if topic is None:
            self.coordinators.clear()
            return False
        self._sync(topic, dict(self.state.subscriptions(self.name)), now)
        coordinator = self.coordinators.get(subscription)
        return coordinator is not None and coordinator.opened(
            consumer, instance, connection, holdings, drained, now, anew=anew
        )

    def heard(
        self,
        subscription: str,
        consumer: str,
        connection: int,
        released: Iterable[Bucket],
        drained: Collection[Bucket],
        now: float,
    ) -> bool:
        """A consumer has reported; False when it must subscribe again, or elsewhere."""
        coordinator = self.coordinators.get(subscription)
        if coordinator is None or not self._may_act(now):
            return False
        return coordinator.heard(consumer, connection, released, drained, now)

    def closed(
        self, subscription: str, consumer: str, connection: int, now: float, *, hung_up: bool
    ) -> None:
        """A consumer's connection has ended without a word; see
        `SubscriptionCoordinator.closed`.
        """
        if (coordinator := self.coordinators.get(subscription)) is not None:
            coordinator.closed(consumer, connection, now, hung_up=hung_up)

    def left(self, subscription: str, consumer: str, *, keeps_share: bool = False) -> None:
        """A consumer serves nothing any more; the shell is to propose its LEAVE, or LAPSED."""
        if (coordinator := self.coordinators.get(subscription)) is not None:
            coordinator.left(consumer, keeps_share=keeps_share)

    # --- the layout ---------------------------------------------------------------------

    def _protocol(self, topic: ScalableTopic, now: float, log_ms: int) -> list[ControllerEffect]:
        if topic_key(self.name) in self._proposed:
            return []
        # Before what waits to be deleted: Kafka may refuse to delete for ever.
        gone = prunable(self.state, self.name, topic, log_ms, self._settings.sealed_s)
        if gone:
            record = topic_change(
                self._actor(),
                self.name,
                topic,
                TopicMove.PRUNE,
                self._new_id(),
                TopicCause.RETENTION,
                segment_ids=gone,
            )
            return self._propose(record, now)
        paused = topic.version == self._failed_version and now < self._retry_at
        if self.running is not None or paused:
            return []
        task = next_task(self.state, self.name, topic)
        if task is None:
            return []
        self.running = task
        return [RunTask(task)]

    def _failed(
        self, topic: ScalableTopic, failure: TaskFailed, now: float
    ) -> list[ControllerEffect]:
        self.last_failure = failure.reason
        self._failures = self._failures + 1 if topic.version == self._failed_version else 1
        self._failed_version = topic.version
        pause_s = self._settings.retry_s * 2 ** min(self._failures - 1, 10)
        sealing = topic.state is TopicState.SEALING
        most_s = self._settings.sealing_retry_s_max if sealing else self._settings.retry_s_max
        self._retry_at = now + min(pause_s, most_s)
        if topic.state not in (TopicState.CREATING, TopicState.PREPARING):
            return []  # the point of no return is passed: try again
        if self._preparing[0] != topic.version:
            self._preparing = (topic.version, now)
        waited_s = now - self._preparing[1]
        if not failure.for_good and waited_s < self._settings.prepare_s:
            return []
        undo = TopicMove.ABORT if topic.state is TopicState.PREPARING else TopicMove.DELETE
        self._retry_at = now
        record = topic_change(
            self._actor(), self.name, topic, undo, self._new_id(), TopicCause.FAILURE
        )
        return self._propose(record, now)

    def _scale(
        self,
        topic: ScalableTopic,
        subscriptions: Mapping[str, Subscription],
        now: float,
        log_ms: int,
    ) -> list[ControllerEffect]:
        if topic_key(self.name) in self._proposed:
            return []
        if topic.adopted is not None:
            return []  # only people cut over from an adopted Kafka topic
        layout = self._layout_of(topic)
        away = {name: each.away for name, each in self.coordinators.items()}
        demand = demand_in(subscriptions.items(), away)
        evaluation = self.scaler.due(self.state, topic, layout, demand, now, log_ms)
        if evaluation is None:
            return []
        decision = evaluation.decision
        if isinstance(decision, NoAction):
            return [Evaluated(evaluation)]
        most = self._settings.auto_scale.policy.max_entry_buckets_per_segment
        record = action_change(self._actor(), self.name, topic, decision, self._new_id(), most)
        if not self._fits(topic.segments + record.segments):
            self.scaler.refused(now)
            why = f"{decision.why}, but clients could not be told so large a layout"
            kept = NoAction(Blocked.LAYOUT_SIZE, why)
            return [Evaluated(msgspec.structs.replace(evaluation, decision=kept))]
        return [Evaluated(evaluation), *self._propose(record, now)]

    def _layout_of(self, topic: ScalableTopic) -> SegmentLayout:
        known = self._layout
        if known is None or known[:2] != (topic.incarnation, topic.version):
            layout = topic.layout
            if known is not None and known[0] == topic.incarnation:
                layout = layout.following(known[2])
            known = self._layout = (topic.incarnation, topic.version, layout)
        return known[2]

    # --- the consumers --------------------------------------------------------------------

    def _sync(
        self, topic: ScalableTopic, subscriptions: Mapping[str, Subscription], now: float
    ) -> None:
        for name in self.coordinators.keys() - subscriptions.keys():
            del self.coordinators[name]
        layout = self._layout_of(topic)
        for name, subscription in subscriptions.items():
            known = self.coordinators.get(name)
            if known is None or not known.is_of(subscription):
                timing = self._settings.timing
                self.coordinators[name] = SubscriptionCoordinator(timing, known, self._next_fence)
            self.coordinators[name].changed(layout, subscription, now)

    def _consumers(
        self, topic: ScalableTopic, subscriptions: Mapping[str, Subscription], now: float
    ) -> list[ControllerEffect]:
        effects: list[ControllerEffect] = []
        for name, coordinator in self.coordinators.items():
            effects += [CloseConsumer(each, name) for each in coordinator.silent(now)]
            effects += [
                SendAssignment(connection, name, assignment)
                for connection, assignment in coordinator.assignments(now)
            ]
            unserved = coordinator.target.unserved.news(now)
            if unserved:
                effects.append(Unserved(name, tuple(unserved), self._settings.timing.unserved_s))
            if subscription_key(self.name, name) in self._proposed:
                continue
            due = change_due(coordinator, now)
            if due is not None:
                who, what = self._actor(), (self.name, topic, name, subscriptions[name])
                record = subscription_change(
                    who, *what, due.op, self._new_id(), due.cause, **due.fields
                )
                effects += self._propose(record, now)
        return effects

    # --- proposals ------------------------------------------------------------------------

    def _propose(
        self, record: TopicChange | SubscriptionChange, now: float
    ) -> list[ControllerEffect]:
        self._proposed[record.key] = (record.version, now + self._settings.retry_s)
        return [Propose(record)]
