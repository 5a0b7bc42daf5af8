"""`Schedule`: which messages to work on next, and what follows the end of an attempt. No I/O, no
clock, no tasks: the shell (`run`) calls the handlers, and the simulation does so in its own time.

A message is acknowledged when its handler returns. So the position has gaps, which are committed
with it (`_consumer.gaps`), and a message starts only if the map of them fits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.dead_letters import said
from anabranch.client._consumer.gaps import Gaps
from anabranch.client._consumer.holding import Holding, Phase
from anabranch.client._errors import HandlerError
from anabranch.client._stream.lanes import Item, Lanes
from anabranch.client._stream.retry import Again, ProcessEndedError, Reject, Retry
from anabranch.client._stream.settings import CANCEL_S, BatchSettings
from anabranch.client._stream.stats import BucketWork, Counts, WorkStats
from anabranch.client._stream.width import Width

_LETTER_AGAIN_S: Final = 1.0
_LETTERS_LOOK: Final = 1_000  # messages that count for `Retry.letters_max`

MessageT = TypeVar("MessageT")
Outcomes = Mapping[Item[MessageT], BaseException]


class _ComesAgain(Again):
    """A message of a call that failed by another one."""


class Started(NamedTuple, Generic[MessageT]):
    """Messages of one bucket that one call of a handler is to work on."""

    items: list[Item[MessageT]]
    holding: Holding


class Schedule(Generic[MessageT]):
    """The messages of a consumer that run or wait. `width`: handlers that may run at once.

    Times are seconds of one clock. `failure` is what ends the run, None while nothing does.
    """

    def __init__(
        self,
        core: ConsumerCore,
        retry: Retry,
        width: int,
        topic: str,
        batches: BatchSettings | None = None,
    ) -> None:
        self.lanes: Lanes[MessageT] = Lanes(self._may_start)
        self.width = Width(width)
        self.failure: BaseException | None = None
        self.is_draining = False
        self.counts = Counts()
        self.untold: set[Holding] = set()  # buckets of which something waits for a commit
        self._quiet_for: int | None = None  # the fetch for which others wait, to run nothing else
        self._named_by: Holding | None = None  # a bucket whose commit may name what has ended
        self._alone: Item[MessageT] | None = None  # the message beside which nothing runs
        self._gathering: set[int] = set()  # fetches for which a call waits that takes all keys
        self._core = core
        self._retry = retry
        self._topic = topic
        self._batches = batches
        self._late: set[Item[MessageT]] = set()  # messages that could not be put aside so far
        self._resumed: set[int] = set()  # fetches; what was on its way at a pause is read twice
        self._letters: deque[bool] = deque(maxlen=_LETTERS_LOOK)
        self._now = 0.0

    @property
    def letters_waiting(self) -> int:
        """The number of messages that could not be put aside so far."""
        return len(self._late)

    def stats(self, now: float, *, maps_refused: int) -> WorkStats:
        """Returns what runs and waits now, and the counts."""
        waiting = list(self.lanes.blocked())
        counts = self.counts
        return WorkStats(
            running=self.lanes.running,
            queued=self.lanes.messages,
            queued_bytes=self.lanes.bytes,
            keys=len(self.lanes),
            waiting=len(waiting),
            deepest_key=self.lanes.deepest,
            width=self.width.now,
            letters_waiting=self.letters_waiting,
            is_draining=self.is_draining,
            buckets=[
                self._bucket(number, holding, waiting, now)
                for number, holding in self._core.fetches.items()
            ],
            maps_refused=maps_refused,
            **{name: getattr(counts, name) for name in Counts.__slots__},
        )

    def _bucket(
        self, number: int, holding: Holding, waiting: Iterable[Item[MessageT]], now: float
    ) -> BucketWork:
        gaps, queued = holding.gaps, self.lanes.queued.get(number)
        since = [each.failed_at for each in waiting if each.number == number and each.failed_at]
        return BucketWork(
            *holding.place,
            running=0 if gaps is None else len(gaps.running),
            queued=0 if queued is None else queued.messages,
            queued_bytes=0 if queued is None else queued.bytes,
            gap_offsets=0 if gaps is None else gaps.span_end - gaps.watermark,
            gap_runs=0 if gaps is None else len(list(gaps.runs)),
            oldest_s=now - min(since, default=now),
        )

    # Reading.

    def served(self, number: int) -> tuple[Holding, Gaps] | None:
        """Returns the bucket of a fetch, None if it was taken away."""
        holding = self._core.fetches.get(number)
        gaps = None if holding is None else holding.work_apart()
        return None if holding is None or gaps is None else (holding, gaps)

    def taken(self, number: int, holding: Holding, gaps: Gaps, offset: int) -> int | None:
        """Notes that a fetch has read a message. Returns where its part of the bucket begins; None
        if there is nothing to do with it.
        """
        if offset < gaps.read_end and number in self._resumed:
            return None
        start = gaps.take(offset)
        if not gaps.is_known(offset):
            return start
        holding.skip(start, offset)
        self.counts.known += 1
        return None

    def resumed(self, number: int) -> int | None:
        """Notes that a fetch goes on after a pause. Returns the offset to read from, None if its
        bucket was taken away.
        """
        served = self.served(number)
        if served is None:
            return None
        self._resumed.add(number)
        return served[1].read_end

    def tend(self, now: float) -> list[int]:
        """Forgets buckets that were taken away, and wakes attempts whose time has come. Returns
        the numbers of fetches that are over.
        """
        self._now = now
        fetches = self._core.fetches
        over = [each for each in self.lanes.queued if each not in fetches]
        for number in over:
            self.lanes.drop(number)
            self._resumed.discard(number)
        if over:
            self._late = {item for item in self._late if not item.is_dropped}
        self.lanes.wake(now)
        return over

    def must_cancel(self, holding: Holding, now: float) -> bool:
        """Tells whether what runs of a bucket has to end now."""
        settles = holding.phase is Phase.SETTLING
        is_late = settles and now >= holding.settle_by - CANCEL_S
        return is_late or not self._core.is_held(holding, now)

    # Starting.

    def next(self, now: float) -> Started[MessageT] | None:
        """Returns what to work on now, which counts as begun; None if there is nothing."""
        if self.is_draining or self.failure is not None or self.lanes.running >= self.width.now:
            return None
        if self._alone is not None or self._names_somebody(now):
            return None
        self._now = now
        item = self.lanes.take(self._gathering)
        if item is None:
            return None
        holding = self._core.fetches[item.number]
        holding.work_begins(item.offset)
        started = Started([item], holding)
        if holding.gaps is not None and not holding.gaps.is_free:
            self._alone = item
        elif self._batches is not None:
            self.join(started, now)
            if self._batches.of == "bucket" and self.wait_s(started):
                self._gathering.add(item.number)
        return started

    def wait_s(self, started: Started[MessageT]) -> float:
        """Returns the seconds for which what begins is to wait for more messages, before `join`."""
        batches, first = self._batches, started.items[0]
        if batches is None or first.is_over or self.is_draining or self._alone is not None:
            return 0.0
        is_full = len(started.items) >= min(batches.batch_max, first.batch_max)
        return 0.0 if is_full else batches.wait_s

    def join(self, started: Started[MessageT], now: float) -> None:
        """Adds to what begins the messages that are there and may go with it."""
        self._now = now
        batches, items = self._batches, started.items
        self._gathering.discard(items[0].number)
        if batches is None or items[0].is_over or self.is_draining or self._alone is not None:
            return
        heads, others = self.lanes.heads(items), batches.of == "bucket"
        most = min(batches.batch_max, *(each.batch_max for each in items))
        while len(items) < most and (item := self.lanes.join(items, heads, others=others)):
            started.holding.work_begins(item.offset)
            items.append(item)
            most = min(most, item.batch_max)

    def _may_start(self, item: Item[MessageT]) -> bool:
        holding = self._core.may_deliver(item.number, self._now)
        gaps = None if holding is None else holding.gaps
        if holding is None or gaps is None or not gaps.admits(item.start, item.offset):
            return False
        if gaps.is_free and self._quiet_for is None:
            return True
        if gaps.lives.is_careful:
            if self._quiet_for != item.number and self._is_quiet():
                return False
            self._quiet_for = item.number
            if self.lanes.running:
                return False
        elif self._is_quiet():
            return False
        is_told = gaps.is_told(item.offset)
        if not is_told:
            self.untold.add(holding)
        return is_told

    def _names_somebody(self, now: float) -> bool:
        """Tells whether a commit still names a message that has ended: nothing may begin, since its
        end of the process would be taken for that one's.
        """
        bucket = self._named_by
        if bucket is None:
            return False
        if bucket.gaps is not None and bucket.gaps.waits and self._core.is_held(bucket, now):
            self.untold.add(bucket)
            return True
        self._named_by = None
        return False

    def _is_quiet(self) -> bool:
        """Tells whether others wait for a bucket whose owner is careful (`lives`)."""
        if self._quiet_for is None:
            return False
        found, queued = self.served(self._quiet_for), self.lanes.queued.get(self._quiet_for)
        is_careful = found is not None and found[1].lives.is_careful
        if is_careful and queued is not None and queued.ready:
            return True
        self._quiet_for = None
        return False

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
                    found[item] = _ComesAgain(0.0)
            return found
        is_ours = is_cancelled and isinstance(error, asyncio.CancelledError)
        if len(items) == 1 or is_ours or isinstance(error, Again):
            return dict.fromkeys(items, error)
        for item in items:
            item.batch_max = len(items) // 2
        self.width.failed(items[0].lane.key, now)
        return dict.fromkeys(items, _ComesAgain(self._retry.delay_s.first))

    def goes_aside(
        self, item: Item[MessageT], holding: Holding, error: BaseException, now: float
    ) -> bool:
        """Tells whether a message that failed so is to be put aside: then no handler gets it again.

        More letters than `Retry.letters_max` end the run instead.
        """
        if self._retry.then != "dead_letter" or not self._is_last(item, error):
            return False
        if not self._core.is_held(holding, now):
            return False  # the next owner works on it
        self._note_failure(item, error, now)
        self._letters.append(True)
        letters = sum(self._letters)
        if letters > self._retry.letters_max:
            self._fail(
                item,
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
            if error is None:
                self._done(item, started.holding)
            elif self._is_kept(item, started.holding):
                if is_cancelled and isinstance(error, asyncio.CancelledError):
                    self.lanes.again(item, now)
                elif self._waits_for_good(item, started.holding, error):
                    blocked.append((item, error))
        if self._alone is started.items[0]:
            self._alone = self._quiet_for = None
            self._named_by = started.holding
            gaps, queued = started.holding.gaps, self.lanes.queued.get(started.items[0].number)
            if gaps is not None:
                is_all = queued is None or not queued.ready
                if gaps.lives.is_careful and not is_cancelled:
                    gaps.lives.passed(self.width.most, is_all=is_all)
                gaps.name_nobody()
        return blocked

    def _done(self, item: Item[MessageT], holding: Holding) -> None:
        self._core.finish(holding, item.start, item.offset, self._now)
        self.lanes.done(item)
        if item.is_over:
            self._late.discard(item)
            self.counts.put_aside += 1
            return
        self.counts.done += 1
        self.width.succeeded()
        if self._retry.then == "dead_letter":
            self._letters.append(False)

    def _is_kept(self, item: Item[MessageT], holding: Holding) -> bool:
        """Tells whether a message that is not done waits here. Else it is read again, here or by
        whoever has the bucket then.
        """
        self._core.give_up_work(holding, item.offset, self._now)
        fetch, gaps = holding.fetch, holding.gaps
        is_over = self.is_draining or self.failure is not None
        if is_over or fetch is None or gaps is None or item.offset >= gaps.read_end:
            self._late.discard(item)
            self.lanes.done(item)
            return False
        item.number = fetch.number  # the bucket may have gone, and come back
        return True

    def _waits_for_good(self, item: Item[MessageT], holding: Holding, error: BaseException) -> bool:
        """Plans the next attempt. Returns True if it was the last one that counts."""
        delays = self._retry.delay_s
        if item.is_over:
            self._late.add(item)
            self.lanes.again(item, self._now + _LETTER_AGAIN_S)
            return True
        if isinstance(error, Again):
            self.counts.again += not isinstance(error, _ComesAgain)
            item.error = error
            self.lanes.again(item, self._now + error.delay_s)
            return False
        is_last = self._is_last(item, error)
        self._note_failure(item, error, self._now)
        if is_last and self._retry.then == "stop":
            self.lanes.done(item)
            self._fail(item, holding, f"the handler failed {item.failures} times with")
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

    def _fail(self, item: Item[MessageT], holding: Holding, why: str) -> None:
        if self.failure is None:
            last = "" if item.error is None else said(item.error)
            self.failure = HandlerError(
                f"{why} {holding.place} @{item.offset} of {self._topic}, the last time with {last}"
            )
            self.failure.__cause__ = item.error
