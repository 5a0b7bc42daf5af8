"""A stream consumer that works on keys side by side, simulated: the product's own `Schedule`, and
its own commits and positions. Handlers are events: they take their time, fail, or hang.

What the product's `Run` does on an event loop is done here in simulated time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import structlog

from anabranch import client as sdk
from anabranch.client._consumer.consumer import Membership
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.group_offsets import Answers, Position
from anabranch.client._consumer.holding import Holding, Phase
from anabranch.client._consumer.running import LEFT_S
from anabranch.client._stream.intake import HeldBack
from anabranch.client._stream.lanes import Item
from anabranch.client._stream.schedule import Schedule, Started
from anabranch.client._stream.settings import CANCEL_S, RunSettings
from anabranch.client._stream.stats import Counts
from anabranch.core.errors import AnabranchError
from anabranch.core.subscriptions.known_positions import mark_of
from simulation.checkpoint_consumers import Bare
from simulation.consumers import AT_ONCE, CLOSE_S, Consumer, Reader
from simulation.running_checks import Handler, Sent
from simulation.scheduler import Action
from simulation.segment_store import Committed, Message, Place
from simulation.watch import Watch
from simulation.work import Answer, Work

T = TypeVar("T")

DRAIN_S = 2.0
LAPSED_S = 0.4  # in which handlers end that a lapse cancels: the margin of the session is longer
STUBBORN_S_MAX = 1.9  # below CANCEL_S
HANG_S = 15.0
REVIVE_S = 1.0
COMMIT_S = 0.5


class _Own(sdk.StreamConsumer, Bare):
    """The product's."""

    _commit_at = 0.0


class _Reading:
    """What the product's consumer tells of Kafka's troubles."""

    @property
    def trouble(self) -> _Reading:
        return self

    def refused(self, *_: object) -> None:
        pass

    def found(self, _: str) -> None:
        pass

    def is_gone(self, _: str) -> bool:
        return False


class _Group:
    """A consumer's questions to Kafka, for one life of its subscription."""

    def __init__(self, consumer: RunningConsumer, holdings: Iterable[Holding] = ()) -> None:
        told = consumer.core.assignment
        if told is None:
            raise AssertionError("it has no assignment")
        self._group, self._begun_at = told.group_id, told.begun_at
        self._consumer = consumer
        self._holdings = {each.partition: each for each in holdings}

    async def committed(self, places: Iterable[Place]) -> Answers[Position]:
        asked, consumer = list(places), self._consumer
        mark = mark_of(self._begun_at)

        def look() -> dict[Place, Position]:
            known = consumer.store.committed
            told = {
                each: known[self._group, each] for each in asked if (self._group, each) in known
            }
            return {p: Position(c.offset, c.map) for p, c in told.items() if c.mark == mark}

        return Answers(await consumer.answered(look), {})

    async def ranges(self, places: Iterable[Place]) -> Answers[tuple[int, int]]:
        asked, consumer = list(places), self._consumer

        def look() -> dict[Place, tuple[int, int]]:
            known = consumer.store.partitions
            return {p: (known[p].begin, len(known[p].messages)) for p in asked if p in known}

        return Answers(await consumer.answered(look), {}) if asked else Answers({}, {})

    async def commit(self, positions: Mapping[Place, Position], until: float) -> Answers[int]:
        consumer = self._consumer
        if consumer.local_now() > until:
            return Answers({}, {})
        mark = mark_of(self._begun_at)
        told = {place: Committed(each.offset, mark, each.map) for place, each in positions.items()}
        sent = [consumer.commits(self._holdings[place], each) for place, each in told.items()]
        answer: Answer[bool] = Answer()
        reply = partial(consumer.run_in, consumer.life)
        consumer.store.commit(
            self._group, told, lambda in_time: reply(partial(answer.give, in_time)), has_maps=True
        )
        if not await answer:
            return Answers({}, {})
        for each in sent:
            consumer.confirmed(each)
        return Answers({place: each.offset for place, each in told.items()}, {})


class _Read(NamedTuple):
    """What lies between Kafka and the handlers; without messages: nothing is before `first`."""

    number: int
    first: int
    messages: list[Message]


class Attempt:
    """A call of a handler, with what follows it. Only its last planned step is done."""

    __slots__ = ("handler", "is_cancelled", "is_letter", "started", "step")

    def __init__(self, started: Started[Message]) -> None:
        self.started = started
        self.handler: Handler
        self.is_cancelled = self.is_letter = False
        self.step = 0

    @property
    def item(self) -> Item[Message]:
        return self.started.items[0]


class RunningConsumer(Consumer):
    """A consumer's name, and the process that runs handlers under it."""

    runs = True

    def _made_core(self) -> ConsumerCore:
        world, work = self._world, self._world.plan.running
        watch: Any = Watch(world, self.topic)
        anywhere: Any = None
        nobody: Any = None
        membership = Membership(anywhere, watch, {}, self.subscription, self.name)
        settings = sdk.ConsumerSettings(settle_timeout_s=world.plan.settle_s)
        own: Any = _Own(membership, settings, nobody)
        own._now, own._reading, own.part = self.local_now, _Reading(), self
        own._logger = structlog.wrap_logger(structlog.ReturnLogger(), processors=[])
        self._own = own
        core: ConsumerCore = own._core
        self._schedule: Schedule[Message] = Schedule(
            RunSettings(retry=work.retry, concurrency=work.concurrency, queued_max=work.queued_max)
        )
        self._part = self._schedule.intake.join(core, self.topic)
        self._reads: deque[_Read] = deque()
        self._attempts: dict[Attempt, None] = {}
        self._handlers: dict[Item[Message], Handler] = {}  # the last one of what is to go aside
        self._has_failed = False
        return core

    @property
    def counts(self) -> Counts:
        """Those of the run, where the product's consumer looks for them."""
        return self._schedule.counts

    def spend(self, map_bytes: int) -> float:
        """Maps are small, and come as often as commits."""
        del map_bytes
        return 0.0

    @property
    def store(self) -> Any:
        return self._world.store

    def answered(self, question: Callable[[], T]) -> Answer[T]:
        """Kafka's answer. It fails if there is none in time."""
        answer: Answer[T] = Answer()
        found: list[T] = []

        def reply(in_time: bool) -> None:
            if in_time:
                answer.give(found[0])
            else:
                answer.fail(sdk.ClientError("Kafka did not answer"))

        life = self.life
        self._world.store.call(
            lambda in_time: self.run_in(life, partial(reply, in_time)),
            lambda: found.append(question()),
        )
        return answer

    # --- life ---------------------------------------------------------------------------

    def _close(self) -> None:
        """Waits for what runs, or cancels it at once; then it leaves."""
        now = self.local_now()
        drains = not self._is_fenced and self._schedule.failure is None
        drains = drains and self._sched.chance(self._world.plan.running.drains)
        self._schedule.stop(now + (DRAIN_S if drains else 0.0))
        self._act()

    def _fail(self) -> None:
        """A handler's failure ends the run. Somebody starts the process again."""
        self._sched.note(f"{self} fails: {self._schedule.failure}")
        self._has_failed = True
        self.close()
        self._sched.after(CLOSE_S + REVIVE_S, self.start)

    # --- reading ------------------------------------------------------------------------

    def _ask_position(self, number: int, reader: Reader) -> None:
        fetch = reader.holding.fetch
        if reader.asking or self._committing or fetch is None:
            return
        reader.asking = True
        group: Any = _Group(self)
        Work(self._own._positions(group, [fetch]), partial(self._found, number, reader))

    def _found(
        self, number: int, reader: Reader, found: dict[int, int] | None, _: AnabranchError | None
    ) -> None:
        self._positioned(number, reader, (found or {}).get(number))

    def _read(self, number: int, reader: Reader, now: float) -> None:
        partition = self._world.store.partitions.get(reader.place)
        if partition is None or reader.offset is None or self._schedule.intake.is_stopped(number):
            return
        reader.offset = max(reader.offset, partition.begin)
        end = reader.holding.end_offset  # what lies behind it is another segment's
        stop = reader.offset + AT_ONCE
        fresh = partition.messages[reader.offset : stop if end is None else min(stop, end)]
        self._reads.append(_Read(number, reader.offset, fresh))
        reader.offset += len(fresh)
        if len(fresh) == AT_ONCE:
            self.wake()

    def _fill(self) -> None:
        """Takes what was read; some of it lies there for a while."""
        schedule, intake, part = self._schedule, self._schedule.intake, self._part
        lasts = self._sched.rng.randrange(3)
        while len(self._reads) > lasts and intake.has_room:
            number, first, messages = self._reads.popleft()
            served = intake.served(part, number) if messages else None
            if not messages:
                self.core.on_reached(number, first)
            for offset, message in enumerate(messages, first):
                start = served and schedule.taken(*served, offset)
                if start is not None:
                    schedule.lanes.add(message.key, number, message, start, offset, 1)
            self._count_stops(intake.stops(part, (number,)))

    def _count_stops(self, stopped: Iterable[HeldBack]) -> int:
        """Their readers go with their numbers."""
        count = len(list(stopped))
        self._world.checks.running.counts["held_back"] += count
        return count

    # --- handlers -----------------------------------------------------------------------

    def _work(self, now: float) -> None:
        if not self._schedule.is_draining:
            self._fill()
        self._schedule.tend(self._part, now)
        self._schedule.wake(now)
        self._schedule.intake.look_at_stopped()
        for _ in self._schedule.intake.resumes():
            pass  # they are read as soon as nothing says that they have stopped
        for attempt in list(self._attempts):
            holding = attempt.started.holding
            if self._schedule.must_cancel(self._part, holding, now):
                within_s = LAPSED_S
                if self._schedule.must_end(now):
                    within_s = LEFT_S
                elif holding.phase is Phase.SETTLING and self.core.is_held(holding, now):
                    within_s = CANCEL_S
                self._cancel(attempt, within_s)
        self.core.dead_letters_waiting = len(self._part.late)
        if self._schedule.failure is not None and not self._has_failed:
            self._fail()
        self._start(now)
        if self._reads and self._count_stops(self._schedule.sheds()):
            self.wake()
        if self._schedule.has_ended(now) and self._close_by is None:
            super()._close()

    def _start(self, now: float) -> None:
        while (started := self._schedule.next(now)) is not None:
            self._attempt_at(Attempt(started))

    def _attempt_at(self, attempt: Attempt) -> None:
        self._attempts[attempt] = None
        item, holding = attempt.item, attempt.started.holding
        if item.is_over:
            attempt.handler = self._handlers[item]
            self._put_aside(attempt)
            return
        place, checks = holding.partition, self._world.checks
        checks.delivered(self, holding, place, item.offset, item.message)
        attempt.handler = checks.running.begins(self, holding, place, item.offset, item.message)
        if (killed := self._schedule.killer(attempt.started)) is not None:
            checks.running.accused(self, place, item.offset)
            self._returned(attempt, killed)
            return
        rng, plan = self._sched.rng, self._world.plan.running
        lasts_s = self._world.working_s()
        error: BaseException | None = None
        if not self._world.faults_over:
            lasts_s += rng.uniform(0.0, plan.busy_s)
            what = rng.random()
            if what < plan.fails:
                error = rng.choice(
                    (ValueError("now and then"), sdk.Again(rng.random()), sdk.Reject("never"))
                )
            elif what < plan.fails + plan.hangs:
                error, lasts_s = TimeoutError(), HANG_S
        self._plan(attempt, lasts_s, partial(self._returned, attempt, error))

    def _plan(self, attempt: Attempt, after_s: float, action: Action) -> None:
        attempt.step += 1
        step = attempt.step

        def act() -> None:
            if attempt.step == step:
                action()

        self.later(after_s, act)

    def _cancel(self, attempt: Attempt, within_s: float) -> None:
        """Once: it may be cleaning up."""
        if attempt.is_cancelled:
            return
        attempt.is_cancelled = True
        if attempt.is_letter:
            failed = {attempt.item: asyncio.CancelledError()}
            self._plan(attempt, 0.0, partial(self._ended, attempt, failed))
            return
        self._world.checks.running.told_to_end(attempt.handler, within_s)
        rng, error = self._sched.rng, asyncio.CancelledError()
        odd: BaseException | None = rng.choice((error,) * 8 + (None, ValueError("in clean-up")))
        cleans_s = 0.0
        if self._sched.chance(self._world.plan.running.stubborn):
            cleans_s = rng.choice((LAPSED_S, STUBBORN_S_MAX)) * rng.random()
        self._plan(attempt, cleans_s, partial(self._returned, attempt, odd))

    def _returned(self, attempt: Attempt, error: BaseException | None) -> None:
        """Its handler has, or has raised an error."""
        self._world.checks.running.ends(attempt.handler, is_done=error is None)
        item, now = attempt.item, self.local_now()
        is_cancelled = isinstance(error, asyncio.CancelledError) and attempt.is_cancelled
        if error is None:
            self._ended(attempt, {})
        elif not is_cancelled and self._schedule.goes_aside(item, attempt.started, error, now):
            self._handlers[item] = attempt.handler
            self._put_aside(attempt)
        else:
            self._handlers[item] = attempt.handler  # it may go aside where all wait for it
            self._ended(attempt, {item: error})

    def _put_aside(self, attempt: Attempt) -> None:
        """Sends the message to the dead letters."""
        attempt.is_letter = True
        attempt.step += 1
        step, life = attempt.step, self.life
        fails = not self._world.faults_over and self._sched.chance(
            self._world.plan.running.letters_fail
        )

        def told(in_time: bool) -> None:
            if attempt.step != step:
                return
            if not in_time or fails:
                self._ended(attempt, {attempt.item: sdk.ClientError("no letter")})
                return
            self._handlers.pop(attempt.item, None)
            self._world.checks.running.put_aside(attempt.handler)
            self._ended(attempt, {})

        def reply(in_time: bool) -> None:
            self.run_in(life, partial(told, in_time))

        self._world.store.call(reply, lambda: None)

    def _ended(self, attempt: Attempt, outcomes: Mapping[Item[Message], BaseException]) -> None:
        """An attempt is over: the next one begins at once, in the same task."""
        del self._attempts[attempt]
        now, is_cancelled = self.local_now(), attempt.is_cancelled
        self._schedule.ended(attempt.started, outcomes, now, is_cancelled=is_cancelled)
        started = None if is_cancelled else self._schedule.next(now)
        if started is not None:
            self._attempt_at(Attempt(started))
        self.wake()

    # --- commits ------------------------------------------------------------------------

    def _commit(self, now: float) -> None:
        told = self.core.assignment
        if self._committing or told is None:
            return
        if now < self._commit_at and not self.core.commit_urgent(now):
            return
        self._commit_at = now + COMMIT_S
        offsets = self.core.commits(now)
        if not offsets:
            return
        self._committing = {id(holding): self.group for holding, _ in offsets}
        group: Any = _Group(self, [holding for holding, _ in offsets])
        Work(self._own._commit(group, offsets), self._commit_over)

    def _commit_over(self, _: None, error: AnabranchError | None) -> None:
        self._committing = {}
        self.wake()

    def commits(self, holding: Holding, told: Committed) -> Sent:
        """A commit of a bucket is on its way."""
        return self._world.checks.running.sent(self, holding, holding.partition, told)

    def confirmed(self, sent: Sent) -> None:
        """Kafka has it."""
        worker, checks = sent.worker, self._world.checks
        checks.running.confirmed(sent)
        checks.confirmed(worker.group, worker.holding, sent.end)
