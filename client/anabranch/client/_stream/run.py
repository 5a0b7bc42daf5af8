"""`Run`: a consumer's messages go to handlers, side by side by key, as its `Schedule` says.

One task drives, as in the consumer itself: it takes what was read, starts what may start, and
cancels what is not ours any more. A handler that ends starts the next one at once. All on one event
loop, without locks.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import Message as KafkaMessage

from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.dead_letters import said
from anabranch.client._consumer.gaps import Gaps
from anabranch.client._consumer.holding import Holding, Phase
from anabranch.client._consumer.messages import Batch, Message, Source
from anabranch.client._consumer.reading import Reading
from anabranch.client._consumer.running import cancelled
from anabranch.client._errors import ClientError
from anabranch.client._stream.lanes import Item
from anabranch.client._stream.letters import Letters
from anabranch.client._stream.retry import Again, BatchFailed
from anabranch.client._stream.schedule import Schedule, Started
from anabranch.client._stream.settings import CANCEL_S, AsyncHandler, BatchSettings, RunSettings
from anabranch.client._stream.stats import WorkStats
from anabranch.client._stream.work import Work
from anabranch.core.errors import InvalidInputError
from anabranch.core.log_rate_limit import LogRateLimit
from anabranch.wire.logging import EventLog
from anabranch.wire.supervised import supervised

_LOOK_S: Final = 0.5
_TELL_S: Final = 60.0
_AHEAD: Final = 4  # a part of what may be queued waits for it at most, as one bucket may get it all
_TURN: Final = 50  # handlers that end at once, before the loop has its turn

_Message = tuple[KafkaMessage, Source]
_Item = Item[_Message]
_Started = Started[_Message]
_ALL_DONE: Final[Mapping[_Item, BaseException]] = {}


class BlockedKey(NamedTuple):
    """A message that failed, and for which its key waits. Keys appear here only, never in logs.

    `is_sealed`: its segment is, so that all keys of the children wait for this one, too.
    """

    key: Any
    segment_id: int
    bucket: int
    offset: int
    failures: int
    error: str
    is_sealed: bool


class Run:
    """One run of a consumer, on its event loop.

    `done` tells the consumer that something of a bucket is done or given up. `readable` is set by
    it whenever something has changed.
    """

    def __init__(
        self,
        core: ConsumerCore,
        reading: Reading,
        handler: AsyncHandler,
        settings: RunSettings,
        now: Callable[[], float],
        done: Callable[[Holding, float], None],
        readable: asyncio.Event,
        letters: Letters,
        logger: EventLog,
        batches: BatchSettings | None = None,
    ) -> None:
        self._core = core
        self._reading = reading
        self._handler = handler
        self._settings = settings
        self._now = now
        self._done = done
        self._readable = readable
        self._logger = logger
        self._batches = batches
        topic = letters.topic
        self._schedule: Schedule[_Message] = Schedule(
            core, settings.retry, settings.concurrency, topic, batches
        )
        self._letters = letters
        self._tasks: dict[Holding, set[asyncio.Task[None]]] = {}  # what runs, by bucket
        self._paused: set[int] = set()
        self._told = LogRateLimit(_TELL_S)
        self._loop = asyncio.get_running_loop()
        self._moment = now()

    # For the consumer.

    async def drive(self, check: Callable[[], None]) -> None:
        """Works until it is stopped. `check` raises what ends the consumer, which ends this."""
        try:
            while not (self._schedule.is_draining and not self._tasks):
                self._readable.clear()
                check()
                if self._schedule.failure is not None:
                    raise self._schedule.failure
                self._moment = self._now()
                self._tend()
                is_more = self._fill()
                self._start()
                if is_more and self._has_room:
                    await asyncio.sleep(0)
                else:
                    await self._rest()
        finally:
            await self.cancel()

    def begin_drain(self) -> None:
        """Starts nothing more. `drive` returns once nothing runs."""
        self._schedule.is_draining = True
        self._readable.set()

    @property
    def is_within(self) -> bool:
        """Tells whether one of its handlers asks."""
        here = asyncio.current_task()
        return any(here in tasks for tasks in self._tasks.values())

    async def drain(self, limit_s: float | None) -> None:
        """Waits for what runs, for so many seconds at most."""
        if running := self._running():
            await asyncio.wait(running, timeout=limit_s)

    def _running(self) -> list[asyncio.Task[None]]:
        return [task for tasks in self._tasks.values() for task in tasks]

    async def cancel(self) -> None:
        """Cancels what runs, and waits a moment for it. It leaves behind what does not end."""
        self._schedule.is_draining = True
        self._schedule.counts.left_behind += await cancelled(self._running(), self._logger)

    def blocked(self) -> Iterator[BlockedKey]:
        """The messages that failed, and for which their keys wait."""
        for item in self._schedule.lanes.blocked():
            raw, source = item.message
            holding, error = source.holding, item.error
            yield BlockedKey(
                raw.key(),
                *holding.place,
                offset=item.offset,
                failures=item.failures,
                error="" if error is None else said(error),
                is_sealed=holding.end_offset is not None,
            )

    def stats(self, maps_refused: int) -> WorkStats:
        """Returns what it does now, and what it has done."""
        return self._schedule.stats(self._now(), maps_refused=maps_refused)

    # Reading.

    @property
    def _has_room(self) -> bool:
        """Tells whether more may be queued. Paused buckets do not count, to hold up no other."""
        lanes, settings = self._schedule.lanes, self._settings
        paused = [lanes.queued[each] for each in self._paused if each in lanes.queued]
        messages = lanes.messages - sum(each.messages for each in paused)
        size = lanes.bytes - sum(each.bytes for each in paused)
        return messages < settings.queued_max and size < settings.queued_bytes_max

    def _fill(self) -> bool:
        """Takes what was read into the lanes. Returns True if there may be more."""
        plane = self._reading.plane
        if self._schedule.is_draining or plane is None or not self._has_room:
            return False
        buckets = max(1, len(self._core.fetches))
        plane.waiting_max = max(1, self._settings.queued_max // (_AHEAD * buckets))
        batch = self._reading.take()
        if batch is not None:
            self._add(batch)
        return batch is not None

    def _add(self, batch: Batch) -> None:
        known: dict[int, tuple[Holding, Gaps] | None] = {}
        for raw in batch.raw:
            source = batch.source_of(raw)
            number, offset = source.number, raw.offset() or 0
            if number not in known:
                known[number] = self._schedule.served(number)
            found = known[number]
            if found is None:
                continue  # it was taken away
            start = self._schedule.taken(number, *found, offset)
            if start is not None:
                key = self._key_of(raw, source, offset)
                self._schedule.lanes.add(key, number, (raw, source), start, offset, len(raw))
        for number in known:
            self._pause(number)

    def _key_of(self, raw: KafkaMessage, source: Source, offset: int) -> Hashable:
        """Returns the lane: keys with the same bytes, or else each message for itself."""
        if self._settings.ordering == "bucket":
            return source.holding.place
        key: bytes | None = raw.key()
        is_free = key is None or self._settings.ordering == "none"
        own = (source.holding.place, offset) if is_free else key
        if self._settings.key_of is None:
            return own
        try:
            found = self._settings.key_of(Message(raw, source))
            hash(found)
        except Exception as error:  # noqa: BLE001 - the message goes with those of its key
            if self._told.due("key_of", self._moment):
                self._logger.warning("handler.key_of_failed", why=type(error).__name__)
            return own
        return "of", found

    def _pause(self, number: int) -> None:
        """Stops to read a bucket that has more than its share of what is nearly full, until it has
        half of that.
        """
        plane, queued = self._reading.plane, self._schedule.lanes.queued.get(number)
        fetches = self._core.fetches
        holding = fetches.get(number)
        if plane is None or queued is None or holding is None or holding.fetch is None:
            return
        settings, lanes = self._settings, self._schedule.lanes
        messages = max(1, settings.queued_max // len(fetches))
        size = max(1, settings.queued_bytes_max // len(fetches))
        if number not in self._paused:
            many = lanes.messages > settings.queued_max // 2 and queued.messages > messages
            large = lanes.bytes > settings.queued_bytes_max // 2 and queued.bytes > size
            if many or large:
                self._paused.add(number)
                plane.stop(number)
        elif queued.messages <= messages // 2 and queued.bytes <= size // 2:
            self._paused.discard(number)
            start = self._schedule.resumed(number)
            if start is not None:
                plane.start(holding.fetch, start)

    # Starting and ending.

    def _tend(self) -> None:
        """Notices buckets that were taken away, and attempts whose time has come."""
        for number in self._schedule.tend(self._moment):
            self._paused.discard(number)
        for number in list(self._paused):
            self._pause(number)
        for holding, tasks in self._tasks.items():
            if self._schedule.must_cancel(holding, self._moment):
                for task in tasks:
                    if not task.cancelling():  # once: it may be cleaning up
                        task.cancel()
        self._core.dead_letters_waiting = self._schedule.letters_waiting

    def _start(self) -> None:
        while (started := self._next()) is not None:
            self._note_task(supervised(self._work(started), "handler"), started.holding)

    def _next(self) -> _Started | None:
        started, untold = self._schedule.next(self._moment), self._schedule.untold
        while untold:
            self._done(untold.pop(), self._moment)  # it has a commit begin
        return started

    async def _work(self, started: _Started) -> None:
        """Works on messages. A fault of ours, or what ends the process, ends `drive`."""
        try:
            await self._work_on(started)
        except BaseException as error:
            self._schedule.failure = self._schedule.failure or error
            self._readable.set()
            if not isinstance(error, Exception):
                raise

    async def _work_on(self, started: _Started) -> None:
        """Works on one message after the other, as long as there is one to begin."""
        task: Any = asyncio.current_task()
        holding, count = started.holding, 0
        try:
            while True:
                outcomes = await self._attempt(started, rests=count % _TURN == _TURN - 1)
                self._moment = self._now()
                # Else the handler itself has raised CancelledError, and has failed.
                is_cancelled = task.cancelling() > 0
                for item, error in self._schedule.ended(
                    started, outcomes, self._moment, is_cancelled=is_cancelled
                ):
                    self._tell(item, error)
                if outcomes or self._schedule.lanes.messages <= self._settings.queued_max // 2:
                    self._readable.set()
                self._done(holding, self._moment)
                found = None if is_cancelled else self._next()
                if found is None:
                    return
                if found.holding is not holding:
                    self._forget_task(task, holding)
                    holding = found.holding
                    self._note_task(task, holding)
                started = found
                count += 1
        finally:
            self._forget_task(task, holding)

    async def _attempt(self, started: _Started, *, rests: bool) -> Mapping[_Item, BaseException]:
        """Returns the messages that are not done, each with the reason. `rests`: others have their
        turn on the loop before.
        """
        first = started.items[0]
        if first.is_over and first.error is not None:
            return await self._put_aside({first: first.error}, started.holding)
        killed = self._schedule.killer(started)
        outcomes = {first: killed} if killed else await self._call(started, rests=rests)
        if not outcomes or self._settings.retry.then != "dead_letter":
            return outcomes
        return await self._put_aside(outcomes, started.holding)

    async def _call(self, started: _Started, *, rests: bool) -> Mapping[_Item, BaseException]:
        """Calls the handler. Returns the messages that are not done, each with what it raised."""
        items, batches, given = started.items, self._batches, list[tuple[Message, Work]]()
        named: dict[_Item, BaseException] = {}
        began = 0.0
        try:
            if rests:
                await asyncio.sleep(0)
            if batches is not None and (wait_s := self._schedule.wait_s(started)):
                try:
                    await asyncio.sleep(wait_s)
                finally:
                    self._schedule.join(started, self._now())
                    self._readable.set()  # for what had to wait as well
            timeout_s = self._settings.timeout_s
            deadline = None if timeout_s is None else self._loop.time() + timeout_s
            for item in items:
                given.append(self._given(item, deadline))
            what = given[0] if batches is None else (given,)
            began = self._now()
            if deadline is None:
                await self._handler(*what)
            else:
                async with asyncio.timeout_at(deadline):
                    await self._handler(*what)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - the handler's
            if isinstance(error, BatchFailed):
                errors = [error.errors.get(message) for message, _ in given]
                named = {i: e for i, e in zip(items, errors, strict=True) if e is not None}
            is_cancelled, now = _is_cancelled(), self._now()
            if given:
                self._schedule.counts.took(now - began)
            return self._schedule.outcomes(started, error, named, now, is_cancelled=is_cancelled)
        self._schedule.counts.took(self._now() - began)
        return _ALL_DONE

    def _given(self, item: _Item, deadline: float | None) -> tuple[Message, Work]:
        message, assignment = Message(*item.message), self._core.assignment
        incarnation = 0 if assignment is None else assignment.incarnation
        return message, Work(message, incarnation, item.failures + 1, deadline)

    async def _put_aside(
        self, outcomes: Mapping[_Item, BaseException], holding: Holding
    ) -> Mapping[_Item, BaseException]:
        """Sends what no handler gets again to the dead letters, one after the other.
        Returns what is not done.
        """
        left, stuck = dict(outcomes), set()
        for item, error in outcomes.items():
            if item.lane in stuck:  # so that a key's letters are in order
                left[item] = Again(0.0)
                continue
            if _is_cancelled():
                break  # it waits for nothing more
            if not item.is_over and not self._schedule.goes_aside(
                item, holding, error, self._now()
            ):
                stuck.add(item.lane)
                continue
            try:
                letter = await self._letters.put(Message(*item.message), item.failures, error)
            except (ClientError, InvalidInputError, TimeoutError, asyncio.CancelledError) as failed:
                left[item] = failed
                stuck.add(item.lane)
            else:
                self._logger.info("handler.dead_letter", **letter.fields())
                del left[item]
        return left

    def _note_task(self, task: asyncio.Task[None], holding: Holding) -> None:
        tasks = self._tasks.get(holding)
        if tasks is None:
            tasks = self._tasks[holding] = set()
        tasks.add(task)

    def _forget_task(self, task: asyncio.Task[None], holding: Holding) -> None:
        tasks = self._tasks[holding]
        tasks.discard(task)
        if not tasks:
            del self._tasks[holding]

    def _tell(self, item: _Item, error: BaseException) -> None:
        raw, source = item.message
        key: Any = raw.key()
        if self._told.due((item.number, item.offset), self._moment):
            self._logger.warning(
                "consumer.dead_letter_failed" if item.is_over else "handler.key_blocked",
                segment=source.holding.place.segment_id,
                bucket=source.holding.place.bucket,
                offset=item.offset,
                key_crc32=None if key is None else zlib.crc32(key),
                failures=item.failures,
                sealed=source.holding.end_offset is not None,
                why=said(error),
            )

    async def _rest(self) -> None:
        at = self._schedule.lanes.wake_at()
        pause_s = _LOOK_S if at is None else min(_LOOK_S, max(0.0, at - self._now()))
        settling = [h.settle_by for h in self._tasks if h.phase is Phase.SETTLING]
        left = [by - CANCEL_S - self._now() for by in settling]
        pause_s = min([pause_s, *(until_s for until_s in left if until_s > 0.0)])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._readable.wait()


def _is_cancelled() -> bool:
    task: Any = asyncio.current_task()
    return bool(task.cancelling())
