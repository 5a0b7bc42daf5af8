"""`Run`: messages go to handlers, side by side by key, as the `Schedule` says.

A run has one topic's consumer or many (`RunPart`), which share its handlers and its bounds. One
task drives: it takes what was read, starts what may start, and cancels what is not ours any more.
It looks at a topic only once its consumer has told of a change. A handler that ends starts the next
one at once. All on one event loop, without locks.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Final

from confluent_kafka import Message as KafkaMessage

from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.gaps import Gaps
from anabranch.client._consumer.holding import Holding, Phase
from anabranch.client._consumer.messages import Batch, Message, Source
from anabranch.client._consumer.reading import Reading
from anabranch.client._consumer.running import cancel, cancelled
from anabranch.client._errors import ClientError
from anabranch.client._stream.intake import TopicWork
from anabranch.client._stream.lanes import Item
from anabranch.client._stream.letters import Letters
from anabranch.client._stream.part import BlockedKey, Raw, RunPart
from anabranch.client._stream.retry import Again, BatchFailed
from anabranch.client._stream.schedule import Schedule, Started
from anabranch.client._stream.settings import CANCEL_S, AsyncHandler, BatchSettings, RunSettings
from anabranch.client._stream.stats import Counts, WorkStats
from anabranch.client._stream.work import Work
from anabranch.core.errors import AnabranchError, InvalidInputError
from anabranch.wire.logging import EventLog
from anabranch.wire.supervised import supervised

_LOOK_S: Final = 0.5
_SHED_S: Final = 0.05
_TURN: Final = 50  # handlers that end at once, before the loop has its turn
_TAKEN: Final = 1_000  # messages that are taken at once
_MAP_BYTES_PER_S: Final = 256 * 1024  # of maps that all topics commit, unless somebody waits

_Item = Item[Raw]
_Started = Started[Raw]
_ALL_DONE: Final[Mapping[_Item, BaseException]] = {}


class Run:
    """One run of handlers, on its event loop.

    `check` raises what ends it. `failed` takes a part whose consumer has failed, with the error, or
    raises that to end the run.
    """

    def __init__(
        self,
        handler: AsyncHandler,
        settings: RunSettings,
        batches: BatchSettings | None,
        now: Callable[[], float],
        logger: EventLog,
        check: Callable[[], None],
        failed: Callable[[RunPart, Exception], None],
    ) -> None:
        self._handler = handler
        self._settings = settings
        self._now = now
        self._logger = logger
        self._batches = batches
        self._check = check
        self._failed = failed
        self._schedule: Schedule[Raw] = Schedule(settings, batches)
        self._parts: dict[TopicWork, RunPart] = {}  # all that are here, or of which something runs
        self._changed: dict[RunPart, None] = {}  # to be looked at
        self._unread: deque[RunPart] = deque()  # that may have something to take, in turn
        self._settling: dict[Holding, RunPart] = {}  # buckets that go, of which something runs
        self._look_at = self._shed_at = self._maps_until = 0.0
        self._wake = asyncio.Event()
        self._over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._moment = now()

    # For the consumers.

    @property
    def counts(self) -> Counts:
        """Counts since it began."""
        return self._schedule.counts

    def join(
        self,
        core: ConsumerCore,
        reading: Reading,
        letters: Letters,
        logger: EventLog,
        done: Callable[[Holding, float], None],
        check: Callable[[], None],
    ) -> RunPart:
        """Has a topic's consumer take part. The arguments are those of `RunPart`."""
        work = self._schedule.intake.join(core, letters.topic)
        part = self._parts[work] = RunPart(work, self, reading, letters, logger, done, check)
        self.changed(part)
        return part

    def changed(self, part: RunPart) -> None:
        """Notes that a part's consumer has changed, or may have something to take."""
        self._changed[part] = None
        if not (part.is_unread or part.work.is_over):
            part.is_unread = True
            self._unread.append(part)
        self._wake.set()

    def spend(self, map_bytes: int) -> float:
        """Notes that a commit has so many bytes of maps. Returns the time before which none of its
        topic is to follow, unless somebody waits.
        """
        self._maps_until = max(self._maps_until, self._now()) + map_bytes / _MAP_BYTES_PER_S
        return self._maps_until

    def poke(self) -> None:
        """Has it look whether it is to end."""
        self._wake.set()

    def leave(self, part: RunPart) -> None:
        """Starts nothing more of a part. What runs of it goes on."""
        self._schedule.intake.leave(part.work)
        self._forget_part(part)
        self._wake.set()

    async def drive(self) -> None:
        """Works until it is stopped, or raises what ends it."""
        try:
            while not self._schedule.has_ended(self._now()):
                self._wake.clear()
                self._check()
                self._moment = self._now()
                self._tend()
                is_more = self._fill()
                self._start()
                if is_more:
                    self._shed()
                if is_more and self._schedule.intake.has_room:
                    await asyncio.sleep(0)
                elif not self._schedule.has_ended(self._moment):
                    await self._rest()
            if self._schedule.failure is not None:
                raise self._schedule.failure
        finally:
            await self.cancel()
            self._over.set()

    def begin_drain(self) -> None:
        """Starts nothing more. `drive` returns once nothing runs."""
        self._schedule.stop(math.inf)
        self._wake.set()

    @property
    def is_within(self) -> bool:
        """Tells whether one of its handlers asks."""
        here = asyncio.current_task()
        return any(here in part.running for part in self._parts.values())

    async def drain(self, limit_s: float | None) -> None:
        """Waits for what runs, for so many seconds at most, and cancels it then."""
        self._schedule.stop(math.inf if limit_s is None else self._now() + limit_s)
        self._wake.set()
        await self._over.wait()

    async def cancel(self) -> None:
        """Cancels what runs, and waits a moment for it. It leaves behind what does not end."""
        self._schedule.stop(self._now())
        running = [task for part in self._parts.values() for task in part.running]
        self.counts.left_behind += await cancelled(running, self._logger)

    def blocked(self) -> Iterator[BlockedKey]:
        """The messages that failed, and for which their keys wait."""
        return map(BlockedKey.of, self._schedule.lanes.blocked())

    def stats(self) -> WorkStats:
        """Returns what it does now, and what it has done."""
        return self._schedule.stats(self._now())

    # Reading.

    def _fill(self) -> bool:
        """Takes what was read into the lanes, from each topic in turn. Returns True if there may be
        more.
        """
        intake, taken = self._schedule.intake, 0
        if self._schedule.is_draining:
            return False
        while self._unread and intake.has_room and taken < _TAKEN:
            part = self._unread.popleft()
            batch = None if part.work.is_over else part.take(intake.ahead)
            if batch is None:
                part.is_unread = False
                continue
            self._unread.append(part)
            self._add(part, batch)
            taken += 1 + len(batch)
        return bool(self._unread)

    def _shed(self) -> None:
        """Makes room, if there is none, and looks for it only now and then."""
        if self._schedule.intake.has_room or self._moment < self._shed_at:
            return
        self._shed_at = self._moment + _SHED_S
        for stopped in self._schedule.sheds():
            self._parts[stopped.part].stop(stopped)

    def _add(self, part: RunPart, batch: Batch) -> None:
        schedule = self._schedule
        known: dict[int, tuple[Holding, Gaps] | None] = {}
        for raw in batch.raw:
            source = batch.source_of(raw)
            number, offset = source.number, raw.offset() or 0
            if number not in known:
                known[number] = schedule.intake.served(part.work, number)
            found = known[number]
            if found is None:
                continue  # it was taken away
            start = schedule.taken(*found, offset)
            if start is not None:
                key = part.work.topic, self._key_of(part, raw, source, offset)
                schedule.lanes.add(key, number, (raw, source), start, offset, len(raw))
        for stopped in schedule.intake.stops(part.work, known):
            part.stop(stopped)

    def _key_of(self, part: RunPart, raw: KafkaMessage, source: Source, offset: int) -> Hashable:
        """Returns the lane in a topic: keys with the same bytes, or each message for itself."""
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
            part.tell_key_of(error, self._moment)
            return own
        return "of", found

    # Starting and ending.

    def _tend(self) -> None:
        """Notices buckets that were taken away, and attempts and ends whose time has come."""
        now = self._moment
        if now >= self._look_at or self._schedule.must_end(now):
            self._look_at = now + _LOOK_S
            self._changed |= dict.fromkeys(self._parts.values())
            self._schedule.intake.look_at_stopped()
        while self._changed:
            part = next(reversed(self._changed))
            del self._changed[part]
            self._tend_part(part)
        self._schedule.wake(now)
        for resumed in self._schedule.intake.resumes():
            self._parts[resumed.part].resume(resumed)
        for holding, part in list(self._settling.items()):
            if holding.phase is not Phase.SETTLING or holding not in part.tasks:
                del self._settling[holding]
            else:
                self._cancel_late(part, holding)

    def _tend_part(self, part: RunPart) -> None:
        if not part.work.is_over:
            try:
                part.check()
            except AnabranchError as error:
                self.leave(part)
                cancel(part.running)
                self._failed(part, error)
        self._schedule.tend(part.work, self._moment)
        for holding in part.tasks:
            self._cancel_late(part, holding)
        self._settling |= dict.fromkeys(part.settling, part)
        part.note_late()
        part.tell_blocked(self._moment)

    def _cancel_late(self, part: RunPart, holding: Holding) -> None:
        if self._schedule.must_cancel(part.work, holding, self._moment):
            cancel(part.tasks[holding])

    def _start(self) -> None:
        while (started := self._next()) is not None:
            part = self._parts[started.part]
            part.note_task(supervised(self._work(started), "handler"), started.holding)

    def _next(self) -> _Started | None:
        started, untold = self._schedule.next(self._moment), self._schedule.suspects.untold
        while untold:
            holding, work = untold.popitem()
            if work in self._parts:
                self._parts[work].done(holding, self._moment)  # it has a commit begin
        return started

    async def _work(self, started: _Started) -> None:
        """Works on messages. A fault of ours, or what ends the process, ends `drive`."""
        try:
            await self._work_on(started)
        except BaseException as error:
            self._schedule.fail(error, self._now())
            self._wake.set()
            if not isinstance(error, Exception):
                raise

    async def _work_on(self, started: _Started) -> None:
        """Works on one message after the other, as long as there is one to begin."""
        task: Any = asyncio.current_task()
        part, holding, count = self._parts[started.part], started.holding, 0
        try:
            while True:
                rests = count % _TURN == _TURN - 1
                outcomes = await self._attempt(part, started, rests=rests)
                self._moment = self._now()
                # Else the handler itself has raised CancelledError, and has failed.
                is_cancelled = task.cancelling() > 0
                for item, error in self._schedule.ended(
                    started, outcomes, self._moment, is_cancelled=is_cancelled
                ):
                    part.tell(item, error, self._moment)
                lanes = self._schedule.lanes
                if outcomes or started.items[0].is_over:
                    part.note_late()
                if outcomes or lanes.eased or lanes.messages <= self._settings.queued_max // 2:
                    self._wake.set()
                part.done(holding, self._moment)
                found = None if is_cancelled else self._next()
                if found is None:
                    if self._unread:
                        self._wake.set()  # for room to be made
                    return
                if found.holding is not holding:
                    self._forget_task(part, task, holding)
                    part, holding = self._parts[found.part], found.holding
                    part.note_task(task, holding)
                started = found
                count += 1
        finally:
            self._forget_task(part, task, holding)

    def _forget_task(self, part: RunPart, task: asyncio.Task[None], holding: Holding) -> None:
        part.forget_task(task, holding)
        self._forget_part(part)

    def _forget_part(self, part: RunPart) -> None:
        if part.work.is_over and not part.tasks:
            self._parts.pop(part.work, None)

    async def _attempt(
        self, part: RunPart, started: _Started, *, rests: bool
    ) -> Mapping[_Item, BaseException]:
        """Returns the messages that are not done, each with the reason. `rests`: others have their
        turn on the loop before.
        """
        first = started.items[0]
        if first.is_over and first.error is not None:
            return await self._put_aside(part, started, {first: first.error})
        killed = self._schedule.killer(started)
        outcomes = {first: killed} if killed else await self._call(part, started, rests=rests)
        if not outcomes or self._settings.retry.then != "dead_letter":
            return outcomes
        return await self._put_aside(part, started, outcomes)

    async def _call(
        self, part: RunPart, started: _Started, *, rests: bool
    ) -> Mapping[_Item, BaseException]:
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
                    self._wake.set()  # for what had to wait as well
            timeout_s = self._settings.timeout_s
            deadline = None if timeout_s is None else self._loop.time() + timeout_s
            for item in items:
                given.append(part.given(item, deadline))
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

    async def _put_aside(
        self, part: RunPart, started: _Started, outcomes: Mapping[_Item, BaseException]
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
                item, started, error, self._now()
            ):
                stuck.add(item.lane)
                continue
            try:
                await part.put_aside(item, error)
            except (ClientError, InvalidInputError, TimeoutError, asyncio.CancelledError) as failed:
                left[item] = failed
                stuck.add(item.lane)
            else:
                del left[item]
        return left

    async def _rest(self) -> None:
        now = self._now()
        waits_for_room = self._unread and not self._schedule.is_draining
        settling = (holding.settle_by - CANCEL_S - now for holding in self._settling)
        left = [_SHED_S if waits_for_room else _LOOK_S, *(each for each in settling if each > 0.0)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(*left, max(0.0, self._schedule.wake_at(now) - now))):
                await self._wake.wait()


def _is_cancelled() -> bool:
    task: Any = asyncio.current_task()
    return bool(task.cancelling())
