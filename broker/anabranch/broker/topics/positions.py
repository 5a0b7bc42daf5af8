"""What a node asks Kafka about positions, in a thread of its own: backlogs, and where to begin.

Kafka is the only one that knows both ends of a backlog, and it may not answer. So every question
has a deadline, the largest topics are not asked for, and what is not known is said to be unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

import msgspec

from anabranch.broker.errors import KafkaFailedError, UnavailableError
from anabranch.channel.errors import KafkaRefusedError, KafkaUnreachableError
from anabranch.channel.positions import EARLIEST, LATEST, Place
from anabranch.core.segments import SegmentInfo
from anabranch.wire import clock

_T = TypeVar("_T")

_WAITING_MAX: Final = 100


class PositionKeeper(Protocol):
    """What is needed of Kafka: `channel.positions.GroupPositions`, or its double."""

    def offsets(
        self, places: Iterable[Place], timestamp_ms: int, deadline_s: float
    ) -> dict[Place, int]: ...
    def committed(
        self, group: str, places: Iterable[Place], deadline_s: float
    ) -> dict[Place, int]: ...
    def commit(self, group: str, offsets: Mapping[Place, int], deadline_s: float) -> None: ...
    def close(self) -> None: ...


OpenPositions = Callable[[], PositionKeeper]


class Part(msgspec.Struct, frozen=True):
    """A segment and where its messages are."""

    segment: SegmentInfo
    kafka_topic: str

    def places(self) -> Iterator[Place]:
        """Its Kafka partitions, which are its entry buckets."""
        return ((self.kafka_topic, bucket) for bucket in range(self.segment.buckets))


class Positions:
    """The thread, and its bounded queue. To be used in the event loop."""

    def __init__(self, open_keeper: OpenPositions) -> None:
        self._open = open_keeper
        self._keeper: PositionKeeper | None = None
        self._thread = ThreadPoolExecutor(1, "positions")
        self._waiting = 0

    async def ask(self, job: Callable[[PositionKeeper, float], _T], seconds: float) -> _T:
        """What `job` returns, which is called in the thread with the time that is left to it.

        Raises UnavailableError when Kafka gives no answer in time, or when too many ask;
        KafkaFailedError when it refuses. A job that has begun is over when this ends, also by a
        cancellation: nothing is committed behind the back of who asked.
        """
        if self._waiting >= _WAITING_MAX:
            raise UnavailableError(f"{_WAITING_MAX} questions on positions wait already; try again")
        deadline = clock.now() + seconds

        def run() -> _T:
            if self._keeper is None:
                self._keeper = self._open()
            return job(self._keeper, deadline - clock.now())

        future = self._thread.submit(run)
        answer = asyncio.wrap_future(future)
        self._waiting += 1
        try:
            await asyncio.wait([answer], timeout=seconds)
            if not answer.done() and future.cancel():
                raise UnavailableError("other questions on positions took all the time; try again")
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if not future.cancel():
                await asyncio.wait([answer])  # it has a deadline of its own
            raise
        except KafkaRefusedError as error:
            raise KafkaFailedError(str(error)) from None
        except KafkaUnreachableError as error:
            raise UnavailableError(str(error)) from None
        finally:
            self._waiting -= 1

    async def stop(self) -> None:
        """Ends the thread; what is under way is waited for."""
        await asyncio.to_thread(self._thread.shutdown, wait=True, cancel_futures=True)
        if self._keeper is not None:
            await asyncio.to_thread(self._keeper.close)


def ends(keeper: PositionKeeper, parts: Sequence[Part], deadline_s: float) -> dict[Place, int]:
    """Where each bucket ends: of a sealed segment by the log, of an open one by Kafka, now."""
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
    keeper: PositionKeeper, parts: Sequence[Part], timestamp_ms: int, deadline_s: float
) -> dict[Place, int]:
    """Where a group begins that is to read what has that time or a later one, or LATEST: nothing.

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


def backlogs(
    keeper: PositionKeeper, groups: Mapping[str, Sequence[Part]], deadline_s: float
) -> dict[str, dict[int, int]]:
    """By group, how many records of each of its segments it has not committed.

    What Kafka has deleted since is not counted.
    """
    deadline = clock.now() + deadline_s
    parts = {part.kafka_topic: part for some in groups.values() for part in some}
    places = [place for part in parts.values() for place in part.places()]
    if not places:
        return {group: {} for group in groups}
    begins = keeper.offsets(places, EARLIEST, deadline - clock.now())
    stops = ends(keeper, tuple(parts.values()), deadline - clock.now())
    found: dict[str, dict[int, int]] = {}
    for group, some in groups.items():
        asked = [place for part in some for place in part.places()]
        committed = keeper.committed(group, asked, deadline - clock.now()) if asked else {}
        found[group] = {
            part.segment.segment_id: sum(
                max(0, stops[place] - max(begins[place], committed.get(place, 0)))
                for place in part.places()
            )
            for part in some
        }
    return found
