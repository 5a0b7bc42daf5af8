"""`RunPart`: what a run knows and does of one topic's consumer."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, Self

from confluent_kafka import Message as KafkaMessage

from anabranch.client._consumer.dead_letters import said
from anabranch.client._consumer.holding import Holding, Phase
from anabranch.client._consumer.messages import Batch, Message, Source
from anabranch.client._consumer.reading import Reading
from anabranch.client._consumer.running import cancelled
from anabranch.client._stream.intake import HeldBack, Resumed, TopicWork
from anabranch.client._stream.lanes import Item
from anabranch.client._stream.letters import Letters
from anabranch.client._stream.stats import Counts
from anabranch.client._stream.work import Work
from anabranch.core.log_rate_limit import LogRateLimit
from anabranch.wire.logging import EventLog

_TELL_S: Final = 60.0

Raw = tuple[KafkaMessage, Source]


class Whole(Protocol):
    """The run of which a part is."""

    @property
    def counts(self) -> Counts: ...
    def spend(self, map_bytes: int) -> float: ...
    def leave(self, part: RunPart) -> None: ...


class BlockedKey(NamedTuple):
    """A message that failed, and for which its key waits. Keys appear here only, never in logs.

    `is_sealed`: its segment is, so that all keys of the children wait for this one, too.
    """

    key: Any
    topic: str
    segment_id: int
    bucket: int
    offset: int
    failures: int
    error: str
    is_sealed: bool

    @classmethod
    def of(cls, item: Item[Raw]) -> Self:
        """Tells of a message that waits."""
        raw, source = item.message
        holding, error = source.holding, item.error
        return cls(
            raw.key(),
            source.topic,
            *holding.place,
            offset=item.offset,
            failures=item.failures,
            error="" if error is None else said(error),
            is_sealed=holding.end_offset is not None,
        )


class RunPart:
    """One topic's consumer in a run.

    `done` tells it that something of a bucket is done or given up. `check` raises what ends it.
    """

    def __init__(
        self,
        work: TopicWork,
        run: Whole,
        reading: Reading,
        letters: Letters,
        logger: EventLog,
        done: Callable[[Holding, float], None],
        check: Callable[[], None],
    ) -> None:
        self.work = work
        self.letters = letters
        self.logger = logger
        self.done = done
        self.check = check
        self.tasks: dict[Holding, set[asyncio.Task[None]]] = {}  # what runs, by bucket
        self.is_unread = False  # it may have something to take
        self._run = run
        self._reading = reading
        self._told = LogRateLimit(_TELL_S)

    # Reading.

    def take(self, ahead: int) -> Batch | None:
        """Returns what was read next, None if there is nothing. So many messages more may wait."""
        plane = self._reading.plane
        if plane is None:
            return None
        plane.waiting_max = ahead
        return self._reading.take()

    def stop(self, stopped: HeldBack) -> None:
        """Stops to read a bucket."""
        self._reading.stop(stopped.former, stopped.holding)

    def resume(self, resumed: Resumed) -> None:
        """Goes on to read a bucket."""
        self._reading.resume(resumed.fetch)

    # What runs.

    @property
    def counts(self) -> Counts:
        """Counts of the whole run."""
        return self._run.counts

    def spend(self, map_bytes: int) -> float:
        """Returns the time before which no commit is to follow one with so many bytes of maps."""
        return self._run.spend(map_bytes)

    async def cancel(self) -> None:
        """Leaves the run: cancels what runs of it, and waits a moment for that."""
        self._run.leave(self)
        self.counts.left_behind += await cancelled(self.running, self.logger)

    @property
    def running(self) -> list[asyncio.Task[None]]:
        """The calls of handlers."""
        return [task for tasks in self.tasks.values() for task in tasks]

    @property
    def settling(self) -> list[Holding]:
        """The buckets that are to be given up once nothing of them runs."""
        return [each for each in self.tasks if each.phase is Phase.SETTLING]

    def note_task(self, task: asyncio.Task[None], holding: Holding) -> None:
        """Notes that a call works on a bucket."""
        self.tasks.setdefault(holding, set()).add(task)

    def forget_task(self, task: asyncio.Task[None], holding: Holding) -> None:
        """Notes that it does so no more."""
        tasks = self.tasks[holding]
        tasks.discard(task)
        if not tasks:
            del self.tasks[holding]

    def note_late(self) -> None:
        """Has the consumer tell how many messages could not be put aside so far."""
        self.work.core.dead_letters_waiting = len(self.work.late)

    # Messages.

    def given(self, item: Item[Raw], deadline: float | None) -> tuple[Message, Work]:
        """Returns what a handler gets."""
        message, assignment = Message(*item.message), self.work.core.assignment
        incarnation = 0 if assignment is None else assignment.incarnation
        return message, Work(message, incarnation, item.failures + 1, deadline)

    async def put_aside(self, item: Item[Raw], error: BaseException) -> None:
        """Sends a message to the dead letters. Raises the errors of `Letters.put`."""
        letter = await self.letters.put(Message(*item.message), item.failures, error)
        self.logger.info("handler.dead_letter", **letter.fields())

    def tell(self, item: Item[Raw], error: BaseException, now: float) -> None:
        """Says that a key waits, now and then."""
        raw, source = item.message
        key: Any = raw.key()
        if self._told.due((source.holding.place, item.offset), now):
            self.logger.warning(
                "consumer.dead_letter_failed" if item.is_over else "handler.key_blocked",
                segment=source.holding.place.segment_id,
                bucket=source.holding.place.bucket,
                offset=item.offset,
                key_crc32=None if key is None else zlib.crc32(key),
                failures=item.failures,
                sealed=source.holding.end_offset is not None,
                why=said(error),
            )

    def tell_blocked(self, now: float) -> None:
        """Says for how many keys the drain of a sealed bucket waits, now and then."""
        for holding, keys in self.work.sealed.blocked.items():
            if self._told.due(holding.place, now):
                segment, bucket = holding.place
                self.logger.warning(
                    "consumer.drain_blocked", segment=segment, bucket=bucket, keys=keys
                )

    def tell_key_of(self, error: Exception, now: float) -> None:
        """Says that `key_of` has failed, now and then."""
        if self._told.due("key_of", now):
            self.logger.warning("handler.key_of_failed", why=type(error).__name__)
