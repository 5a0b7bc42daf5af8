"""`TopicService`: the controllers of the topics in this node's bundles, and what they ask for.

The shell around `core.controller`: it has a controller only for topics that something is to be done
for (an operation or garbage, consumers that are registered or connected, sealed segments to prune),
so that an idle topic costs nothing. It runs their Kafka tasks in a thread, proposes their
records, and hands their assignments to the consumers' connections. A bundle that this node loses,
even for a moment between two entries of one batch, takes its controllers with it: what they knew of
consumers is not true any more.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import count
from typing import Final, Protocol

import msgspec

from anabranch.broker.errors import OperationError
from anabranch.broker.log import get_logger
from anabranch.broker.runtime import Runtime
from anabranch.broker.topics.failures import Failures
from anabranch.broker.topics.limits import fits_clients
from anabranch.broker.topics.rounds import Rounds
from anabranch.broker.topics.scaling import Scaling, is_rollover
from anabranch.broker.topics.worker import Lanes, SegmentKeeper
from anabranch.core.autoscaler import LoadOf
from anabranch.core.controller import (
    ControllerEffect,
    ControllerSettings,
    Drop,
    Evaluated,
    Propose,
    Push,
    Run,
    TopicController,
)
from anabranch.core.coordinator import Assignment
from anabranch.core.names import full_name, namespace_of
from anabranch.core.outcome import Folded
from anabranch.core.records import Record
from anabranch.core.segment_tasks import Done, Failed, Task
from anabranch.core.state import Change
from anabranch.core.topic_guards import controller_of
from anabranch.core.units import Unit
from anabranch.wire import clock

_TOPIC: Final = "topic:"
_SUBSCRIPTION: Final = "subscription:"
_VERDICT_S_MAX: Final = 30.0


class Consumer(Protocol):
    """A consumer's connection."""

    def assigned(self, assignment: Assignment) -> None: ...
    def dropped(self, why: str) -> None:
        """Its session is over, here at least: it must subscribe again."""
        ...


class Attached(msgspec.Struct, frozen=True):
    """A consumer's connection, and what it consumes."""

    topic: str
    subscription: str
    consumer: Consumer


class _Home(msgspec.Struct):
    """A controller and the bundle in whose name it acts."""

    controller: TopicController
    unit: str


class TopicService:
    """One node's controllers. To be used in its event loop."""

    def __init__(
        self,
        runtime: Runtime,
        settings: ControllerSettings,
        prefix: str,
        open_keeper: Callable[[], SegmentKeeper],
        load: LoadOf,
    ) -> None:
        self.runtime = runtime
        self.settings = settings
        self.prefix = prefix
        self.load = load
        self.lanes = Lanes(open_keeper, prefix)
        self.scaling = Scaling(runtime.core.me, lambda: runtime.view, self.controllers)
        self.failures = Failures()
        self.consumers: dict[int, Attached] = {}  # by connection number
        self.listeners: list[Callable[[set[str], list[str]], None]] = []  # of topics and bundles
        self.tickers: list[Callable[[], None]] = []  # called about every tenth of a second
        self.connection_number = count(1).__next__
        self._homes: dict[str, _Home] = {}
        self._pins: Counter[str] = Counter()
        self._open: dict[str, None] = {}
        self._running: Counter[str] = Counter()  # by bundle
        self._closing: set[str] = set()
        self._rounds = Rounds(settings.auto_scale.interval_s, clock.now())
        self._loop = asyncio.get_running_loop()
        self._log = get_logger(broker=runtime.core.me)
        runtime.server = self

    # --- questions ----------------------------------------------------------------------

    def controllers(self) -> list[TopicController]:
        """Those that there are at this moment."""
        return [home.controller for home in self._homes.values()]

    @property
    def controlled(self) -> int:
        """How many topics have a controller here at this moment."""
        return len(self._homes)

    def may_act(self, name: str) -> bool:
        """Whether this node is the topic's controller at this instant."""
        unit, holder = controller_of(self.runtime.view, name)
        return holder == self.runtime.core.me and self.runtime.may_act(unit)

    def controller(self, name: str) -> TopicController | None:
        """The topic's controller, made if there is none yet; None when it is not here."""
        unit, holder = controller_of(self.runtime.view, name)
        if holder != self.runtime.core.me:
            return None
        home = self._homes.get(name)
        if home is None or home.unit != unit:
            core = self.runtime.core
            made = TopicController(
                name,
                self.runtime.view,
                self.settings,
                core.actor,
                lambda now: core.may_act(unit, now),
                self.runtime.new_id,
                self.load,
                lambda parts: fits_clients(self.prefix, name, parts),
            )
            home = self._homes[name] = _Home(made, unit)
            self._rounds.take_up(name)
        return home.controller

    def known_controller(self, name: str) -> TopicController | None:
        """The topic's controller if there is one already and it is here."""
        home = self._homes.get(name)
        return home.controller if home is not None and self.may_act(name) else None

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
        self._open[unit] = None
        for name in list(self.runtime.view.restless_topics()):
            self._look(name)
        self._rounds.look_through([unit])

    def close(self, unit: str) -> None:
        self._open.pop(unit, None)
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
                if is_rollover(entity) and self.may_act(name):
                    self.scaling.rolled(name)
            elif key.startswith(_SUBSCRIPTION):
                touched.add(key[len(_SUBSCRIPTION) :].rpartition("/")[0])
            elif type(entity) is Unit:
                units.append(key)
                if key in self._open and entity.holder != me:
                    self._discard(key)
        for name in sorted(touched):
            if name in self._homes or self._has_work(name):
                self.reconcile(name)
        if touched or units:
            for listener in self.listeners:
                listener(touched, units)

    def ticked(self) -> None:
        for name in self._rounds.turns(self._homes.__contains__):
            self.reconcile(name)
        topics = self.runtime.view.topics
        for name in self._rounds.looks(clock.now(), self._open, topics, self._is_mine):
            self._look(name)
        for ticker in self.tickers:
            ticker()

    def replaced(self) -> None:
        for unit in {home.unit for home in self._homes.values()}:
            self._discard(unit)
        self._rounds.look_through(self._open)

    async def stop(self) -> None:
        """Ends the threads; what is under way is finished by whoever controls the topics next."""
        await asyncio.to_thread(self.lanes.close)

    # --- controllers --------------------------------------------------------------------

    def reconcile(self, name: str) -> None:
        """Lets the topic's controller see what there is to do, and does it."""
        controller = self.controller(name)
        if controller is None:
            self._homes.pop(name, None)
            return
        self.carry_out(name, controller.reconcile(clock.now(), self.runtime.log_ms))
        self._forget(name)

    def carry_out(self, name: str, effects: Iterable[ControllerEffect]) -> None:
        """What the topic's controller has asked for."""
        for effect in effects:
            match effect:
                case Run(task):
                    self._start(name, task)
                case Propose(record):
                    self._propose(record)
                case Push(connection, _, assignment):
                    attached = self.consumers.get(connection)
                    if attached is not None:
                        attached.consumer.assigned(assignment)
                case Evaluated(evaluation):
                    self.scaling.note(name, evaluation)
                case Drop(connection, subscription):
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
        if view.session(me) is None or controller_of(view, name)[1] != me:
            return False
        topic = view.topic(name)
        return topic is not None and (
            topic.is_restless
            or any(not part.is_active for part in topic.segments)
            or any(each.consumers for _, each in view.subscriptions(name))
            or bool(self.load(name, topic.incarnation))
        )

    def _look(self, name: str) -> None:
        if name not in self._homes and self._has_work(name):
            self.reconcile(name)

    def _is_mine(self, name: str) -> bool:
        owner = self.runtime.routes.owner(full_name(name), namespace_of(name))
        return owner == self.runtime.core.me

    # --- effects ------------------------------------------------------------------------

    def _start(self, name: str, task: Task) -> None:
        home = self._homes[name]
        began = clock.now()
        try:
            future = self.lanes.task(task)
        except OperationError as error:
            failed: Future[Done | Failed] = Future()
            failed.set_result(Failed(str(error)))
            future = failed
        self._running[home.unit] += 1

        def done(future: Future[Done | Failed]) -> None:
            with suppress(RuntimeError):  # the loop is closed: the process is ending
                self._loop.call_soon_threadsafe(self._finished, name, home, task, began, future)

        future.add_done_callback(done)

    def _finished(
        self, name: str, home: _Home, task: Task, began: float, future: Future[Done | Failed]
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
        self.failures.note(task, result)
        self._explain(name, task, result, clock.now() - began)
        if self._homes.get(name) is home:
            effects = home.controller.finished(task, result, clock.now(), self.runtime.log_ms)
            self.carry_out(name, effects)
            self._forget(name)

    def _explain(self, name: str, task: Task, result: Done | Failed, seconds: float) -> None:
        fields: dict[str, object] = {
            "topic": name,
            "segments": ",".join(part.descriptor for part in task.segments[:8]),
            "count": len(task.segments),
            "ms": round(seconds * 1000, 1),
        }
        event = f"segments.{type(task).__name__.removesuffix('Segments').lower()}"
        if isinstance(result, Failed):
            self._log.warning(event, **fields, why=result.reason, for_good=result.for_good)
        else:
            self._log.info(event, **fields)

    def delete_group(self, group: str) -> None:
        """Deletes a Kafka group, if that is possible now; else it expires by itself."""

        def done(future: Future[list[str]]) -> None:
            failed = future.cancelled() or future.exception() is not None
            left = failed or bool(future.result())
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._log_group, group, left)

        with suppress(OperationError):
            self.lanes.delete_group(group).add_done_callback(done)

    def _log_group(self, group: str, left: bool) -> None:
        self._log.info("group.deleted", group=group, left_to_expire=left)

    def _propose(self, record: Record) -> None:
        """Proposes without waiting: the controller repeats what the log does not show in time."""
        verdict = self.runtime.propose(record)
        overdue = self._loop.call_later(_VERDICT_S_MAX, verdict.cancel)

        def settled(done: asyncio.Future[Folded]) -> None:
            overdue.cancel()
            if not done.cancelled():
                done.exception()  # a node that stops tells everybody who waits by itself

        verdict.add_done_callback(settled)
