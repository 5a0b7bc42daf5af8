"""A node's lists of topics, simulated: the product's own services and connections, on an event loop
in simulated time.

Megabytes are kilobytes here: a simulated namespace has dozens of topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from anabranch.broker.binary.handlers import open_sessions
from anabranch.broker.binary.listing import topic_lists
from anabranch.broker.configuration import Configuration
from anabranch.broker.errors import UnavailableError
from anabranch.broker.proposals import Proposals
from anabranch.broker.runtime import Runtime
from anabranch.broker.settings import Settings
from anabranch.broker.topics.lists import TopicLists
from anabranch.client._topics.topic_list import bare_name
from anabranch.core.bundles.propose import Actor
from anabranch.core.effects import NodeSettings
from anabranch.core.errors import AnabranchError
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import Record
from anabranch.core.log.state import StateReader
from anabranch.core.settings.override import OVERRIDES_PREFIX
from anabranch.core.topic_lists.selection import Selection
from anabranch.core.topic_lists.semaphore import SemaphoreLimits
from anabranch.core.topics.guards import controller_of
from anabranch.core.topics.propose import topic_change
from anabranch.core.topics.topic import TopicMove, TopicState
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter, DualMemoryLimits, LimitType
from anabranch.wire.server.server import WireServer
from simulation.event_loop import SimulatedLoop
from simulation.list_plan import HOME
from simulation.process import Process

if TYPE_CHECKING:
    from simulation.list_world import ListWorld

REPEAT_S = 0.5
OPERATION_S = 5.0
SCALE = 1024  # how many bytes of the product are one here
UNREAD_S = 4.0
WIRE_LIMITS = ConnectionLimits(unread_s_max=UNREAD_S, keep_alive_s=6.0)
_TOPIC = "topic:"


def scaled(limits: DualMemoryLimits) -> DualMemoryLimits:
    """The limits of a node whose lists are that much shorter."""

    def small(side: SemaphoreLimits) -> SemaphoreLimits:
        return msgspec.structs.replace(side, permits_max=side.permits_max // SCALE)

    return DualMemoryLimits(heap=small(limits.heap), direct=small(limits.direct))


def in_use(limiter: AsyncDualMemoryLimiter) -> list[int]:
    """Of each kind the permits that did not come back, or else who waits for some."""
    sides = [limiter.side(each)._core for each in LimitType]
    return [side._held or side.queue_size for side in sides]


class _Core:
    """What the services need of a node's core."""

    def __init__(self, process: Process) -> None:
        self.me = process.name
        self.settings: NodeSettings | None = None

    def configure(self, settings: NodeSettings, _now: float) -> None:
        self.settings = settings


class _Metrics:
    """Counts nothing."""

    def gauge(self, _name: str, _text: str, _read: Callable[[], float]) -> None:
        pass


class _Proposals(Proposals):
    """A node's, appended by the simulation, again and again until they are read back."""

    def __init__(self, process: Process, loop: SimulatedLoop) -> None:
        self.new_id = process.new_id
        self._process = process
        self._on = loop
        self._verdicts: dict[str, asyncio.Future[Folded]] = {}

    def actor(self) -> Actor:
        if not self._process.core.lease.holds(self._process.local_now()):
            raise UnavailableError("this node is in safe mode")
        return self._process.core.actor()

    async def propose(self, record: Record, deadline: float) -> Folded:
        verdict: asyncio.Future[Folded] = self._on.create_future()
        self._verdicts[record.proposal_id] = verdict
        try:
            async with asyncio.timeout_at(deadline):
                while not verdict.done():
                    self._process.append(record)
                    await asyncio.wait([verdict], timeout=REPEAT_S)
                return verdict.result()
        except TimeoutError:
            raise UnavailableError("the log did not answer in time") from None
        finally:
            del self._verdicts[record.proposal_id]

    def folded(self, entry: Folded) -> None:
        """Whoever waits for the verdict on it has it."""
        record = entry.record
        verdict = self._verdicts.get(record.proposal_id) if record is not None else None
        if verdict is not None and not verdict.done():
            verdict.set_result(entry)


class _Runtime:
    """What the services need of a node."""

    namespace = Runtime.namespace

    def __init__(self, process: Process, loop: SimulatedLoop) -> None:
        self.core = _Core(process)
        self.now = process.local_now
        self.proposals = _Proposals(process, loop)
        self.metrics = _Metrics()
        self.worries: list[Any] = []
        self.reconfigure: Callable[[], None] = lambda: None
        self.waiting_max = 0
        self.verbose = False
        self._process = process

    @property
    def view(self) -> StateReader:
        return self._process.core.state


class _Service:
    """What lists need of the service of topics."""

    def __init__(self, runtime: _Runtime) -> None:
        self.runtime = runtime
        self.listeners: list[Callable[[list[str], list[str]], None]] = []
        self.tickers: list[Callable[[], None]] = []


class _Access:
    """Scalable topics are enabled."""

    def must_be_enabled(self) -> None:
        pass


class ListHost:
    """The lists and settings in one life of one process; and its topics, which need no Kafka here:
    whoever controls one takes its next step at once.
    """

    def __init__(self, world: ListWorld, process: Process) -> None:
        self._world = world
        self._process = process
        self._stepping: dict[str, float] = {}
        self._looked = False  # at what was there before
        self.loop = world.node_loop(process)
        with self.loop.running():
            self._start(world.own_settings(process))

    def _start(self, own: Settings) -> None:
        runtime = self._runtime = _Runtime(self._process, self.loop)
        anything: Any = runtime
        self.configuration = Configuration(anything, own)
        current = self.configuration.current
        self.limiter = AsyncDualMemoryLimiter(scaled(current.now.topic_list_limits))
        current.subscribe(lambda now: self.limiter.configure(scaled(now.topic_list_limits)))
        service: Any = _Service(runtime)
        access: Any = _Access()
        self._service = service
        slices = self._world.slices
        self.lists = TopicLists(service, slices, slices)
        serves = open_sessions(topic_lists(access, self.lists, self.limiter, slices))
        self.server = WireServer(serves, "simulated", WIRE_LIMITS)

    def limiter_limits(self) -> DualMemoryLimits:
        """Those that its limiter goes by."""
        heap, direct = (self.limiter.side(each).limits for each in LimitType)
        return DualMemoryLimits(heap=heap, direct=direct)

    def kept(self) -> Iterator[tuple[Selection, frozenset[str]]]:
        """The lists that it keeps up to date, by what they select."""
        for lists in self.lists._by_home.values():
            for selection, kept in lists.items():
                yield selection, frozenset(map(bare_name, kept.list.names))

    # --- from the process ---------------------------------------------------------------

    def folded(self, entries: Iterable[Folded]) -> None:
        """The view has read these: as a node's runtime takes them in."""
        found = list(entries)
        keys = [key for entry in found for key, _ in entry.outcome.changes]
        with self.loop.running():
            if any(key.startswith(OVERRIDES_PREFIX) for key in keys):
                self._runtime.reconfigure()
            for entry in found:
                self._runtime.proposals.folded(entry)
            topics = sorted({key.removeprefix(_TOPIC) for key in keys if key.startswith(_TOPIC)})
            if topics:
                for listener in self._service.listeners:
                    listener(topics, [])
        self._world.checks.configured(self._process, self)
        self._go_on(topics)

    def log_time(self, log_ms: int) -> None:
        """Nothing here is measured on the log's time."""

    def opened(self, _unit: str) -> None:
        """Nothing is served."""

    def close(self, unit: str) -> None:
        self._process.close(unit)

    def advance(self) -> None:
        """Time has passed."""
        with self.loop.running():
            for ticker in self._service.tickers:
                ticker()
        now = self._process.local_now()
        if not self._looked:
            self._looked = True
            self._go_on(self._process.core.state.topics(HOME))
        self._go_on([name for name, since in self._stepping.items() if now - since > REPEAT_S])

    # --- topics -------------------------------------------------------------------------

    def controls(self, name: str) -> bool:
        """Whether this node may act for a topic."""
        core, now = self._process.core, self._process.local_now()
        unit, holder = controller_of(core.state, name)
        return holder == core.me and core.may_act(unit, now)

    def propose(self, name: str, move: TopicMove, **fields: Any) -> None:
        """Changes a topic, for who controls it."""
        core = self._process.core
        topic = core.state.topic(name)
        new_id = self._process.new_id()
        self._process.append(topic_change(core.actor(), name, topic, move, new_id, **fields))

    def _go_on(self, names: Iterable[str]) -> None:
        for name in list(names):
            topic = self._process.core.state.topic(name)
            state = topic.state if topic is not None else TopicState.INIT
            if state not in (TopicState.CREATING, TopicState.DELETING):
                self._stepping.pop(name, None)
                continue
            self._stepping[name] = self._process.local_now()
            if self.controls(name):
                opens = state is TopicState.CREATING
                self.propose(name, TopicMove.OPEN if opens else TopicMove.REMOVE)

    # --- settings -----------------------------------------------------------------------

    async def override(self, name: str, value: str) -> None:
        """An operator asks this node; "" takes the override back."""
        try:
            async with asyncio.timeout(OPERATION_S):
                if value:
                    await self.configuration.override(name, value)
                else:
                    await self.configuration.withdraw(name)
        except (AnabranchError, TimeoutError):
            self._world.refused += 1
        else:
            self._world.overridden += 1
