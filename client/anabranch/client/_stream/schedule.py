"""`Schedule`: which messages to work on next, and what follows the end of an attempt. No I/O, no
clock, no tasks: the shell (`run`) calls the handlers, and the simulation does so in its own time.

A message is acknowledged when its handler returns. So the position has gaps, which are committed
with it (`_consumer.gaps`), and a message starts only if the map of them fits.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from anabranch.client._consumer.dead_letters import said
from anabranch.client._consumer.gaps import Gaps
from anabranch.client._consumer.holding import Holding, Phase
from anabranch.client._consumer.running import LEFT_S
from anabranch.client._errors import HandlerError
from anabranch.client._stream.intake import HeldBack, Intake, TopicWork
from anabranch.client._stream.lanes import Item, Lanes
from anabranch.client._stream.retry import Again, ComesAgain, ProcessEndedError, Reject
from anabranch.client._stream.settings import CANCEL_S, BatchSettings, RunSettings
from anabranch.client._stream.stats import Counts, WorkStats, bucket_work
from anabranch.client._stream.suspects import Owned, Suspects
from anabranch.client._stream.width import Width

_LETTER_AGAIN_S: Final = 1.0
_LETTERS_LOOK: Final = 1_000  # messages that count for `Retry.letters_max`

MessageT = TypeVar("MessageT")
Outcomes = Mapping[Item[MessageT], BaseException]


class Started(NamedTuple, Generic[MessageT]):
    """Messages of one bucket that one call of a handler is to work on."""

    items: list[Item[MessageT]]
    holding: Holding
    part: TopicWork


class Schedule(Generic[MessageT]):
    """The messages of a run that run or wait, of one topic or many. `width`: handlers that may run
    at once.

    Times are seconds of one clock. `failure` is what ends the run, None while nothing does.
    """

    def __init__(self, settings: RunSettings, batches: BatchSettings | None = None) -> None:
        self.lanes: Lanes[MessageT] = Lanes(self._may_start)
        self.intake = Intake(self.lanes, settings)
        self.width = Width(settings.concurrency)
        self.failure: BaseException | None = None
        self.counts = Counts()
        self.suspects = Suspects(self.lanes)
        self._gathering: set[Holding] = set()  # for which a call waits that takes all keys
        self._retry = settings.retry
        self._batches = batches
        self._letters: deque[bool] = deque(maxlen=_LETTERS_LOOK)
        self._stops_by: float | None = None  # then what runs is cancelled
        self._now = 0.0

    # Its end.

    @property
    def is_draining(self) -> bool:
        """Tells whether nothing more is to start."""
        return self._stops_by is not None

    def stop(self, by: float) -> None:
        """Starts nothing more. What runs has until then, and is cancelled."""
        self._stops_by = by if self._stops_by is None else min(by, self._stops_by)

    def fail(self, error: BaseException, now: float) -> None:
        """Notes what ends the run."""
        self.failure = self.failure or error
        self.stop(now)

    def must_end(self, now: float) -> bool:
        """Tells whether all that runs is to be cancelled."""
        return self._stops_by is not None and now >= self._stops_by

    def has_ended(self, now: float) -> bool:
        """Tells whether the run is over: nothing runs, but what is left behind since it does not
        end when it is cancelled.
        """
        if self._stops_by is None:
            return False
        return not self.lanes.running or now >= self._stops_by + LEFT_S

    def wake_at(self, now: float) -> float:
        """Returns the time at which an attempt is due, or the end; infinite for none."""
        if self._stops_by is None:
            at = self.lanes.wake_at()
            return math.inf if at is None else at
        return self._stops_by if now < self._stops_by else self._stops_by + LEFT_S

    # Numbers.

    @property
    def letters_waiting(self) -> int:
        """The number of messages that could not be put aside so far."""
        return sum(len(part.late) for part in self.intake.parts)

    def stats(self, now: float) -> WorkStats:
        """Returns what runs and waits now, and the counts."""
        oldest: dict[int, float] = {}  # since when a bucket's oldest failed message waits
        waiting = 0
        for item in self.lanes.blocked():
            waiting += 1
            if item.failed_at:
                oldest[item.number] = min(item.failed_at, oldest.get(item.number, now))
        counts = self.counts
        return WorkStats(
            running=self.lanes.running,
            queued=self.lanes.messages,
            queued_bytes=self.lanes.bytes,
            keys=len(self.lanes),
            waiting=waiting,
            deepest_key=self.lanes.deepest,
            width=self.width.now,
            letters_waiting=self.letters_waiting,
            is_draining=self.is_draining,
            buckets=[
                bucket_work(
                    part.topic,
                    holding,
                    self.lanes.queued.get(number),
                    now - oldest.get(number, now),
                    part.sealed.keys.get(number, 0),
                )
                for part in self.intake.parts
                for number, holding in part.core.fetches.items()
            ],
            **{name: getattr(counts, name) for name in Counts.__slots__},
        )

    # Reading.

    def taken(self, holding: Holding, gaps: Gaps, offset: int) -> int | None:
        """Notes that a message was read. Returns where its part of the bucket begins; None if there
        is nothing to do with it.
        """
        start = gaps.take(offset)
        if not gaps.is_known(offset):
            return start
        holding.skip(start, offset)
        self.counts.known += 1
        return None

    def sheds(self) -> Iterator[HeldBack]:
        """Makes room, if slots are free and all that is queued has to wait."""
        if self.lanes.running < self.width.now and self.suspects.are_none:
            yield from self.intake.sheds()

    def tend(self, part: TopicWork, now: float) -> None:
        """Notes that a topic's consumer has changed, or that some time has gone."""
        self._now = now
        self.intake.tend(part)
        fetches = {} if part.is_over else part.core.fetches
        for item in part.sealed.look(fetches, self.lanes, part.at_work, now):
            self._put_over(item, part, fetches[item.number])
            self.lanes.hasten(item.lane, now)

    def wake(self, now: float) -> None:
        """Wakes attempts whose time has come."""
        self._now = now
        self.lanes.wake(now)

    def must_cancel(self, part: TopicWork, holding: Holding, now: float) -> bool:
        """Tells whether what runs of a bucket has to end now."""
        if self.must_end(now):
            return True
        settles = holding.phase is Phase.SETTLING
        is_late = settles and now >= holding.settle_by - CANCEL_S
        return is_late or not part.core.is_held(holding, now)

    # Starting.

    def next(self, now: float) -> Started[MessageT] | None:
        """Returns what to work on now, which counts as begun; None if there is nothing."""
        if self.is_draining or self.lanes.running >= self.width.now:
            return None
        self._now = now
        if not self.suspects.let_begin(now):
            return None
        item = self.lanes.take()
        if item is None:
            return None
        part = self.intake.part_of(self.lanes.queued[item.number])
        holding = part.core.fetches[item.number]
        holding.work_begins(item.offset)
        part.at_work[item] = holding
        started = Started([item], holding, part)
        if holding.gaps is not None:
            self.suspects.begin(item, holding.gaps)
        if self._batches is not None and not self.suspects.is_alone:
            self.join(started, now)
            if self._batches.of == "bucket" and self.wait_s(started):
                self._gathering.add(holding)
        return started

    def wait_s(self, started: Started[MessageT]) -> float:
        """Returns the seconds for which what begins is to wait for more messages, before `join`."""
        batches, first = self._batches, started.items[0]
        if batches is None or first.is_over or self.is_draining or self.suspects.is_alone:
            return 0.0
        is_full = len(started.items) >= min(batches.batch_max, first.batch_max)
        return 0.0 if is_full else batches.wait_s

    def join(self, started: Started[MessageT], now: float) -> None:
        """Adds to what begins the messages that are there and may go with it."""
        self._now = now
        batches, items, fetch = self._batches, started.items, started.holding.fetch
        self._gathering.discard(started.holding)
        if batches is None or fetch is None or items[0].is_over:
            return
        self.lanes.look_again((fetch.number,))
        if self.is_draining or self.suspects.is_alone:
            return
        items[0].number = fetch.number  # its bucket may have stopped being read meanwhile
        heads, others = self.lanes.heads(items), batches.of == "bucket"
        most = min(batches.batch_max, *(each.batch_max for each in items))
        while len(items) < most and (item := self.lanes.join(items, heads, others=others)):
            started.holding.work_begins(item.offset)
            started.part.at_work[item] = started.holding
            items.append(item)
            most = min(most, item.batch_max)

    def _may_start(self, item: Item[MessageT]) -> bool:
        part = self.intake.part_of(self.lanes.queued[item.number])
        holding = part.core.may_deliver(item.number, self._now)
        gaps = None if holding is None else holding.gaps
        if holding is None or gaps is None or not gaps.admits(item.start, item.offset):
            return False
        if holding in self._gathering:
            return False
        return self.suspects.admit(part, holding, gaps, item.offset)

    def killer(self, started: Started[MessageT]) -> BaseException | None:
        """Returns the error of a message with which a process has ended, which counts as its last
        attempt. None: it is none, or this was told before.
        """
        item, gaps = started.items[0], started.holding.gaps
        if gaps is None or gaps.is_free or gaps.lives.killer != item.offset:
            return None
        gaps.lives.killer = None
        item.failures = max(item.failures, self._retry.attempts_max - 1)
        return ProcessEndedError("the processes that worked on it have ended before it was done")

    # Ending.

    def outcomes(
        self,
        started: Started[MessageT],
        error: BaseException,
        named: Outcomes[MessageT],
        now: float,
        *,
        is_cancelled: bool,
    ) -> dict[Item[MessageT], BaseException]:
        """Returns the messages that are not done after this error of a handler, each with the
        reason.

        Where the error names messages, what follows each one's key in the call is not done either.
        Any other error of several messages says nothing of one of them: they come again in halves.
        """
        items = started.items
        if named:
            found: dict[Item[MessageT], BaseException] = {}
            behind = set()
            for item in items:
                if item in named:
                    found[item] = named[item]
                    behind.add(item.lane)
                elif item.lane in behind:
                    found[item] = ComesAgain(0.0)
            return found
        is_ours = is_cancelled and isinstance(error, asyncio.CancelledError)
        if len(items) == 1 or is_ours or isinstance(error, Again):
            return dict.fromkeys(items, error)
        for item in items:
            item.batch_max = len(items) // 2
        self.width.failed(items[0].lane.key, now)
        return dict.fromkeys(items, ComesAgain(self._retry.delay_s.first))

    def goes_aside(
        self, item: Item[MessageT], started: Started[MessageT], error: BaseException, now: float
    ) -> bool:
        """Tells whether a message that failed so is to be put aside: then no handler gets it again.

        More letters than `Retry.letters_max` end the run instead.
        """
        if self._retry.then != "dead_letter" or not self._is_last(item, error):
            return False
        holding = started.holding
        if started.part.is_over or not started.part.core.is_held(holding, now):
            return False  # the next owner works on it
        self._note_failure(item, error, now)
        return self._put_over(item, started.part, holding)

    def _put_over(self, item: Item[MessageT], part: TopicWork, holding: Holding) -> bool:
        """Notes that no handler gets a message again. Returns False if that ends the run."""
        self._letters.append(True)
        letters = sum(self._letters)
        if letters > self._retry.letters_max:
            self._fail(
                item,
                part,
                holding,
                f"{letters} of the last {len(self._letters)} messages were to be put aside, more "
                "than letters_max, so that the handler is at fault rather; the last one was",
            )
            return False
        item.is_over = True
        return True

    def ended(
        self,
        started: Started[MessageT],
        outcomes: Outcomes[MessageT],
        now: float,
        *,
        is_cancelled: bool,
    ) -> list[tuple[Item[MessageT], BaseException]]:
        """Notes the end of an attempt. Returns the messages for which their keys wait from now on,
        each with the reason.

        `outcomes` has the messages that are not done, each with the reason. `is_cancelled`: by us,
        so that CancelledError is no failure.
        """
        self._now = now
        self.lanes.running -= 1
        self.counts.cancelled += is_cancelled
        blocked = []
        for item in reversed(started.items):  # so that a key's are put back in order
            error = outcomes.get(item)
            started.part.at_work.pop(item, None)
            if error is None:
                self._done(item, started)
            elif self._is_kept(item, started):
                if is_cancelled and isinstance(error, asyncio.CancelledError):
                    self.lanes.again(item, now)
                elif self._waits_for_good(item, started, error):
                    blocked.append((item, error))
        bucket = Owned(started.part, started.holding)
        if bucket.holding.fetch is not None:
            self.lanes.look_again((bucket.holding.fetch.number,))
        self.suspects.end(started.items[0], bucket, self.width.most, is_cancelled=is_cancelled)
        return blocked

    def _done(self, item: Item[MessageT], started: Started[MessageT]) -> None:
        started.part.core.finish(started.holding, item.start, item.offset, self._now)
        self.lanes.done(item)
        if item.is_over:
            started.part.late.discard(item)
            self.counts.put_aside += 1
            return
        self.counts.done += 1
        self.width.succeeded()
        if self._retry.then == "dead_letter":
            self._letters.append(False)

    def _is_kept(self, item: Item[MessageT], started: Started[MessageT]) -> bool:
        """Tells whether a message that is not done waits here. Else it is read again, here or by
        whoever has the bucket then.
        """
        part, holding = started.part, started.holding
        part.core.give_up_work(holding, item.offset, self._now)
        fetch, gaps = holding.fetch, holding.gaps
        is_over = self.is_draining or part.is_over
        if is_over or fetch is None or gaps is None or item.offset >= gaps.read_end:
            part.late.discard(item)
            self.lanes.done(item)
            return False
        item.number = fetch.number  # the bucket may have gone, and come back
        self.intake.open(part, fetch.number)
        return True

    def _waits_for_good(
        self, item: Item[MessageT], started: Started[MessageT], error: BaseException
    ) -> bool:
        """Plans the next attempt. Returns True if it was the last one that counts."""
        delays = self._retry.delay_s
        if item.is_over:
            started.part.late.add(item)
            self.lanes.again(item, self._now + _LETTER_AGAIN_S)
            return True
        started.part.sealed.look_soon()
        if isinstance(error, Again):
            self.counts.again += not isinstance(error, ComesAgain)
            item.error = error
            self.lanes.again(item, self._now + error.delay_s)
            return False
        is_last = self._is_last(item, error)
        self._note_failure(item, error, self._now)
        if is_last and self._retry.then == "stop":
            self.lanes.done(item)
            why = f"the handler failed {item.failures} times with"
            self._fail(item, started.part, started.holding, why)
            return False
        self.lanes.again(
            item, self._now + (delays.most if is_last else delays.delay_s(item.failures))
        )
        return is_last

    def _is_last(self, item: Item[MessageT], error: BaseException) -> bool:
        if isinstance(error, Again):
            return False
        return isinstance(error, Reject) or item.failures + 1 >= self._retry.attempts_max

    def _note_failure(self, item: Item[MessageT], error: BaseException, now: float) -> None:
        item.failures += 1
        item.error = error
        item.failed_at = item.failed_at or now
        self.counts.failed += 1
        self.counts.timed_out += isinstance(error, TimeoutError)
        self.width.failed(item.lane.key, now)

    def _fail(self, item: Item[MessageT], part: TopicWork, holding: Holding, why: str) -> None:
        last = "" if item.error is None else said(item.error)
        error = HandlerError(
            f"{why} {holding.place} @{item.offset} of {part.topic}, the last time with {last}"
        )
        error.__cause__ = item.error
        self.fail(error, self._now)
