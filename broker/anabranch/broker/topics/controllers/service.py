"""`TopicService`: the controllers of the topics in this node's bundles, and their effects.

This is the shell around `core.topics.controller`. It has a controller only for topics that need
one, so an idle topic costs nothing. Such topics have an operation or garbage, registered or
connected consumers, or sealed segments to prune.

It runs their Kafka tasks in a thread, proposes their records, and hands their assignments to the
consumers' connections. The controllers of a bundle go when this node loses it, even for a moment
between two entries of one batch. Their knowledge of consumers is not true any more.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from itertools import chain, count
from typing import Final, Protocol

import msgspec

from anabranch.broker.errors import OperationError
from anabranch.broker.logging import get_logger
from anabranch.broker.runtime import Runtime
from anabranch.broker.topics.controllers.decisions import ScaleDecisions, is_rollover
from anabranch.broker.topics.controllers.schedule import TickSchedule
from anabranch.broker.topics.controllers.timelines import ChangeStep, Timelines
from anabranch.broker.topics.controllers.worker import WorkerPool
from anabranch.core.autoscale.schedule import AutoScaleSettings, LoadOf
from anabranch.core.bundles.guards import controller_of
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.entities.unit import Unit
from anabranch.core.log.state import Change
from anabranch.core.names import full_name, namespace_of
from anabranch.core.subscriptions.coordinator import ConsumerAssignment, SubscriptionCoordinator
from anabranch.core.topics.controller import (
    CloseConsumer,
    ControllerEffect,
    ControllerSettings,
    Evaluated,
    Propose,
    RunTask,
    SendAssignment,
    TopicController,
    Unserved,
)
from anabranch.core.topics.tasks import DeleteSegments, Task, TaskDone, TaskFailed

_TOPIC: Final = "topic:"
_SUBSCRIPTION: Final = "subscription:"
_VERDICT_S_MAX: Final = 30.0
_GRANTS_BITS: Final = 32  # of a process, which counts them above its place on the log
_FAILURES_MAX: Final = 1_000  # those of the topics that failed last

# True if clients can be told a layout: the prefix of Kafka topics, the topic, its segments.
Fits = Callable[[str, str, Iterable[SegmentInfo]], bool]


class ConsumerConnection(Protocol):
    """A consumer's connection."""

    def assigned(self, assignment: ConsumerAssignment) -> None: ...
    def fenced(self, why: str) -> None:
        """Its name is taken over: it is to give up all that it has, and to leave."""
        ...

    def dropped(self, why: str) -> None:
        """Its session is over, here at least: it must subscribe again."""
        ...


class Attached(msgspec.Struct):
    """A consumer's connection, and its subscription."""

    topic: str
    subscription: str
    consumer: ConsumerConnection
    dead_letters_waiting: int = 0


class _Home(msgspec.Struct):
    """A controller and the bundle in whose name it acts."""

    controller: TopicController
    unit: str


class TopicService:
    """One node's controllers, for use in its event loop."""

    def __init__(
        self,
        runtime: Runtime,
        settings: ControllerSettings,
        prefix: str,
        workers: WorkerPool,
        load: LoadOf,
        fits: Fits,
    ) -> None:
        self.runtime = runtime
        self.settings = settings
        self.prefix = prefix
        self.load = load
        self._fits = fits
        self.workers = workers
        self.scaling = ScaleDecisions(runtime.core.me)
        self.failures: dict[str, str] = {}  # Kafka's words on topics whose last step failed
        self._timelines = Timelines()
        self.step_took: Callable[[ChangeStep, float], None] = lambda step, seconds: None
        self.consumers: dict[int, Attached] = {}  # by connection number
        self.listeners: list[Callable[[list[str], list[str]], None]] = []  # sorted topics, bundles
        self.tickers: list[Callable[[], None]] = []  # called about every tenth of a second
        self.connection_number = count(1).__next__
        self._grants = count(1).__next__
        self._homes: dict[str, _Home] = {}
        self._pins: Counter[str] = Counter()
        self.open_since: dict[str, float] = {}  # by bundle: when this node got it last
        self._running: Counter[str] = Counter()  # by bundle
        self._closing: set[str] = set()
        self._rounds = TickSchedule(settings.auto_scale.interval_s, self.runtime.now())
        self._log = get_logger(broker=runtime.core.me)
        runtime.server = self

    def configure(self, auto_scale: AutoScaleSettings) -> None:
        """Topics scale by these settings from now on."""
        self.settings = msgspec.structs.replace(self.settings, auto_scale=auto_scale)
        now = self.runtime.now()
        for home in self._homes.values():
            home.controller.configure(auto_scale)
        self._rounds.configure(auto_scale.interval_s, now)
        self._rounds.look_through(self.open_since)

    # --- questions ----------------------------------------------------------------------

    def controllers(self) -> list[TopicController]:
        """The controllers of topics that have one here at this moment."""
        return [home.controller for home in self._homes.values()]

    def _unit(self, name: str) -> str:
        """Returns the bundle that lets this node control the topic; "" if another node does."""
        me = self.runtime.core.me
        home = self._homes.get(name)
        if home is not None:  # a bundle that has a holder has no children yet
            known = self.runtime.view.unit(home.unit)
            if known is not None and known.holder == me:
                return home.unit
        unit, holder = controller_of(self.runtime.view, name)
        return unit if holder == me else ""

    def may_act(self, name: str) -> bool:
        """Returns whether this node is the topic's controller at this instant."""
        unit = self._unit(name)
        return bool(unit) and self.runtime.core.may_act(unit, self.runtime.now())

    def controller(self, name: str) -> TopicController | None:
        """The topic's controller, made if there is none yet; None when it is not here."""
        unit = self._unit(name)
        return self._home(name, unit).controller if unit else None

    def _home(self, name: str, unit: str) -> _Home:
        home = self._homes.get(name)
        if home is None or home.unit != unit:
            core = self.runtime.core
            made = TopicController(
                name,
                self.runtime.view,
                self.settings,
                core.actor,
                lambda now: core.may_act(unit, now),
                self.runtime.proposals.new_id,
                self.load,
                lambda parts: self._fits(self.prefix, name, parts),
                partial(self._next_fence, unit),
            )
            home = self._homes[name] = _Home(made, unit)
            self._rounds.take_up(name)
        return home

    def _next_fence(self, unit: str) -> int:
        """Returns a greater number each time, also than another node or process did before, since
        whose end this one's session and its hold of the bundle stand on the log.
        """
        view = self.runtime.view
        held, session = view.unit(unit), view.session(self.runtime.core.me)
        since = max(each.since_offset for each in (held, session) if each is not None)
        return (since << _GRANTS_BITS) + self._grants()

    def known_controller(self, name: str) -> TopicController | None:
        """The topic's controller if there is one already and it is here."""
        home = self._homes.get(name)
        return home.controller if home is not None and self.may_act(name) else None

    def coordinator(self, name: str, subscription: str) -> SubscriptionCoordinator | None:
        """The coordinator of the subscription's consumers; None when it is not here."""
        controller = self.controller(name)
        return None if controller is None else controller.coordinators.get(subscription)

    @contextmanager
    def pinned(self, name: str) -> Iterator[None]:
        """The topic's controller is not forgotten meanwhile."""
        self._pins[name] += 1
        try:
            yield
        finally:
            self._pins[name] -= 1
            if not self._pins[name]:
                del self._pins[name]
                self._forget(name)

    # --- from the runtime ---------------------------------------------------------------

    def opened(self, unit: str) -> None:
        self.open_since[unit] = self.runtime.now()
        for name in list(self.runtime.view.restless_topics()):
            if name not in self._homes:
                self.reconcile(name, idle=False)
        self._rounds.look_through([unit])

    def close(self, unit: str) -> None:
        self.open_since.pop(unit, None)
        self._discard(unit)
        if self._running[unit]:
            self._closing.add(unit)
        else:
            self.runtime.closed(unit)

    def folded(self, changes: Iterable[Change]) -> None:
        touched: set[str] = set()
        units: list[str] = []
        me = self.runtime.core.me
        for key, entity in changes:
            if key.startswith(_TOPIC):
                touched.add(name := key[len(_TOPIC) :])
                self._time(name, entity)
                if is_rollover(entity) and self.may_act(name):
                    self.scaling.rolled(name)
            elif key.startswith(_SUBSCRIPTION):
                touched.add(key[len(_SUBSCRIPTION) :].rpartition("/")[0])
            elif type(entity) is Unit:
                units.append(key)
                if key in self.open_since and entity.holder != me:
                    self.open_since[key] = self.runtime.now()
                    self._discard(key)
        topics = sorted(touched)
        for name in topics:
            self.reconcile(name, idle=False)
        if topics or units:
            for listener in self.listeners:
                listener(topics, units)

    def ticked(self) -> None:
        for name in self._rounds.turns(self._homes.__contains__):
            self.reconcile(name)
        topics = self.runtime.view.topics
        looks = self._rounds.looks(self.runtime.now(), self.open_since, topics, self._is_mine)
        for name in chain(self._rounds.due(self.runtime.core.log_ms), looks):
            if name not in self._homes:
                self.reconcile(name, idle=False)
        for ticker in self.tickers:
            ticker()

    def replaced(self) -> None:
        self._timelines = Timelines()
        for unit in {home.unit for home in self._homes.values()}:
            self._discard(unit)
        self._rounds.look_through(self.open_since)

    async def stop(self) -> None:
        """Ends the threads; the topics' next controller finishes the tasks under way."""
        await asyncio.to_thread(self.workers.close)

    # --- controllers --------------------------------------------------------------------

    def reconcile(self, name: str, *, idle: bool = True) -> None:
        """Lets the topic's controller see its work, and does that.

        Without `idle` it makes no controller for a topic that has no work.
        """
        unit = self._unit(name)
        if not unit:
            self._homes.pop(name, None)
        elif idle or name in self._homes or self._has_work(name):
            controller = self._home(name, unit).controller
            self.carry_out(name, controller.reconcile(self.runtime.now(), self.runtime.core.log_ms))
            self._forget(name)

    def carry_out(self, name: str, effects: Iterable[ControllerEffect]) -> None:
        """Carries out the effects that the topic's controller has asked for."""
        for effect in effects:
            match effect:
                case RunTask(task):
                    self._start(name, task)
                case Propose(record):
                    # The controller repeats what the log does not show in time.
                    self.runtime.proposals.cast((record,), _VERDICT_S_MAX)
                case SendAssignment(connection, _, assignment):
                    attached = self.consumers.get(connection)
                    if attached is not None:
                        attached.consumer.assigned(assignment)
                case Evaluated(evaluation):
                    self.scaling.note(name, evaluation)
                case Unserved(subscription, buckets, bound_s):
                    self._log.error(
                        "subscription.buckets_unserved",
                        topic=name,
                        subscription=subscription,
                        count=len(buckets),
                        buckets=",".join(f"{segment}/{bucket}" for segment, bucket in buckets[:8]),
                        why=f"no connected consumer could be given them for {bound_s:g} s",
                    )
                case CloseConsumer(connection, subscription):
                    silent = self.consumers.get(connection)
                    if silent is not None:
                        self._log.warning("consumer.silent", topic=name, subscription=subscription)
                        silent.consumer.dropped("it was silent for too long")

    def _forget(self, name: str) -> None:
        home = self._homes.get(name)
        if home is None or self._pins[name] or not home.controller.is_idle:
            return
        topic = self.runtime.view.topic(name)
        if topic is None or not topic.is_restless:
            self._rounds.remind(name, home.controller.due_ms)
            del self._homes[name]

    def dismiss(self, topics: Collection[str], why: str, subscription: str | None = None) -> None:
        """Ends the sessions of these topics' consumers, of one subscription or of all."""
        for attached in list(self.consumers.values()):
            if attached.topic in topics and subscription in (None, attached.subscription):
                attached.consumer.dropped(why)

    def _discard(self, unit: str) -> None:
        left = {name for name, home in self._homes.items() if home.unit == unit}
        for name in left:
            del self._homes[name]
        self.scaling.drop(lambda name: controller_of(self.runtime.view, name)[0] == unit)
        if left:
            # They would notice at their next report, and be without a controller until then.
            self.dismiss(left, f"{self.runtime.core.me} does not serve bundle {unit} any more")

    def _has_work(self, name: str) -> bool:
        view, me = self.runtime.view, self.runtime.core.me
        topic = view.topic(name)
        return (
            view.session(me) is not None
            and topic is not None
            and (
                topic.is_restless
                or any(not part.is_active for part in topic.segments)
                or any(each.consumers for _, each in view.subscriptions(name))
                or bool(self.load(name, topic.incarnation))
            )
        )

    def _is_mine(self, name: str) -> bool:
        owner = self.runtime.routes.owner(full_name(name), namespace_of(name))
        return owner == self.runtime.core.me

    # --- effects ------------------------------------------------------------------------

    def _start(self, name: str, task: Task) -> None:
        home = self._homes[name]
        began = self.runtime.now()
        try:
            future = self.workers.task(task)
        except OperationError as error:
            failed: Future[TaskDone | TaskFailed] = Future()
            failed.set_result(TaskFailed(str(error)))
            future = failed
        self._running[home.unit] += 1

        def done(future: Future[TaskDone | TaskFailed]) -> None:
            self.runtime.soon(self._finished, name, home, task, began, future)

        future.add_done_callback(done)

    def _finished(
        self,
        name: str,
        home: _Home,
        task: Task,
        began: float,
        future: Future[TaskDone | TaskFailed],
    ) -> None:
        self._running[home.unit] -= 1
        if not self._running[home.unit]:
            del self._running[home.unit]
            if home.unit in self._closing:
                self._closing.discard(home.unit)
                self.runtime.closed(home.unit)
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._log.error("node.fault", topic=name, exc_info=error)
            self.runtime.fail(f"a fault while segments of {name} were changed: {error}")
            return
        result = future.result()
        if not isinstance(task, DeleteSegments):  # those follow a failure and must not hide it
            self.failures.pop(task.topic, None)
        if isinstance(result, TaskFailed):
            self.failures[task.topic] = result.reason
            if len(self.failures) > _FAILURES_MAX:
                del self.failures[next(iter(self.failures))]
        self._explain(name, task, result, self.runtime.now() - began)
        if isinstance(result, TaskDone):
            self._timelines.carried_out(name, task, self.runtime.now())
        if self._homes.get(name) is home:
            effects = home.controller.finished(
                task, result, self.runtime.now(), self.runtime.core.log_ms
            )
            self.carry_out(name, effects)
            self._forget(name)

    def _time(self, name: str, topic: object) -> None:
        known = topic if isinstance(topic, ScalableTopic) else None
        timeline = self._timelines.folded(name, known, self.runtime.now())
        if timeline is None:
            return
        for step, seconds in timeline.seconds.items():
            self.step_took(step, seconds)
        self._log.info(
            "topic.changed",
            topic=name,
            operation=timeline.operation.name.lower(),
            parents=timeline.parents,
            children=timeline.children,
            **{f"{step}_ms": round(1000 * s, 1) for step, s in timeline.seconds.items()},
        )

    def _explain(
        self, name: str, task: Task, result: TaskDone | TaskFailed, seconds: float
    ) -> None:
        fields: dict[str, object] = {
            "topic": name,
            "segments": ",".join(part.descriptor for part in task.segments[:8]),
            "count": len(task.segments),
            "ms": round(seconds * 1000, 1),
        }
        event = f"segments.{type(task).__name__.removesuffix('Segments').lower()}"
        if isinstance(result, TaskFailed):
            self._log.warning(event, **fields, why=result.reason, for_good=result.for_good)
        else:
            self._log.info(event, **fields)
