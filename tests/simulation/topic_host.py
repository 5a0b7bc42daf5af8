"""A broker's topics, simulated: the product's own services, over simulated parts.

Each of their waits is an event (`work`); nothing of asyncio runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from anabranch.broker.binary.forms import assignment_form
from anabranch.broker.errors import DeadlineExceededError, UnavailableError
from anabranch.broker.proposals import Proposals
from anabranch.broker.runtime import Runtime
from anabranch.broker.settings import load_settings
from anabranch.broker.settings.current import CurrentSettings
from anabranch.broker.topics.controllers.access import TopicAccess
from anabranch.broker.topics.controllers.service import TopicService
from anabranch.broker.topics.subscriptions.changes import Subscriptions
from anabranch.broker.topics.subscriptions.consumers import (
    ConsumerFencedError,
    ConsumerRequest,
    Consumers,
    RegisteredConsumer,
    SubscriptionGoneError,
)
from anabranch.broker.topics.subscriptions.groups import Groups
from anabranch.client._consumer.assignment import Assignment, assignment_of
from anabranch.core.bundles.propose import Actor
from anabranch.core.errors import AnabranchError
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import Record
from anabranch.core.log.state import StateReader
from anabranch.core.subscriptions.coordinator import ConsumerAssignment
from anabranch.core.subscriptions.draining import Bucket
from anabranch.core.topics.controller import ControllerEffect, Unserved
from anabranch.core.topics.tasks import Task, TaskDone, TaskFailed
from simulation.connections import Connection
from simulation.forgetting import Keepers
from simulation.process import Process
from simulation.scheduler import ViolationError
from simulation.seeks import Positions, Seeks
from simulation.work import Answer, Work

if TYPE_CHECKING:
    from simulation.topic_world import TopicWorld

ASK_S_MAX = 3.0  # a request that is not answered by then is refused
REPEAT_S = 0.5
_SILENT = structlog.wrap_logger(structlog.ReturnLogger(), processors=[])


class _Runtime:
    """What the services need of a node."""

    namespace = Runtime.namespace

    def __init__(self, process: Process) -> None:
        self.core = process.core
        self.now = process.local_now
        self.proposals: Any = None
        self.server: Any = None
        self._process = process

    @property
    def view(self) -> StateReader:
        return self.core.state

    @property
    def has_lease(self) -> bool:
        return self.core.lease.holds(self.now())

    def may_act(self, unit: str) -> bool:
        return self.core.may_act(unit, self.now())

    def closed(self, unit: str) -> None:
        self._process.close(unit)

    def soon(self, action: Callable[..., object], *args: object) -> None:
        action(*args)


class _Workers:
    """What carries tasks out."""

    def __init__(self, world: TopicWorld, process: Process) -> None:
        self._world = world
        self._process = process

    def task(self, task: Task) -> Future[TaskDone | TaskFailed]:
        found: Future[TaskDone | TaskFailed] = Future()
        self._world.store.carry_out(self._process, task, found.set_result)
        return found


class _Service(TopicService):
    def carry_out(self, name: str, effects: Iterable[ControllerEffect]) -> None:
        found = list(effects)
        for effect in found:
            if isinstance(effect, Unserved):
                raise ViolationError(
                    f"{self.runtime.core.me} has left unserved of {name}: {effect}"
                )
        super().carry_out(name, found)

    def _is_mine(self, name: str) -> bool:
        return bool(self._unit(name))


class _Groups(Groups):
    """Groups begin at the first message, and are left to expire."""

    def __init__(self, positions: Any) -> None:
        self.positions = positions

    async def start(self, group: str, starts: Mapping[tuple[str, int], int]) -> None:
        pass

    def delete(self, group: str, *, again: bool = True) -> None:
        pass


class _Nowhere:
    """Look-ups that find nothing: nobody is sent elsewhere here."""

    def locate_cached(self, topic: str, namespace: str) -> None:
        return None


class _Proposals(Proposals):
    """A node's, appended by the simulation. `proposed` is told of those that somebody awaits."""

    def __init__(self, process: Process, proposed: Callable[[Record], None]) -> None:
        self.new_id = process.new_id
        self._process = process
        self._proposed = proposed
        self._verdicts: dict[str, Answer[Folded]] = {}

    def must_have_lease(self) -> None:
        if not self._process.core.lease.holds(self._process.local_now()):
            raise UnavailableError("this node is in safe mode")

    def actor(self) -> Actor:
        self.must_have_lease()
        return self._process.core.actor()

    @staticmethod
    def deadline(timeout_s: float) -> float:
        return 0.0  # whoever asks is cancelled when it is over

    def cast(
        self, records: Sequence[Record], seconds: float, over: Callable[[], object] = lambda: None
    ) -> None:
        for record in records:
            self._process.append(record)

    async def propose(self, record: Record, deadline: float) -> Folded:
        self._proposed(record)
        answer = self._verdicts[record.proposal_id] = Answer[Folded]()
        self._repeat(record)
        return await answer

    def _repeat(self, record: Record) -> None:
        """Again, until it is read back."""
        if record.proposal_id in self._verdicts:
            self._process.append(record)
            self._process.later(REPEAT_S, partial(self._repeat, record))

    def folded(self, entry: Folded) -> None:
        """Whoever waits for the verdict on it has it."""
        record = entry.record
        if record is not None and record.proposal_id in self._verdicts:
            self._verdicts.pop(record.proposal_id).give(entry)


class _Subscriptions(Subscriptions):
    def __init__(self, process: Process, access: TopicAccess, positions: Any) -> None:
        super().__init__(access, _Groups(positions))
        self.busy: dict[tuple[str, str], list[Answer[None]]] = {}  # with who waits
        self._process = process

    @asynccontextmanager
    async def alone(
        self, topic: str, subscription: str, timeout_s: float | None = None
    ) -> AsyncIterator[None]:
        which, process, life = (topic, subscription), self._process, self._process.life
        try:
            while which in self.busy:
                turn = Answer[None]()
                self.busy[which].append(turn)
                await turn
            self.busy[which] = []
            try:
                yield
            finally:
                waiting = self.busy.pop(which)
                if process.alive and process.life == life:
                    for turn in waiting:
                        process.later(0.0, partial(turn.give, None))
        except asyncio.CancelledError:
            raise DeadlineExceededError("it took too long") from None


class Link:
    """A consumer's connection, as its node sees it."""

    def __init__(
        self,
        host: TopicHost,
        connection: Connection,
        asked: ConsumerRequest,
        committed: Mapping[Bucket, int],
    ) -> None:
        self.connection = connection
        self.asked = asked
        self.committed = committed
        self.session: RegisteredConsumer | None = None
        self.is_answered = False
        self.is_leaving = False
        self._host = host

    def assigned(self, assignment: ConsumerAssignment) -> None:
        """Tells the consumer what it may serve from now on."""
        told = self._host.told(self.asked, assignment)
        if told is not None:
            self.is_answered = True
            self.connection.assign(told)

    def fenced(self, _why: str) -> None:
        """Its name is taken over."""
        self.connection.fence()

    def dropped(self, _why: str) -> None:
        """Later: the controller is in the midst of its effects."""
        self._host.later(partial(self._host.dismiss, self))


class TopicHost:
    """The controllers and the consumers' sessions in one life of one process."""

    def __init__(self, world: TopicWorld, process: Process) -> None:
        self._world = world
        self._process = process
        self._links: dict[int, Link] = {}
        self._runtime = _Runtime(process)
        runtime: Any = self._runtime
        workers: Any = _Workers(world, process)
        load = partial(world.loads.known, process)
        service = _Service(runtime, world.settings, "", workers, load, lambda *_: True)
        nowhere: Any = _Nowhere()
        positions: Any = Positions(world, process)
        self._seeks = Seeks(world, process, positions)
        self._proposals = runtime.proposals = _Proposals(process, self._seeks.proposed)
        settings = CurrentSettings(load_settings(None, {}, {}))
        access = TopicAccess(runtime, nowhere, service, settings)
        self._subscriptions = _Subscriptions(process, access, positions)
        self._consumers = Consumers(self._subscriptions)
        self._seeks.begins(self._subscriptions)
        self._keepers = Keepers(world, process, self, self._subscriptions, positions)
        service.tickers.clear()  # `Keepers` looks when it is time
        for each in (service, service.scaling, self._subscriptions, self._consumers):
            each._log = _SILENT
        self._service = service
        self.may_act = service.may_act
        self.opened, self.close = service.opened, service.close

    # --- from the process ---------------------------------------------------------------

    def folded(self, entries: Iterable[Folded]) -> None:
        """The view has read these."""
        found = list(entries)
        for entry in found:
            self._proposals.folded(entry)
        self._service.folded([each for entry in found for each in entry.outcome.changes])

    def advance(self) -> None:
        """Time has passed."""
        self._service.ticked()
        self._keepers.advance()

    def later(self, action: Callable[[], None]) -> None:
        """Not in the midst of what is under way."""
        self._process.later(0.0, action)

    def seek(self, topic: str, subscription: str, timestamp_ms: int) -> None:
        """Somebody asks to put a subscription somewhere else."""
        if (topic, subscription) not in self._subscriptions.busy:
            self._seeks.begin(topic, subscription, timestamp_ms)

    # --- consumers ----------------------------------------------------------------------

    def subscribe(
        self, connection: Connection, asked: ConsumerRequest, committed: Mapping[Bucket, int]
    ) -> None:
        """A consumer asks for its share; it is given one, or refused, before long."""
        link = Link(self, connection, asked, committed)
        work = Work(self._consumers.subscribe(asked, link), partial(self._subscribed, link))
        self._process.later(ASK_S_MAX, work.cancel)

    def _subscribed(
        self, link: Link, session: RegisteredConsumer | None, error: AnabranchError | None
    ) -> None:
        link.session = session
        if session is not None:
            told = session.asked
            standing = self._consumers.standing
            standing.told(told.topic, told.subscription, told.begun_at, link.committed)
        if session is not None and link.is_answered:
            self._links[link.connection.number] = link
            return
        if session is not None:
            self._consumers.closed(session)
        if isinstance(error, ConsumerFencedError):
            link.connection.left()
        else:
            link.connection.refuse(gone=isinstance(error, SubscriptionGoneError))

    def report(
        self,
        connection: int,
        released: Iterable[Bucket],
        drained: Iterable[Bucket],
        committed: Mapping[Bucket, int],
    ) -> bool:
        """Whether the report was counted."""
        link = self._links.get(connection)
        if link is None or link.session is None:
            return False
        try:
            due = self._consumers.report(link.session, released, drained)
            told = link.session.asked
            begun_at = link.session.begun_at
            self._consumers.standing.told(told.topic, told.subscription, begun_at, committed)
        except AnabranchError:
            return False
        if due:
            self._consumers.settle(link.session)
        return True

    def leave(self, connection: int, *, keeps_share: bool) -> None:
        """The consumer holds nothing, and its registration shall end; it may ask again."""
        link = self._links.get(connection)
        if link is not None and link.session is not None and not link.is_leaving:
            link.is_leaving = True
            leave = self._consumers.leave(link.session, keeps_share=keeps_share)
            work = Work(leave, partial(self._left, link))
            self._process.later(ASK_S_MAX, work.cancel)

    def _left(self, link: Link, _: None, error: AnabranchError | None) -> None:
        link.is_leaving = False
        if error is None:
            self._links.pop(link.connection.number, None)
            link.connection.left()

    def closed(self, connection: int, *, hung_up: bool = False) -> None:
        """A connection has ended. `hung_up`: with its consumer's process."""
        link = self._links.pop(connection, None)
        if link is not None and link.session is not None:
            self._consumers.closed(link.session, hung_up=hung_up)

    def dismiss(self, link: Link) -> None:
        """The consumer's session is over, and the consumer is told."""
        if self._links.get(link.connection.number) is link:
            self.closed(link.connection.number)
            link.connection.end(by_consumer=False)

    def told(self, asked: ConsumerRequest, assignment: ConsumerAssignment) -> Assignment | None:
        """An assignment, as its consumer reads it."""
        state = self._process.core.state
        topic, known = state.topic(asked.topic), state.subscription(asked.topic, asked.subscription)
        if topic is None or known is None:
            return None
        settings = self._world.client_settings
        return assignment_of(
            assignment_form(
                *(settings, asked.topic, topic, asked.subscription, known, assignment),
                self._consumers.standing.of(asked.topic, asked.subscription),
            )
        )
