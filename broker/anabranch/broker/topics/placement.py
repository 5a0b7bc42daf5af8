"""`KafkaPlacement`: this node's knowledge of Kafka's brokers, for those who make segments' topics.

It looks about as often as loads are measured, in a thread, and never on an operation's way. It asks
a Kafka of one broker only whether there are more by now, and then nothing is placed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from anabranch.broker.errors import (
    NotFoundError,
    PreconditionError,
    UnavailableError,
    listed,
)
from anabranch.channel.load.loads import LoadTable
from anabranch.channel.segments.survey import BrokerSurveyor
from anabranch.core.topics.kafka_placement import (
    Copies,
    KafkaBroker,
    KafkaSurvey,
    Place,
    Room,
    brokers_of,
    expected_load,
    relieved,
)
from anabranch.core.topics.tasks import MakeSegments, Task
from anabranch.wire import clock

_LOOK_S: Final = 5.0
_AT_ONCE: Final = 500  # segments whose loads are copied before others have their turn
_PAUSE_SHARE: Final = 20  # times as long as a look took: what a large Kafka may cost


class KafkaPlacement:
    """One node's. `run` until it is cancelled, then `close`; for use in the event loop."""

    def __init__(
        self,
        table: LoadTable,
        interval_s: float,
        copies: int,
        open_surveyor: Callable[[], BrokerSurveyor],
        now: Callable[[], float] = clock.now,
    ) -> None:
        """`copies`: a partition's."""
        self.copies = copies
        self.brokers: tuple[KafkaBroker, ...] = ()
        self.survey: KafkaSurvey | None = None
        self._number = 0  # of the survey
        self._table = table
        self._interval_s = interval_s
        self._open = open_surveyor
        self._surveyor: BrokerSurveyor | None = None
        self._now = now
        self._thread = ThreadPoolExecutor(1, "placement")

    async def run(self) -> None:
        """Looks until it is cancelled."""
        while True:
            began = self._now()
            await self.look()
            took_s = self._now() - began
            await asyncio.sleep(max(self._interval_s - took_s, _PAUSE_SHARE * took_s))

    async def close(self) -> None:
        """Ends the thread."""
        await asyncio.to_thread(self._thread.shutdown)

    async def look(self, *, whole: bool = False) -> None:
        """Asks Kafka, once; without an answer the former one stays.

        `whole`: asks a Kafka of one broker for the places of segments, too.
        """
        loop = asyncio.get_running_loop()
        survey = await loop.run_in_executor(self._thread, self._ask, whole)
        if survey is None:
            return
        loads = await self._loads()

        def added_up() -> tuple[KafkaBroker, ...]:
            return brokers_of(survey, lambda place: loads.get(place, 0.0))

        brokers = await loop.run_in_executor(self._thread, added_up)
        self.survey, self.brokers = survey, brokers
        self._number += 1

    def room(self, task: Task) -> Room | None:
        """Returns the room that the task's new Kafka topics are placed by; None if there is no
        choice.
        """
        survey = self.survey
        if not isinstance(task, MakeSegments):
            return None
        off = frozenset(task.off)
        if survey is None:
            return Room(off=off)
        if len(survey.racks) == 1:
            return None
        loads = self._table.segments(task.topic, task.incarnation)

        def bytes_of(place: Place) -> float:
            load = loads.get(place[1])
            return 0.0 if load is None else load.bytes_rate_in + load.bytes_rate_out

        ids = sorted({each for part in task.segments for each in part.parent_ids})
        parents = [(task.incarnation, each) for each in ids]
        return Room(
            self._number,
            relieved(self.brokers, survey, parents, bytes_of),
            off,
            expected=expected_load(task.segments, parents, bytes_of),
        )

    async def fresh(self) -> KafkaSurvey:
        """Returns Kafka's answer of just now. Raises UnavailableError if it gives none."""
        before = self._number
        await self.look(whole=True)
        if self.survey is None or self._number == before:
            raise UnavailableError("Kafka does not say which brokers it has; try again")
        return self.survey

    def copies_of(self, incarnation: int, segment_id: int) -> tuple[Copies, ...]:
        """Returns a segment's brokers by the last survey; empty if that does not have them."""
        return self.survey.copies(incarnation, segment_id) if self.survey is not None else ()

    def check_left(self, survey: KafkaSurvey, off: Collection[int]) -> None:
        """Checks that these are brokers that can be done without.

        Raises NotFoundError for one that is none, PreconditionError if too few would be left.
        """
        if len(survey.racks) == 1:
            (only,) = survey.racks
            raise PreconditionError(f"Kafka has one broker, {only}: segments can lie nowhere else")
        with_copies = (part.replicas for each in survey.segments.values() for part in each)
        known = set(survey.racks).union(*with_copies)
        strange = sorted(set(off) - known)
        if strange:
            raise NotFoundError(f"Kafka has no broker {strange[0]}: it has {listed(sorted(known))}")
        left = set(survey.racks) - set(off)
        if len(left) < self.copies:
            raise PreconditionError(
                f"{len(left)} of Kafka's live brokers would be left for segments, and "
                f"replicationFactor is {self.copies}: start more Kafka brokers"
            )

    def _ask(self, whole: bool) -> KafkaSurvey | None:
        """In the thread."""
        if self._surveyor is None:
            self._surveyor = self._open()
        return self._surveyor.look(_LOOK_S, whole=whole)

    async def _loads(self) -> dict[Place, float]:
        """Bytes a second of every segment that something is known of."""
        found: dict[Place, float] = {}
        for topic in self._table.topics():
            for each in list(self._table.places(topic)):
                load = self._table.segments(topic, each.incarnation).get(each.segment_id)
                if load is not None:
                    total = load.bytes_rate_in + load.bytes_rate_out
                    found[each.incarnation, each.segment_id] = total
                if len(found) % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(0)
        return found
