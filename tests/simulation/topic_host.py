"""What a broker's topic service does, simulated: controllers, and consumers' sessions with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from anabranch.broker.binary.forms import assignment_form
from anabranch.broker.topics import consumers
from anabranch.client._consumer.assignment import Assignment as Told
from anabranch.client._consumer.session import assignment_of
from anabranch.core.bundles.unit import Unit
from anabranch.core.log.outcome import Folded
from anabranch.core.subscriptions import admission
from anabranch.core.subscriptions.admission import AdmissionStep, admit
from anabranch.core.subscriptions.coordinator import ConsumerAssignment
from anabranch.core.subscriptions.instances import Bucket
from anabranch.core.subscriptions.propose import subscription_change
from anabranch.core.subscriptions.subscription import Subscription, SubscriptionKind, SubscriptionOp
from anabranch.core.topics.controller import (
    CloseConsumer,
    ControllerEffect,
    Propose,
    RunTask,
    SendAssignment,
    TopicController,
    Unserved,
)
from anabranch.core.topics.guards import controller_of
from anabranch.core.topics.kafka_names import kafka_group
from anabranch.core.topics.tasks import Task, TaskDone, TaskFailed
from simulation.process import Process
from simulation.scheduler import ViolationError
from simulation.seeks import Seeks

if TYPE_CHECKING:
    from simulation.topic_world import TopicWorld

ASK_S_MAX = 3.0  # a request that is not answered by then is refused
REPEAT_S = 0.5


class ConsumerRequest(consumers.ConsumerRequest, frozen=True, kw_only=True):
    """A consumer's Subscribe."""

    connection: int
    refuse: Callable[[], None]
    gone: Callable[[], None]  # what it was subscribed to
    assign: Callable[[Told], None]
    drop: Callable[[], None]


class _Home(msgspec.Struct):
    """A controller and the bundle in whose name it acts."""

    controller: TopicController
    unit: str


class TopicHost:
    """The controllers in one life of one process."""

    def __init__(self, world: TopicWorld, process: Process) -> None:
        self._world = world
        self._process = process
        self._homes: dict[str, _Home] = {}
        self._sessions: dict[int, ConsumerRequest] = {}
        self._waiting: list[tuple[ConsumerRequest, float]] = []
        self._proposed: dict[str, tuple[int, float]] = {}
        self._log_ms = 0
        self._seeks = Seeks(world, process, self)
        self._turns: dict[tuple[str, str], int] = {}  # whose request a subscription waits for

    # --- from the process ---------------------------------------------------------------

    def folded(self, entries: Iterable[Folded]) -> None:
        """The view has read these; a bundle lost on the way takes its controllers with it."""
        for entry in entries:
            self._log_ms = max(self._log_ms, entry.timestamp_ms)
            for key, entity in entry.outcome.changes:
                if isinstance(entity, Unit) and entity.holder != self._process.name:
                    self._discard(key)
            self._seeks.folded(entry)
        self.advance()

    def log_time(self, log_ms: int) -> None:
        """A heartbeat was read that the log stamped so."""
        self._log_ms = max(self._log_ms, log_ms)

    def advance(self) -> None:
        """Looks at every topic; time may have passed."""
        if not self._process.core.session:
            return
        for name in self._world.topics:
            self._reconcile(name)
        self._seeks.keepers.advance()
        now = self._process.local_now()
        waiting, self._waiting = self._waiting, []
        for asked, until in waiting:
            if now > until:
                asked.refuse()
            elif not self._register(asked):
                self._waiting.append((asked, until))
                continue
            if self._turns.get(which := (asked.topic, asked.subscription)) == asked.connection:
                del self._turns[which]

    def controller(self, name: str) -> TopicController | None:
        """The topic's controller, if it is this process."""
        core = self._process.core
        unit, holder = controller_of(core.state, name)
        if holder != core.me:
            return None
        home = self._homes.get(name)
        if home is None or home.unit != unit:
            controller = TopicController(
                name,
                core.state,
                self._world.settings,
                core.actor,
                lambda now: core.may_act(unit, now),
                self._process.new_id,
                partial(self._world.loads.known, self._process),
            )
            home = self._homes[name] = _Home(controller, unit)
        return home.controller

    def may_act(self, name: str) -> bool:
        """Whether this process is the topic's controller at this instant."""
        core = self._process.core
        unit, holder = controller_of(core.state, name)
        return holder == core.me and core.may_act(unit, self._process.local_now())

    def seek(self, topic: str, subscription: str, timestamp_ms: int) -> None:
        """Somebody asks to put a subscription somewhere else."""
        if (topic, subscription) not in self._turns:
            self._seeks.begin(topic, subscription, timestamp_ms)

    def dismiss(self, topics: Collection[str], why: str, subscription: str | None = None) -> None:
        """Ends the sessions of these topics' consumers, of one subscription or of all."""
        for connection, asked in list(self._sessions.items()):
            if asked.topic in topics and subscription in (None, asked.subscription):
                asked.drop()
                self.closed(connection)

    def _discard(self, unit: str) -> None:
        for name in [name for name, home in self._homes.items() if home.unit == unit]:
            del self._homes[name]

    # --- controllers --------------------------------------------------------------------

    def _reconcile(self, name: str) -> None:
        controller = self.controller(name)
        if controller is None:
            self._homes.pop(name, None)
            return
        self._carry_out(name, controller.reconcile(self._process.local_now(), self._log_ms))

    def _carry_out(self, name: str, effects: Iterable[ControllerEffect]) -> None:
        for effect in effects:
            match effect:
                case RunTask(task):
                    home = self._homes[name]
                    done = partial(self._finished, name, home, task)
                    self._world.store.carry_out(self._process, task, done)
                case Propose(record):
                    self._process.append(record)
                case SendAssignment(connection, _, assignment):
                    asked = self._sessions.get(connection)
                    if asked is not None:
                        asked.assign(self._told(asked, assignment))
                case Unserved(subscription, buckets, bound_s):
                    raise ViolationError(
                        f"{self._process.name} has left {buckets} of {subscription} of {name} "
                        f"unserved for {bound_s:g} s"
                    )
                case CloseConsumer(connection, _):
                    silent = self._sessions.get(connection)
                    if silent is not None:
                        silent.drop()
                        self.closed(connection)

    def _finished(self, name: str, home: _Home, task: Task, result: TaskDone | TaskFailed) -> None:
        if self._homes.get(name) is home:
            now = self._process.local_now()
            effects = home.controller.finished(task, result, now, self._log_ms)
            self._carry_out(name, effects)

    def _told(self, asked: ConsumerRequest, assignment: ConsumerAssignment) -> Told:
        state = self._process.core.state
        topic, known = state.topic(asked.topic), state.subscription(asked.topic, asked.subscription)
        if topic is None or known is None:
            raise AssertionError(f"an assignment of {asked.topic}, which does not exist")
        settings = self._world.client_settings
        return assignment_of(
            assignment_form(settings, asked.topic, topic, asked.subscription, known, assignment)
        )

    # --- consumers ----------------------------------------------------------------------

    def subscribe(self, asked: ConsumerRequest) -> None:
        """A consumer asks for its share; it is given one, or refused, before long."""
        if not self.may_act(asked.topic):
            asked.refuse()
            return
        self._reconcile(asked.topic)
        self._waiting.append((asked, self._process.local_now() + ASK_S_MAX))
        self.advance()

    def report(
        self, connection: int, released: Iterable[Bucket], drained: Iterable[Bucket]
    ) -> bool:
        """Whether the report was counted."""
        asked = self._sessions.get(connection)
        if asked is None or not self.may_act(asked.topic):
            return False
        controller = self.controller(asked.topic)
        now = self._process.local_now()
        if controller is None or not controller.heard(
            asked.subscription, asked.consumer, connection, released, drained, now
        ):
            return False
        self._reconcile(asked.topic)
        return True

    def leave(self, connection: int) -> bool:
        """The consumer holds nothing and its registration shall end; whether that is so now."""
        asked = self._sessions.get(connection)
        if asked is None or not self.may_act(asked.topic):
            return False
        controller = self.controller(asked.topic)
        known = self._process.core.state.subscription(asked.topic, asked.subscription)
        if controller is None or known is None or self._is_busy(asked):
            return False
        if asked.kind is SubscriptionKind.QUEUE:
            controller.left(asked.subscription, asked.consumer)  # was never registered
        elif known.instance_of(asked.consumer) == asked.instance:
            controller.left(asked.subscription, asked.consumer)
            self._propose(asked, SubscriptionOp.LEAVE, consumer=asked.consumer)
            return False
        self.closed(connection)
        return True

    def closed(self, connection: int) -> None:
        """A connection has ended."""
        asked = self._sessions.pop(connection, None)
        if asked is None:
            return
        controller = self.controller(asked.topic)
        if controller is not None:
            now = self._process.local_now()
            controller.closed(asked.subscription, asked.consumer, connection, now)
            self._reconcile(asked.topic)

    def _register(self, asked: ConsumerRequest) -> bool:
        """Takes the next step towards a session; whether the request is settled."""
        controller = self.controller(asked.topic)
        topic = self._process.core.state.topic(asked.topic)
        if topic is None or controller is None or not self.may_act(asked.topic):
            asked.refuse()
            return True
        if self._is_busy(asked):
            return False
        known = self._process.core.state.subscription(asked.topic, asked.subscription)
        group = "" if known is None else _group(asked, known)
        match admit(asked, known, group, controller.coordinators.get(asked.subscription)):
            case AdmissionStep.OPEN:
                pass
            case AdmissionStep.CREATE:
                self._propose(asked, SubscriptionOp.CREATE, kind=asked.kind)
                return False
            case AdmissionStep.JOIN:
                named = {"consumer": asked.consumer, "instance": asked.instance}
                self._propose(asked, SubscriptionOp.JOIN, **named)
                return False
            case AdmissionStep.DELETED | AdmissionStep.REPLACED:
                asked.gone()
                return True
            case _:
                asked.refuse()
                return True
        same = admission.is_same_group(asked, group)
        opened = controller.opened(
            asked.subscription,
            asked.consumer,
            asked.instance,
            asked.connection,
            asked.holdings,
            asked.drained if same else (),
            self._process.local_now(),
            anew=not same,
        )
        if not opened:
            asked.refuse()
            return True
        self._sessions[asked.connection] = asked
        self._reconcile(asked.topic)
        return True

    def _is_busy(self, asked: ConsumerRequest) -> bool:
        """Whether another request has the subscription to itself."""
        which = (asked.topic, asked.subscription)
        turn = self._turns.get(which, asked.connection)
        return turn != asked.connection or which in self._seeks.busy

    def _propose(self, asked: ConsumerRequest, op: SubscriptionOp, **fields: Any) -> None:
        state, now = self._process.core.state, self._process.local_now()
        topic, known = state.topic(asked.topic), state.subscription(asked.topic, asked.subscription)
        if topic is None:
            return
        key = f"{op.name} {asked.topic} {asked.subscription} {asked.consumer}"
        version = known.version if known is not None else 0
        if self._proposed.get(key, (-1, 0.0))[0] == version and now < self._proposed[key][1]:
            return
        self._proposed[key] = (version, now + REPEAT_S)
        if op is not SubscriptionOp.LEAVE:
            self._turns[asked.topic, asked.subscription] = asked.connection
        self._process.append(
            subscription_change(
                self._process.core.actor(),
                asked.topic,
                topic,
                asked.subscription,
                known,
                op,
                self._process.new_id(),
                **fields,
            )
        )


def _group(asked: ConsumerRequest, known: Subscription) -> str:
    return kafka_group("", asked.topic, asked.subscription, known.created_offset)
