"""`NamedProducer`: the hold of a process on a producer's name, and what Kafka keeps of the name.

Kafka keeps both. A transactional id makes one process the owner, and a Kafka group has the
milestones (docs/decisions/0036). A process begins in this order:

1. It looks at the group until nobody else can be the owner, who commits every few seconds.
2. It becomes the owner of the transactional id. It adds all buckets that take messages to a
   transaction and aborts that one. So all of them refuse what a former owner may yet have on its
   way, even one that stood still for long.
3. It reads on from the milestone (`sequences`), behind which all lies that is not settled.
4. It commits, and asks whether it is still the owner. Only then it appends.

An owner asks so before each commit. It stops to append once it did not learn it for too long, and
before it has committed that it knows a new segment. So no successor looks at an older layout.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeVar

from anabranch.client._errors import (
    DeadlineError,
    DeliveryError,
    KafkaReadError,
    ProducerBusyError,
    ProducerFencedError,
)
from anabranch.client._producer import sequences
from anabranch.client._producer.name_store import NameStore, Owner
from anabranch.client._producer.sequences import Commits, Milestone, Place, Sequences
from anabranch.client._topics.layout import TopicLayout
from anabranch.wire import clock
from anabranch.wire.kafka import names
from anabranch.wire.kafka.link import KafkaLinks
from anabranch.wire.kafka.producing import KafkaNotYetError
from anabranch.wire.kafka.protocol import Address, KafkaProtocolError, Partition
from anabranch.wire.logging import get_logger

_T = TypeVar("_T")

SESSION_S: Final = 10.0  # an owner appends for so long without a word of Kafka
LAPSE_S: Final = 12.0  # a silent owner has stopped for certain
_BEAT_S: Final = 2.5
_FULL_S: Final = 60.0
_MARK_S: Final = 5.0
_MARK_S_MIN: Final = 1.0
_MARK_MESSAGES: Final = 1_000
_PLACES_PER_S: Final = 1_000  # a commit takes some 200 bytes for each
_IDLE_MARK_S: Final = 60.0  # retention may delete what others have written meanwhile
_RENEW_S: Final = 6 * 3_600.0
_LOOK_S: Final = 0.25
_AGAIN_S: Final = 0.05
_START_S: Final = 60.0
_CLOSE_S: Final = 5.0
_UNKNOWN_MAX: Final = 1_000_000  # messages to look through for a name of which nothing is kept
_logger = get_logger(__name__)


class NamedProducer:
    """The hold of this process on `name`. `ended` is called if it loses it, and `go_on` when
    appends may go on.
    """

    def __init__(
        self,
        name: str,
        layout: Callable[[], TopicLayout],
        links: KafkaLinks,
        ended: Callable[[DeliveryError], None],
        go_on: Callable[[], None],
        *,
        is_new: bool = False,
        now: Callable[[], float] = clock.now,
    ) -> None:
        self._store = NameStore(name, layout(), links)
        self.who = f"producer {name} of topic://{layout().topic}"
        self.hash = self._store.hash
        self.failure: DeliveryError | None = None
        self.numbers = Sequences(Milestone(0, sequences.NOTHING, {}), {})
        self._layout = layout
        self._trouble = ""  # the last one that passes
        self._ended = ended
        self._go_on = go_on
        self._is_new = is_new
        self._now = now
        self._id = (-1, -1)
        self._is_fresh = False  # nobody has the id yet
        self._owning = asyncio.Lock()  # one question at a time about the transactional id
        self._until = -1.0  # appends may begin before
        self._told: frozenset[int] = frozenset()  # segments that Kafka knows us to know
        self._told_version = -1
        self._beats = itertools.count(secrets.randbits(32))  # no former process has said so
        self._beat_at = self._full_at = self._marked_at = self._renewed_at = now()
        self._poke = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # --- the start ----------------------------------------------------------------------

    async def start(self) -> None:
        """Becomes the owner of the name, and learns what is stored.

        Raises ProducerBusyError, DuplicatesUnknownError, KafkaReadError, DeadlineError.
        """
        try:
            async with asyncio.timeout(_START_S):
                await self._start()
        except TimeoutError:
            trouble = self._trouble or "check that it runs"
            raise DeadlineError(
                f"Kafka did not tell in {_START_S:g} s what {self.who} has stored: {trouble}"
            ) from None
        except names.NameTakenError:
            raise self._busy() from None
        except KafkaProtocolError as error:
            raise KafkaReadError(f"{self.who}: {error}") from None
        self._task = asyncio.create_task(self._keep(), name=self.who)

    async def _start(self) -> None:
        watched = await self._alone()
        self._id = await self._again(self._store.become)
        commits = await self._again(self._store.commits)
        if commits != watched and not sequences.is_free(commits):
            await asyncio.sleep(LAPSE_S)  # somebody came first, but has lost it to us
        self.numbers = await self._again(lambda: self._look_back(commits))
        self._is_fresh = True
        await self._again(lambda: self._commit(self.numbers.milestone))
        milestone = self.numbers.milestone
        _logger.info("producer.named", who=self.who, settled=milestone.settled)

    async def _alone(self) -> Commits:
        """Returns what Kafka has of the name, once no other process can be its owner."""
        watched = commits = await self._again(self._store.commits)
        until = self._now() + LAPSE_S
        while not sequences.is_free(commits) and (left_s := until - self._now()) > 0:
            await asyncio.sleep(min(_LOOK_S, left_s))
            commits = await self._again(self._store.commits)
            if commits != watched and not sequences.is_free(commits):
                raise self._busy()
        return commits

    def _busy(self) -> ProducerBusyError:
        return ProducerBusyError(
            f"another process is {self.who}: give each process a name of its own, or wait for the "
            "other one's end"
        )

    async def _look_back(self, commits: Commits) -> Sequences:
        """Shuts former owners out, and collects what they have stored above the milestone."""
        layout = self._layout()
        if layout.version < sequences.version_of(commits):
            raise ConnectionError("no node has told the newest layout: check that they run")
        milestone = sequences.read_milestone(commits, layout, self.who)
        opened, leaders = await self._opened(layout)
        await self._shut(opened.values())
        ends = await self._store.ends(opened.values(), leaders)
        now_open = {place: ends[at] for place, at in opened.items()}
        if milestone is None and self._is_new:
            milestone = Milestone(0, sequences.NOTHING, {}, is_last=True)
        if milestone is not None and milestone.is_last:
            return Sequences(Milestone(milestone.number + 1, milestone.settled, now_open), {})
        is_lost = milestone is None
        milestone = milestone or sequences.beginning(layout, self.who)
        begins = sequences.starts(milestone, layout, self.who)
        spans: dict[Place, tuple[int, int]] = {}
        for place, begin in begins.items():
            part = layout.segments.get(place[0])
            end = now_open.get(place, begin)
            if part is not None and not part.info.is_active:
                if not part.info.end_offsets:
                    raise sequences.unknown(self.who, f"its segment {place[0]} was lost")
                end = part.info.end_offsets[place[1]]
            if begin < end:
                spans[place] = begin, end
        if is_lost and sum(end - begin for begin, end in spans.values()) > _UNKNOWN_MAX:
            raise sequences.unknown(self.who, "Kafka kept nothing of it", is_lost=True)
        partitions = self._store.partitions(layout, spans)
        found = await self._store.read(partitions, spans)
        if found is None:
            why = "Kafka has deleted messages since"
            raise sequences.unknown(self.who, why, is_lost=is_lost)
        above = {each: at for each, at in found.items() if each > milestone.settled}
        if is_lost and not above:
            milestone = Milestone(0, sequences.NOTHING, now_open)
        return Sequences(milestone, above)

    async def _opened(
        self, layout: TopicLayout
    ) -> tuple[dict[Place, Partition], dict[Partition, Address]]:
        """Returns the buckets that take messages from now on, and the partitions' leaders.

        Nobody has written to a child whose Kafka topic is not there yet.
        """
        places = self._store.partitions(layout, sequences.open_places(layout))
        needed = {each.kafka_topic for each in layout.active}
        leaders = await self._store.leaders(places.values(), needed)
        return {place: at for place, at in places.items() if at in leaders}, leaders

    async def _shut(self, places: Collection[Partition]) -> None:
        """Has these partitions refuse all former owners. Raises NameTakenError if there is a later
        one.
        """
        await self._store.add(self._id, places)
        await self._store.own(self._id)
        while True:  # until all have the end of the transaction
            with contextlib.suppress(KafkaNotYetError):
                self._id = await self._store.become(self._id)
                return
            await asyncio.sleep(_AGAIN_S)

    # --- the hold -----------------------------------------------------------------------

    def may_append(self, segment_id: int) -> bool:
        """Tells whether an append to the segment may begin now."""
        return segment_id in self._told and self._now() < self._until

    async def producer_id(self, timeout_s: float) -> Owner:
        """Returns an id and epoch that no writer has used, within `timeout_s` seconds.

        Raises OSError, KafkaNotYetError or KafkaProtocolError.
        """
        if self._is_fresh:
            self._is_fresh = False
            return self._id
        try:
            async with asyncio.timeout(timeout_s):
                await self._renew()
        except names.NameTakenError as error:
            self._lose()
            raise KafkaProtocolError(str(self.failure)) from error
        return self._id

    async def _keep(self) -> None:
        """Keeps the name, and Kafka's knowledge of it, until it ends."""
        while self.failure is None:
            try:
                await self._turn()
            except names.NameTakenError:
                self._lose()
            except (OSError, KafkaProtocolError) as error:
                _logger.debug("producer.name_unheard", who=self.who, why=str(error))
            except Exception as error:
                _logger.error("producer.fault", who=self.who, exc_info=error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._poke.wait()
            self._poke.clear()

    def check_usable(self) -> None:
        """Raises ProducerFencedError, and DeliveryError once a message has failed."""
        if self.failure is not None:
            raise self.failure
        if self.numbers.failed is not None:
            raise DeliveryError(
                f"message {self.numbers.failed} of {self.who} failed: close it and create it "
                "again, which finds out if it is stored, and go on behind `sequence`"
            )

    def poke(self) -> None:
        """Tells it that the layout may have changed."""
        self._poke.set()

    async def _turn(self) -> None:
        numbers, now = self.numbers, self._now()
        if (due := numbers.due()) is not None:
            await self._commit(due)
            numbers.kept(due)
        elif now >= self._beat_at + _BEAT_S or self._layout().version != self._told_version:
            is_whole = now >= self._full_at + _FULL_S
            await self._commit(numbers.milestone, is_whole=is_whole)
        if now >= self._renewed_at + _RENEW_S:
            await self._renew()
        since_s = now - self._marked_at
        least_s = max(_MARK_S_MIN, len(numbers.milestone.ends) / _PLACES_PER_S)
        wants_mark = (
            numbers.since_mark >= _MARK_MESSAGES
            or (numbers.since_mark and since_s >= _MARK_S)
            or since_s >= _IDLE_MARK_S
        )
        if wants_mark and not numbers.is_marked and since_s >= least_s:
            await self._mark()

    async def _renew(self) -> None:
        """Begins a new epoch, which no writer needs: Kafka forgets an id that rests for a week."""
        async with self._owning:
            self._id = await self._store.become(self._id)
        self._renewed_at = self._now()

    async def _mark(self) -> None:
        """Asks where buckets end. The numbers that are sent after the answer lie behind."""
        layout = self._layout()
        opened, leaders = await self._opened(layout)
        ends = await self._store.ends(opened.values(), leaders)
        self.numbers.mark({place: ends[at] for place, at in opened.items()})
        self._marked_at = self._now()

    async def _commit(
        self, milestone: Milestone, state: str = "", *, is_whole: bool = True
    ) -> None:
        """Commits a milestone, or only a part of it, which shows that the owner lives.

        Raises NameTakenError if there is another owner.
        """
        layout, asked_at = self._layout(), self._now()
        async with self._owning:
            await self._store.own(self._id)
        said = state or next(self._beats)
        await self._store.commit(milestone.commits(layout, said, is_whole=is_whole))
        async with self._owning:
            await self._store.own(self._id)
        self._beat_at = asked_at
        if is_whole:
            self._full_at = asked_at
        self._told_version = layout.version
        self._told = frozenset({*layout.segments, *(each.segment_id for each in layout.children)})
        self._until = asked_at + SESSION_S
        self._go_on()

    def _lose(self) -> None:
        if self.failure is None:
            self._until = -1.0
            self.failure = ProducerFencedError(
                f"another process is {self.who} by now, so this one sends nothing more: give each "
                "process a name of its own"
            )
            _logger.warning("producer.fenced", who=self.who)
            self._ended(self.failure)

    async def close(self) -> None:
        """Lets another process have the name at once. It raises nothing."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        if self.failure is not None:
            return
        try:
            async with asyncio.timeout(_CLOSE_S):
                if self.numbers.failed is None:
                    await self._mark()
                due = self.numbers.due()
                if due is not None:
                    await self._commit(due, sequences.CLOSED)
                else:
                    await self._commit(self.numbers.milestone, sequences.LEFT)
        except (OSError, KafkaProtocolError) as error:
            _logger.warning("producer.release_unheard", who=self.who, why=str(error))

    async def _again(self, work: Callable[[], Awaitable[_T]]) -> _T:
        while True:
            try:
                return await work()
            except (OSError, KafkaNotYetError) as error:
                self._trouble = str(error)
            await asyncio.sleep(_AGAIN_S)
