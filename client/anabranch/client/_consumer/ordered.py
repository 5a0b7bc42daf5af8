"""`OrderedConsumer`, the base of consumers that receive each bucket's messages in order.

One task drives. It compares the state of `ConsumerCore` with the reads and commits, and acts on the
difference, after every event and at every change by time alone. The application takes batches on
the same event loop. Each taking, acknowledgement and commit asks the core at that very moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from abc import abstractmethod
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Final, Self

from confluent_kafka import KafkaException

from anabranch.client._consumer.assignment import Fetch
from anabranch.client._consumer.consumer import LEAVE_S_MAX, Consumer, Membership
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.holding import Holding, Loss
from anabranch.client._consumer.messages import (
    Batch,
    Lost,
    Message,
    while_held,
)
from anabranch.client._consumer.reading import Reading
from anabranch.client._consumer.resources import Offsets
from anabranch.client._consumer.session import warn_if_blocked
from anabranch.client._errors import DeadlineError
from anabranch.client._settings import ConsumerSettings
from anabranch.client._topics.layout import TopicLayout
from anabranch.core.errors import InvalidInputError

RETRY_S: Final = 0.2
_MESSAGES_MAX: Final = 1_000  # at 3 ms each the session is in no danger
# The loop has its turn after so many messages at the latest: a backlog that is taken without a
# pause would keep the session and the commits waiting.
_TURN: Final = 200


class OrderedConsumer(Consumer[Message]):
    """One consumer of an ordered subscription, on one event loop. `Client` makes it.

    Use it as an asynchronous context manager, or call `close`.
    """

    _skips_gone: bool

    def __init__(self, membership: Membership, settings: ConsumerSettings) -> None:
        resources = membership.resources
        core = ConsumerCore(settings.settle_s, resources.numbers(), resources.keep_alives)
        super().__init__(membership, core, settings.start_ms, settings.dead_letter)
        self._settings = settings
        self._look_s = resources.look_s
        self._reading = Reading(
            self._core,
            self._positions,
            settings,
            self._watch,
            self._kafka,
            self._tasks,
            resources,
            self._readable.set,
            self._changed,
            is_held=lambda holding: self._core.is_held(holding, self._now()),
            skips_gone=self._skips_gone,
            subscription=self.subscription,
        )
        self._commit_at = 0.0
        self._commits_rest = False  # True: no look if one is due until something is there
        self._commit_again_at = self._now() + settings.commit_again_s
        self._current: Batch | None = None  # taken and not given out whole
        self._given = 0  # the part of it that was given out

    # For the application.

    async def start(self) -> Self:
        """Subscribes. Raises the errors of `ConsumerSession.start`, such as ConsumerBusyError."""
        await self._subscribe(self._settings.subscribe_timeout_s)
        self._tasks.spawn(self._drive())
        self._watch.listeners.append(self._layout_changed)
        return self

    async def receive(self, timeout_s: float | None = None) -> Message:
        """Returns the next message. Raises DeadlineError, ClosedError, or its own failure."""
        while True:
            if self._given % _TURN == 0:
                await asyncio.sleep(0)
            batch = await self._batch(timeout_s)
            if self._given >= len(batch):
                continue  # an empty one
            # No waiting from here on: several may be receiving at once.
            message = batch[self._given]
            self._given += 1
            holding = self._core.may_deliver(message.source.number, self._now())
            if holding is not None:
                holding.deliver(message.offset + 1)
                return message

    async def receive_many(
        self, messages_max: int = _MESSAGES_MAX, timeout_s: float | None = None
    ) -> Batch:
        """Returns the messages that are there, at least one. Raises the errors of `receive`."""
        if messages_max < 1:
            raise InvalidInputError(f"messages_max must be at least 1: {messages_max}")
        while True:
            batch = await self._batch(timeout_s)
            given = self._deliver(batch, messages_max)
            if given:
                return given

    def poll(self, messages_max: int) -> Batch | None:
        """Returns the messages that are there, or None. Raises the errors of `receive`."""
        while (batch := self._taken()) is not None:
            given = self._deliver(batch, messages_max)
            if given:
                return given
        return None

    def _deliver(self, batch: Batch, messages_max: int) -> Batch:
        """Returns the next messages of the current batch that may still be delivered."""
        if self._given or len(batch) > messages_max:
            batch = batch[self._given : self._given + messages_max]
        self._given += len(batch)
        now = self._now()
        held = {n: self._core.may_deliver(n, now) for n in batch.ends}
        if None in held.values():
            batch = batch.only({n for n, holding in held.items() if holding is not None})
        for number, end in batch.ends.items():
            holding = held[number]
            if holding is not None:
                holding.deliver(end)
        return batch

    def while_held(self, received: Message | Batch) -> AbstractAsyncContextManager[None]:
        """Returns a context for `async with`, whose body is cancelled if a bucket of `received` is
        taken away.

        That happens before another consumer can have the bucket. It raises BucketLostError in place
        of the cancellation.
        """
        self._home.check()
        return while_held(received)

    def take_lost(self) -> list[Lost]:
        """Returns the buckets that were taken away with unacknowledged messages, each once."""
        return [Lost.of(self.topic, holding) for holding in self._core.take_losses()]

    @property
    def in_flight(self) -> bool:
        """True if a received message can be acknowledged and is not."""
        return any(h.is_held and h.in_flight for h in self._core.holdings.values())

    @property
    def buckets(self) -> list[tuple[int, int]]:
        """Segment ids with bucket numbers of everything that it serves, sorted."""
        return sorted(h.place for h in list(self._core.fetches.values()))  # maybe on another thread

    async def _close(self) -> None:
        """Commits all acknowledgements and leaves. Another consumer gets the share at once.

        Raises DeadlineError if Kafka took not all commits. Then the share stays this consumer's
        until its session is over, and uncommitted messages are delivered again.
        """
        self._core.close(self._now())
        self._changed()
        self._stop_listening()
        try:
            left = await self._settle_and_leave()
        finally:
            self._session.stop()  # if the wait was cancelled
            await self._tasks.cancel()
            await self._reading.close()
            await self._watch.close()
            self._core.give_up(Loss.CLOSED)
        if not left and self._failure is None:
            raise DeadlineError(
                f"Kafka did not take the last commits of {self.consumer_name} of {self.topic} in "
                f"{LEAVE_S_MAX:g} s: what they acknowledge may be delivered again"
                f"{self._reading.trouble.last}"
            )

    async def _settle_and_leave(self) -> bool:
        """Returns True if everything that was acknowledged is committed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S_MAX):
                while not self._core.holds_nothing and self._failure is None:
                    self._readable.clear()
                    await self._readable.wait()
        left = self._core.holds_nothing
        if not left:
            self._session.stop()  # a commit may be under way yet: nobody is to start before it
        await self._leave()
        return left

    # The differences between kinds of consumers.

    @abstractmethod
    async def _positions(self, group: Offsets, fetches: list[Fetch]) -> dict[int, int]:
        """Returns the offsets to start at, by fetch number. May raise KafkaException."""

    @abstractmethod
    async def _commit(self, group: Offsets, offsets: list[tuple[Holding, int]]) -> None:
        """Commits, and tells the core. May raise KafkaException."""

    # Acknowledging.

    def note_acknowledged(self, ends: Iterable[tuple[Holding, int]]) -> list[Lost]:
        """Notes that everything below these ends is done with. Returns the lost buckets."""
        now = self._now()
        lost = []
        for holding, end in ends:
            if not self._core.acknowledge(holding, end, now):
                lost.append(Lost.of(self.topic, holding))
            self._note_done(holding, now)
        return lost

    def _note_done(self, holding: Holding, now: float) -> None:
        """Has a commit begin, or a release reported, if what was done of a bucket makes it due."""
        if holding.is_held:
            if self._is_committing:
                return
            if not (self._commits_rest or self._core.commit_urgent(now, (holding,))):
                return
        self._commits_rest = False
        self._poke.set()

    # Taking.

    async def _batch(self, timeout_s: float | None) -> Batch:
        """Returns the current batch, part of which is not given out yet."""
        if asyncio._get_running_loop() is not self._home.loop:
            self._home.check()
        if self._current is not None and self._given < len(self._current):
            return self._current
        await asyncio.sleep(0)  # once: after a wait, it would only delay what has come
        batch = self._taken()  # also when there is no time to wait
        try:
            async with asyncio.timeout(None if batch is not None else timeout_s):
                while batch is None:
                    await self._readable.wait()
                    batch = self._taken()
        except TimeoutError:
            raise DeadlineError(
                f"no message of {self.topic} came in {timeout_s:g} s{self._reading.trouble.last}"
            ) from None
        return batch

    def _taken(self) -> Batch | None:
        """Returns the current batch or else the next one. Raises the errors of `receive`."""
        if self._current is None or self._given >= len(self._current):
            self._check()
            self._readable.clear()
            batch = self._reading.take()
            if batch is None:
                return None
            self._current, self._given = batch, 0
        return self._current

    @property
    def _read_failure(self) -> BaseException | None:
        return self._reading.trouble.failure

    # Driving.

    def _layout_changed(self, layout: TopicLayout) -> None:
        self._reading.warm(layout)
        if layout.deleted:
            self._changed()

    async def _drive(self) -> None:
        lapses = 0
        while True:
            self._poke.clear()
            now = self._now()
            if self._reading.trouble.failure is not None:
                raise self._reading.trouble.failure
            self._core.tick(now)
            if self._core.lapses > lapses:  # another caller of the core may have found it
                lapses = self._core.lapses
                self._logger.warning("consumer.session_lapsed")
                self._readable.set()
            self._reading.reconcile(now)
            commit_at = self._commit_if_due(now)
            if self._core.report_due(now) or self._core.needs_subscribe:
                self._session.poke()
            if self._is_closing:
                self._readable.set()
            now = self._now()
            wake_at = min(self._core.wake_at(), commit_at, self._reading.look_at(now))
            pause_s = min(max(wake_at - now, 0.001), self._look_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if math.isinf(pause_s) else pause_s):
                    await self._poke.wait()
            assignment = self._core.assignment
            if assignment is not None and not math.isinf(self._look_s):  # else somebody else looks
                late_s = self._now() - now - pause_s
                warn_if_blocked(self._logger, late_s, assignment.session_timeout_s)

    def _commit_if_due(self, now: float) -> float:
        """Begins a commit if one is due. Returns the time of the next one, if it is known."""
        group = self._reading.offsets
        if self._is_committing or group is None:
            return math.inf  # its end, or an assignment, wakes us
        if now < self._commit_at and not self._core.commit_urgent(now):
            return self._commit_at
        if now >= self._commit_again_at:
            self._commit_again_at = now + self._settings.commit_again_s
            self._core.commit_again()
        offsets = self._core.commits(now)
        self._commits_rest = not offsets
        if offsets:
            self._commit_at = now + self._settings.commit_interval_s
            self._is_committing = True
            self._tasks.spawn(self._commit_now(group, offsets))
        return self._commit_again_at

    async def _commit_now(self, group: Offsets, offsets: list[tuple[Holding, int]]) -> None:
        try:
            await self._commit(group, offsets)
        except Exception as error:
            if group is not self._reading.offsets:
                return  # it was left, and its client is closed
            if not isinstance(error, KafkaException):
                raise
            self._reading.trouble.note(error.args[0], "to commit")
            await asyncio.sleep(RETRY_S)
        finally:
            self._is_committing = False
            self._changed()
