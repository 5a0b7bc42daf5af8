"""Seeks, simulated: the product's own `Subscriptions`, over a simulated log, Kafka and clients."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from anabranch.broker.errors import UnavailableError
from anabranch.broker.topics.subscriptions.changes import Subscriptions
from anabranch.broker.topics.subscriptions.queue_positions import KafkaPositions
from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.kafka.offsets import EARLIEST, LATEST
from anabranch.core.entities.subscription import SubscriptionOp
from anabranch.core.errors import AnabranchError
from anabranch.core.log.records import Record, SubscriptionChange
from anabranch.core.subscriptions.known_positions import CommittedPosition
from simulation.process import Process
from simulation.segment_store import TIMEOUT_S, Committed, Place, SegmentStore
from simulation.work import Answer, Work

if TYPE_CHECKING:
    from simulation.topic_world import TopicWorld

SEEK_S = 8.0

T = TypeVar("T")


class _Keeper:
    """As much of a `KafkaPositions` as is asked for here, at the very instant of a request."""

    def __init__(self, world: TopicWorld) -> None:
        self._world = world
        self._store: SegmentStore = world.store

    def offsets(
        self, places: Iterable[Place], timestamp_ms: int, deadline_s: float
    ) -> dict[Place, int]:
        return {place: self._at(place, timestamp_ms) for place in places}

    def told_offsets(
        self, places: Iterable[Place], timestamp_ms: int, deadline_s: float
    ) -> dict[Place, int]:
        there = (place for place in places if place in self._store.partitions)
        return self.offsets(there, timestamp_ms, deadline_s)

    def committed(
        self, group: str, places: Iterable[Place], deadline_s: float
    ) -> dict[Place, CommittedPosition]:
        known = self._store.committed
        found = {place: known[group, place] for place in places if (group, place) in known}
        return {place: CommittedPosition(each.offset, each.mark) for place, each in found.items()}

    def committed_by(
        self, groups: Mapping[str, Iterable[Place]], deadline_s: float
    ) -> dict[str, dict[Place, CommittedPosition]]:
        return {each: self.committed(each, groups[each], deadline_s) for each in groups}

    def commit(
        self, group: str, offsets: Mapping[Place, int], mark: str, deadline_s: float
    ) -> None:
        for place, at in offsets.items():
            self._store.committed[group, place] = Committed(at, mark)
            self._world.checks.running.overwritten(group, place)
        self._world.forgetting.kept += 1

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
            return end if timestamp_ms == LATEST else partition.begin
        found = max(partition.begin, bisect_left(partition.times_ms, timestamp_ms))
        return found if found < end else -1


class Positions:
    """The thread that asks Kafka, of one life of one process."""

    def __init__(self, world: TopicWorld, process: Process) -> None:
        self.asked_ms = 0  # Kafka, last
        self._world = world
        self._process = process

    async def ask(self, job: Callable[[KafkaPositions, float], T], seconds: float) -> T:
        answer: Answer[T] = Answer(lasts=True)
        found: list[T] = []
        life = self._process.life

        def act() -> None:
            self.asked_ms = self._world.cluster.log_ms()
            keeper: Any = _Keeper(self._world)
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

    async def first_offsets(self, places: Iterable[Place]) -> Mapping[Place, int]:
        wanted = list(places)
        try:
            return await self.ask(
                lambda keeper, left_s: keeper.told_offsets(wanted, EARLIEST, left_s), TIMEOUT_S
            )
        except UnavailableError:
            return {}


class Seeks:
    """The requests of one life of one process, as a controller; `begins` before the first."""

    def __init__(self, world: TopicWorld, process: Process, positions: Positions) -> None:
        self._world = world
        self._process = process
        self._positions = positions
        self._wanted: dict[tuple[str, str], int] = {}
        self._last: dict[tuple[str, str], str] = {}  # what was proposed
        self._subscriptions: Subscriptions

    def begins(self, subscriptions: Subscriptions) -> None:
        """The services of its node are there."""
        self._subscriptions = subscriptions

    def begin(self, topic: str, subscription: str, timestamp_ms: int) -> None:
        """Puts a subscription somewhere else."""
        # What is stored in segments that this node has not read of cannot be looked for.
        known_ms = self._world.cluster.read_up_to_ms(self._process)
        low_ms = {EARLIEST: 0, LATEST: known_ms}.get(timestamp_ms, min(timestamp_ms, known_ms))
        self._wanted[topic, subscription] = timestamp_ms
        self._world.sched.note(f"seek {topic} {subscription} to {timestamp_ms}")
        work = Work(
            self._subscriptions.reset(topic, subscription, timestamp_ms),
            partial(self._ended, topic, subscription, low_ms),
        )
        self._process.later(SEEK_S, work.cancel)

    def proposed(self, record: Record) -> None:
        """A record whose verdict somebody awaits."""
        if isinstance(record, SubscriptionChange) and record.op is SubscriptionOp.RESET:
            self._last[record.topic, record.subscription] = record.proposal_id
            wanted_ms = self._wanted[record.topic, record.subscription]
            # All that Kafka takes later than it was asked is to be delivered.
            older_ms = {EARLIEST: 0, LATEST: self._positions.asked_ms + 1}.get(wanted_ms, wanted_ms)
            self._world.checks.seeks.proposed(record, older_ms)

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
        checks.done(self._last[topic, subscription], low_ms)  # others may have sought since
