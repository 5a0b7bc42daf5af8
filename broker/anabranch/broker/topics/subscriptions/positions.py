"""A node's questions to Kafka about positions, in threads of its own; each has a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from anabranch.broker.errors import OperationError, UnavailableError
from anabranch.broker.topics.kafka_threads import KafkaThreads, kafka_errors
from anabranch.broker.topics.subscriptions.queue_positions import KafkaPositions
from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.kafka.offsets import EARLIEST, LATEST, Place
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.subscription import Subscription, SubscriptionKind
from anabranch.core.subscriptions.draining import Bucket, unread
from anabranch.core.subscriptions.known_positions import mark_of
from anabranch.core.topics.kafka_names import kafka_group
from anabranch.wire import clock

_T = TypeVar("_T")

_WAITING_MAX: Final = 100
ANSWER_S: Final = 3.0


OpenPositions = Callable[[], KafkaPositions]


class Part(msgspec.Struct, frozen=True):
    """A segment and where its messages are."""

    segment: SegmentInfo
    kafka_topic: str

    def places(self) -> Iterator[Place]:
        """Its Kafka partitions, which are its entry buckets."""
        return ((self.kafka_topic, bucket) for bucket in range(self.segment.buckets))


class Positions(KafkaThreads[KafkaPositions]):
    """The threads, for use in the event loop."""

    def __init__(self, open_keeper: OpenPositions, threads: int = 1) -> None:
        super().__init__("questions on positions", open_keeper, _WAITING_MAX, threads)
        self._wanted: set[Place] = set()
        self._next: asyncio.Task[Mapping[Place, int]] | None = None
        self._turn = asyncio.Lock()

    async def ask(self, job: Callable[[KafkaPositions, float], _T], seconds: float) -> _T:
        """Returns the result of `job`, which a thread calls with the time that is left to it.

        Raises UnavailableError when Kafka gives no answer in time, or when too many ask, and
        KafkaFailedError when it refuses. A job that has begun is over when this ends, also by a
        cancellation. So nothing is committed behind the caller's back.
        """
        deadline = clock.now() + seconds
        future = self.submit(lambda keeper: job(keeper, deadline - clock.now()))
        answer = asyncio.wrap_future(future)
        try:
            await asyncio.wait([answer], timeout=seconds)
            if not answer.done() and future.cancel():
                raise UnavailableError("other questions on positions took all the time; try again")
            with kafka_errors():
                return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if not future.cancel():
                await asyncio.wait([answer])  # it has a deadline of its own
            raise
        finally:
            del answer, future  # or they, their error and this frame were a circle

    async def first_offsets(self, places: Iterable[Place]) -> Mapping[Place, int]:
        """Returns the first offsets that Kafka still has, of these places and others.

        It leaves out places that Kafka does not tell. It asks for all that is wanted meanwhile at
        once: a consumer may begin 10,000 topics.
        """
        self._wanted.update(places)
        if self._next is None:
            self._next = asyncio.create_task(self._ask_first(), name="first offsets")
        return await asyncio.shield(self._next)

    async def _ask_first(self) -> Mapping[Place, int]:
        async with self._turn:
            wanted, self._wanted, self._next = self._wanted, set(), None
            try:
                return await self.ask(
                    lambda keeper, left_s: keeper.told_offsets(wanted, EARLIEST, left_s), ANSWER_S
                )
            except OperationError:
                return {}

    async def stop(self) -> None:
        """Ends the threads, and waits for questions under way."""
        await asyncio.to_thread(self.close)


def ends(keeper: KafkaPositions, parts: Sequence[Part], deadline_s: float) -> dict[Place, int]:
    """Returns the end of each bucket: the log's for a sealed segment, Kafka's of now for an open
    one.
    """
    found: dict[Place, int] = {}
    opened: list[Place] = []
    for part in parts:
        if part.segment.is_active:
            opened += part.places()
        else:
            found.update(zip(part.places(), part.segment.end_offsets, strict=True))
    if opened:
        found |= keeper.offsets(opened, LATEST, deadline_s)
    return found


def starting_at(
    keeper: KafkaPositions, parts: Sequence[Part], timestamp_ms: int, deadline_s: float
) -> dict[Place, int]:
    """Returns the beginning of a group that reads messages of that time or a later one, or LATEST:
    none.

    A bucket without such a message is begun at its end.
    """
    deadline = clock.now() + deadline_s
    found = ends(keeper, parts, deadline_s)
    if timestamp_ms != LATEST:
        places = [place for part in parts for place in part.places()]
        later = keeper.offsets(places, timestamp_ms, deadline - clock.now())
        found |= {
            place: min(offset, found[place]) for place, offset in later.items() if offset >= 0
        }
    return found


class Group(msgspec.Struct, frozen=True):
    """A subscription's Kafka group, the parts that it has yet to read, and its beginnings.

    The beginnings count if Kafka knows no position. Only Kafka knows any of a queue.
    """

    name: str
    parts: Sequence[Part]
    known: Subscription

    def starts(self) -> dict[Place, int]:
        """Returns the log's position of each bucket."""
        noted = {each.segment_id: each.offsets for each in self.known.positions}
        found: dict[Place, int] = {}
        for part in self.parts:
            nothing = (0,) * part.segment.buckets
            found |= zip(part.places(), noted.get(part.segment.segment_id, nothing), strict=True)
        return found

    def by_bucket(self, at: Mapping[Place, int]) -> dict[Bucket, int]:
        """Returns these positions by segment and bucket."""
        numbers = {part.kafka_topic: part.segment.segment_id for part in self.parts}
        return {(numbers[topic], bucket): offset for (topic, bucket), offset in at.items()}


def reading_groups(
    prefix: str, name: str, parts: Sequence[Part], subscriptions: Mapping[str, Subscription]
) -> dict[str, Group]:
    """Returns each subscription's group, with the parts that it has yet to read of these."""
    found = {}
    for each, known in subscriptions.items():
        drained = set(known.drained)
        left = [part for part in parts if part.segment.segment_id not in drained]
        found[each] = Group(kafka_group(prefix, name, each, known.group_offset), left, known)
    return found


class Survey(msgspec.Struct, frozen=True):
    """Kafka's offsets of some segments, from the first record to the end, exclusive, and groups'
    positions.

    It leaves out queues that Kafka cannot be asked for.
    """

    begins: Mapping[Place, int]
    ends: Mapping[Place, int]
    positions: Mapping[str, Mapping[Place, int]]  # by group
    unasked: Sequence[str] = ()  # groups for which no time was left

    def left(self, group: str, place: Place) -> int:
        """Returns the number of records in a bucket that the group has yet to read."""
        return unread(self.ends[place], self.begins[place], self.positions[group][place])

    def left_of(self, group: Group) -> int:
        """The same of all that the group reads."""
        places = (place for part in group.parts for place in part.places())
        return sum(self.left(group.name, place) for place in places)


def survey(
    keeper: KafkaPositions,
    groups: Iterable[Group],
    deadline_s: float,
    also: Iterable[Part] = (),
    group_s: float | None = None,
) -> Survey:
    """Asks Kafka. If it knows no position, it has forgotten it, or there never was one.

    `also`: parts that no group need have anything to read of. `group_s`: the longest time for a
    group. A group that Kafka does not tell in that time is left out; without the bound, that is an
    error.
    """
    deadline = clock.now() + deadline_s
    groups = tuple(groups)
    parts = {part.kafka_topic: part for group in groups for part in group.parts}
    parts |= {part.kafka_topic: part for part in also}
    places = [place for part in parts.values() for place in part.places()]
    if not places:
        return Survey({}, {}, {group.name: {} for group in groups})
    stops = ends(keeper, tuple(parts.values()), deadline - clock.now())
    begins = dict.fromkeys(places, 0)
    # If a bucket holds nothing, Kafka need not have its topic any more.
    if held := [place for place in places if stops[place]]:
        begins |= keeper.offsets(held, EARLIEST, deadline - clock.now())
    for part in parts.values():
        for place, first in zip(part.places(), part.segment.start_offsets, strict=False):
            begins[place] = max(begins[place], first)  # what lies before is another one's
    found: dict[str, dict[Place, int]] = {}
    unasked: list[str] = []
    for group in groups:
        left_s = deadline - clock.now()
        if group_s is not None and left_s <= 0:
            unasked.append(group.name)
            continue
        try:
            at = _standing(keeper, group, stops, min(left_s, group_s or left_s))
        except KafkaUnreachableError:
            if group_s is None:
                raise
            continue
        if at is not None:
            found[group.name] = at
    return Survey(begins, stops, found, unasked)


def _standing(
    keeper: KafkaPositions, group: Group, stops: Mapping[Place, int], deadline_s: float
) -> dict[Place, int] | None:
    """Returns the group's positions; None: Kafka cannot be asked for this queue."""
    starts = group.starts()
    at = {place: start for place, start in starts.items() if stops[place]}
    if not at:
        return starts
    if group.known.kind is not SubscriptionKind.QUEUE:
        committed = keeper.committed(group.name, at, deadline_s).items()
        mark = mark_of(group.known.created_offset)
        return starts | {place: each.offset for place, each in committed if each.mark == mark}
    told = keeper.queue(group.name, at, deadline_s)
    if at.keys() != told.keys():
        return None
    # Kafka counts messages left up to an end that came later than these.
    read = {place: stops[place] if left == 0 else start for place, (start, left) in told.items()}
    return starts | read


class TopicSample(msgspec.Struct, frozen=True):
    """The findings of a look at one topic. `at`: its time on this node's clock."""

    incarnation: int
    at: float
    stored: int  # messages that Kafka has of it
    lives: Mapping[str, int]  # of its subscriptions: what made them, or put them elsewhere last
    read: Mapping[str, int]  # by subscription: messages before its positions
    left: Mapping[str, int]  # that it has yet to read
    rates: Mapping[str, float]  # that it reads in a second
