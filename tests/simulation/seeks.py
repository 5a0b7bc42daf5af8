"""Seeks, simulated: the product's own `Resets`, over a simulated log, Kafka and clients."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from anabranch.broker.errors import DeadlineExceededError, UnavailableError
from anabranch.broker.proposals import Proposals
from anabranch.broker.topics.access import TopicAccess
from anabranch.broker.topics.consumers import Consumers
from anabranch.broker.topics.groups import Groups, StartPositionFinder
from anabranch.broker.topics.positions import PositionKeeper
from anabranch.broker.topics.subscriptions import Resets
from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.segments.positions import EARLIEST, LATEST
from anabranch.core.bundles.propose import Actor
from anabranch.core.errors import AnabranchError
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import Record, SubscriptionChange
from anabranch.core.log.state import StateReader
from anabranch.core.subscriptions.subscription import SubscriptionOp
from simulation.forgetting import Keepers
from simulation.process import Process
from simulation.segment_store import TIMEOUT_S, Place, SegmentStore
from simulation.work import Answer, Work

if TYPE_CHECKING:
    from simulation.topic_host import TopicHost
    from simulation.topic_world import TopicWorld

SEEK_S = 8.0

T = TypeVar("T")


class _Runtime:
    """What a request needs of a node."""

    def __init__(self, process: Process) -> None:
        self.core = process.core
        self.new_id = process.new_id
        self.ended: Future[None] = Future()
        self._process = process

    @property
    def view(self) -> StateReader:
        return self.core.state

    @property
    def log_ms(self) -> int:
        return 0  # nothing is kept by its age here

    @property
    def has_lease(self) -> bool:
        return self.core.lease.holds(self._process.local_now())


class _Service:
    """What a request needs of the topic service."""

    prefix = ""

    def __init__(self, host: TopicHost, runtime: _Runtime) -> None:
        self.runtime = runtime
        self.listeners: list[object] = []
        self.tickers: list[object] = []
        self.open_since: dict[str, float] = {}
        self.may_act = host.may_act
        self.dismiss = host.dismiss


class _Groups(Groups):
    """Groups are left to expire; nobody here has a queue."""

    def __init__(self) -> None:
        """Nothing is asked of Kafka."""

    def delete(self, group: str, *, again: bool = True) -> None:
        pass


class _Nowhere:
    """Look-ups that find nothing: nobody is sent elsewhere here."""

    def locate_cached(self, topic: str, namespace: str) -> None:
        return None


class _Proposals(Proposals):
    """A node's, appended by the simulation."""

    def __init__(self, process: Process, propose: Callable[[Record], Answer[Folded]]) -> None:
        self.new_id = process.new_id
        self._process = process
        self._propose = propose

    def actor(self) -> Actor:
        if not self._process.core.lease.holds(self._process.local_now()):
            raise UnavailableError("this node is in safe mode")
        return self._process.core.actor()

    @staticmethod
    def deadline(timeout_s: float) -> float:
        return 0.0  # `_Consumers.alone` has one

    async def propose(self, record: Record, deadline: float) -> Folded:
        return await self._propose(record)


class _Consumers(Consumers):
    def __init__(self, access: TopicAccess, starts: StartPositionFinder) -> None:
        super().__init__(access, starts, _Groups(), SEEK_S)
        self.busy: set[tuple[str, str]] = set()

    @asynccontextmanager
    async def alone(
        self, topic: str, subscription: str, timeout_s: float | None = None
    ) -> AsyncIterator[None]:
        self.busy.add((topic, subscription))
        try:
            yield
        except asyncio.CancelledError:
            raise DeadlineExceededError("it took too long") from None
        finally:
            self.busy.discard((topic, subscription))


class _Keeper:
    """As much of a `PositionKeeper` as is asked for here, at the very instant of a request."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store

    def offsets(
        self, places: Iterable[Place], timestamp_ms: int, deadline_s: float
    ) -> dict[Place, int]:
        return {place: self._at(place, timestamp_ms) for place in places}

    def committed(self, group: str, places: Iterable[Place], deadline_s: float) -> dict[Place, int]:
        known = self._store.committed
        return {place: known[group, place] for place in places if (group, place) in known}

    def queue(
        self, group: str, places: Iterable[Place], deadline_s: float
    ) -> dict[Place, tuple[int, int]]:
        return {}

    def _at(self, place: Place, timestamp_ms: int) -> int:
        partition = self._store.partitions.get(place)
        if partition is None:
            raise KafkaUnreachableError(f"{place} does not exist")
        end = len(partition.messages)
        if timestamp_ms in (EARLIEST, LATEST):
            return end if timestamp_ms == LATEST else 0
        found = bisect_left(partition.times_ms, timestamp_ms)
        return found if found < end else -1


class _Positions:
    """The thread that asks Kafka, of one life of one process."""

    def __init__(self, world: TopicWorld, process: Process) -> None:
        self.asked_ms = 0  # Kafka, last
        self._world = world
        self._process = process

    async def ask(self, job: Callable[[PositionKeeper, float], T], seconds: float) -> T:
        answer: Answer[T] = Answer(lasts=True)
        found: list[T] = []
        life = self._process.life

        def act() -> None:
            self.asked_ms = self._world.cluster.log_ms()
            keeper: Any = _Keeper(self._world.store)
            with suppress(KafkaUnreachableError):
                found.append(job(keeper, seconds))

        def reply(in_time: bool) -> None:
            if in_time and found:
                answer.give(found[0])
            else:
                answer.fail(UnavailableError("Kafka did not answer"))

        # Kafka takes a connection's requests in order, and soon: none is carried out much later.
        self._world.store.call(
            lambda in_time: self._process.run_in(life, partial(reply, in_time)),
            act,
            late_s_max=TIMEOUT_S / 2,
        )
        return await answer


class Seeks:
    """The requests of one life of one process, as a controller."""

    def __init__(self, world: TopicWorld, process: Process, host: TopicHost) -> None:
        self._world = world
        self._process = process
        self._verdicts: dict[str, Answer[Folded]] = {}
        self._wanted: dict[tuple[str, str], int] = {}
        runtime: Any = _Runtime(process)
        service: Any = _Service(host, runtime)
        nowhere: Any = _Nowhere()
        self._positions = _Positions(world, process)
        runtime.proposals = _Proposals(process, self._proposed)
        self._access = access = TopicAccess(runtime, nowhere, service)
        keeper: Any = self._positions
        starts = StartPositionFinder(access, keeper)
        self.consumers = _Consumers(access, starts)
        self._resets = Resets(access, self.consumers, starts, SEEK_S)
        self.keepers = Keepers(world, process, host, access, self.consumers, keeper)
        self._resets._log = structlog.wrap_logger(structlog.ReturnLogger(), processors=[])

    @property
    def busy(self) -> set[tuple[str, str]]:
        """Topics and subscriptions that nobody else may change now."""
        return self.consumers.busy

    def begin(self, topic: str, subscription: str, timestamp_ms: int) -> None:
        """Puts a subscription somewhere else, if nobody is at it."""
        if (topic, subscription) in self.busy:
            return
        # What is stored in segments that this node has not read of cannot be looked for.
        known_ms = self._world.cluster.read_up_to_ms(self._process)
        low_ms = {EARLIEST: 0, LATEST: known_ms}.get(timestamp_ms, min(timestamp_ms, known_ms))
        self._wanted[topic, subscription] = timestamp_ms
        self._world.sched.note(f"seek {topic} {subscription} to {timestamp_ms}")
        work = Work(
            self._resets.reset(topic, subscription, timestamp_ms),
            partial(self._ended, topic, subscription, low_ms),
        )
        self._process.later(SEEK_S, work.cancel)

    def folded(self, entry: Folded) -> None:
        """Whoever waits for the verdict on it has it."""
        record = entry.record
        if record is None or record.proposal_id not in self._verdicts:
            return
        self._verdicts.pop(record.proposal_id).give(entry)

    def _proposed(self, record: Record) -> Answer[Folded]:
        if isinstance(record, SubscriptionChange) and record.op is SubscriptionOp.RESET:
            wanted_ms = self._wanted[record.topic, record.subscription]
            # All that Kafka takes later than it was asked is to be delivered.
            older_ms = {EARLIEST: 0, LATEST: self._positions.asked_ms + 1}.get(wanted_ms, wanted_ms)
            self._world.checks.seeks.proposed(record, older_ms)
        answer = self._verdicts[record.proposal_id] = Answer[Folded]()
        self._process.append(record)
        return answer

    def _ended(
        self, topic: str, subscription: str, low_ms: int, _: None, error: AnabranchError | None
    ) -> None:
        checks = self._world.checks.seeks
        if error is not None:
            self._world.sched.note(f"the seek of {subscription} failed: {error}")
            checks.failed += 1
            return
        known = self._process.core.state.subscription(topic, subscription)
        if known is None:  # deleted meanwhile
            return
        checks.done(self._access.group_id(topic, subscription, known), low_ms)
