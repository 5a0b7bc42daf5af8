"""Puts changes into the log, and confirms refusals at its end.

A proposer appends a record, and learns its verdict when this node has read the record back.
`propose` waits until a deadline; `settle` tries again while others are faster; `cast` does not
wait, because its caller looks again by itself. An append that may have failed is repeated: the fold
knows a proposal by its id.

A node answers from its folded state, which is milliseconds behind a change that another node has
just made. So before it refuses it asks Kafka where the log ends, folds that far, and decides once
more (`decided`). Several requests share such a question if it was put after theirs. A record of its
own that is read back tells the same, at no cost.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

import msgspec

from anabranch.broker.errors import (
    ConflictError,
    DeadlineExceededError,
    ForbiddenError,
    NotFoundError,
    PreconditionError,
    UnavailableError,
    stopping,
)
from anabranch.broker.logging import get_logger
from anabranch.broker.metrics.registry import Metrics
from anabranch.broker.requester import requester
from anabranch.channel.errors import AppendFailedError
from anabranch.core.bundles.propose import Actor
from anabranch.core.errors import AnabranchError
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import Record
from anabranch.core.log.verdicts import Verdict
from anabranch.core.node import NodeCore
from anabranch.wire import clock

_R = TypeVar("_R", bound=Record)
_T = TypeVar("_T")

# A newer record could overturn these.
_REFUSALS: Final = (NotFoundError, ForbiddenError, ConflictError, PreconditionError)
RACES_MAX: Final = 8  # lost one after another before a request gives up
APPEND_AGAIN_S: Final = 0.25

# Maps a verdict to the error that a request ends in, made when it is raised; None: no error.
Refusals = dict[Verdict, Callable[[], Exception] | None]
OnAppended = Callable[[Exception | None], None]
Append = Callable[[Sequence[tuple[Record, OnAppended]]], None]
AskEnd = Callable[[], Awaitable[int]]


class Proposals:
    """One node's proposals, for use in its event loop.

    `append` appends to the log; `ask_end` asks for its end; `ended` is done once the node stops.
    """

    def __init__(
        self,
        core: NodeCore,
        append: Append,
        ask_end: AskEnd,
        ended: asyncio.Future[Any],
        metrics: Metrics,
    ) -> None:
        self.log_end = LogEnd(ask_end, lambda: core.state.next_offset)
        self._core = core
        self._append = append
        self._ended = ended
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._log = get_logger(broker=core.me)
        self.new_id = ids()
        self._begun: dict[str, tuple[asyncio.Future[Folded], float]] = {}

    @staticmethod
    def deadline(timeout_s: float) -> float:
        """That many seconds from now, on the loop's clock."""
        return asyncio.get_running_loop().time() + timeout_s

    def must_have_lease(self) -> None:
        """Raises UnavailableError where this node may not propose now."""
        if self._ended.done():
            raise stopping()
        if not self._core.lease.holds(clock.now()):
            raise UnavailableError(
                "this node is in safe mode: it has lost touch with Kafka and takes no requests "
                "that need the log until it is back; try again, or ask another node"
            )

    def actor(self) -> Actor:
        """This node as a proposer, for whom it answers just now. Raises UnavailableError without a
        lease.
        """
        self.must_have_lease()
        who = requester()
        actor = self._core.actor()
        return msgspec.structs.replace(actor, principal=who.role, proxied_by=who.proxied_by)

    # --- proposing ----------------------------------------------------------------------

    async def settle(
        self,
        build: Callable[[], _R | None],
        refusals: Refusals,
        deadline: float,
        ready: Callable[[], Awaitable[object]] | None = None,
    ) -> _R | None:
        """Returns the accepted record, of those that `build` makes of the present state.

        Returns None if there is nothing to do: `build` returned it, or `refusals` has it for the
        verdict. Else it raises the error there. A lost race is tried again. `build` raises the
        request's error when the state forbids it; `ready`, before it, waits for a state that does
        not.
        """
        key = ""
        for _ in range(RACES_MAX):
            if ready is not None:
                await ready()
            record = build()
            if record is None:
                return None
            key = record.key
            verdict = (await self.propose(record, deadline)).outcome.verdict
            if verdict is Verdict.ACCEPTED:
                return record
            if verdict in refusals:
                refuse = refusals[verdict]
                if refuse is None:
                    return None
                raise refuse()
            if verdict is Verdict.NOT_PERMITTED:
                raise not_permitted(key)
            if verdict is Verdict.SESSION_OVER:
                raise UnavailableError("this node's session is over; try again, or ask another")
        raise ConflictError(f"{key} was changed by others {RACES_MAX} times meanwhile; try again")

    async def propose(self, record: Record, deadline: float) -> Folded:
        """The record's verdict. Raises DeadlineExceededError when it is not known in time."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._begin(record)
        except TimeoutError:
            raise DeadlineExceededError(
                f"the log did not answer in time; it may have changed {record.key} or not: "
                "look before you try again"
            ) from None

    def cast(
        self, records: Sequence[Record], seconds: float, over: Callable[[], object] = lambda: None
    ) -> None:
        """Proposes without waiting: the first record, and at once those that follow it.

        It calls `over` with the verdict on the first, or when the time is over. Until then it
        repeats an append of the first that fails.
        """
        first, *rest = records
        verdict = self._begin(first, rest)
        overdue = self._loop.call_later(seconds, verdict.cancel)

        def done(verdict: asyncio.Future[Folded]) -> None:
            overdue.cancel()
            over()
            if not verdict.cancelled():
                verdict.exception()  # a node that stops tells everybody who waits by itself

        verdict.add_done_callback(done)

    def _begin(self, record: Record, rest: Sequence[Record] = ()) -> asyncio.Future[Folded]:
        """Returns a record's verdict, once it was read back; appends `rest` with it.

        It repeats an append that failed, or may have, until the verdict is there or is awaited no
        more.
        """
        verdict: asyncio.Future[Folded] = self._loop.create_future()
        if self._ended.done():
            verdict.set_exception(UnavailableError("the node is stopping"))
            return verdict
        self._begun[record.proposal_id] = (verdict, clock.now())
        verdict.add_done_callback(lambda _: self._begun.pop(record.proposal_id, None))
        self.send((record, *rest))
        return verdict

    def send(self, records: Sequence[Record], *, again: bool = False) -> None:
        """Appends records; their proposer sees in the log what became of them."""
        self._append([(record, partial(self._appended, record, again)) for record in records])

    def _appended(self, record: Record, again: bool, error: Exception | None) -> None:
        """Called from any thread."""
        if error is not None:
            self._loop.call_soon_threadsafe(self._failed, record, again, error)

    def _failed(self, record: Record, again: bool, error: Exception) -> None:
        self._metrics.append_failures.inc()
        self._log.warning(
            "log.append_failed", proposal=record.proposal_id, key=record.key, why=str(error)
        )
        verdict, _ = self._begun.get(record.proposal_id, (None, 0.0))
        if verdict is None or verdict.done():
            return
        if isinstance(error, AppendFailedError) and not again:  # no earlier attempt can be there
            verdict.set_exception(UnavailableError(f"the log did not take the record: {error}"))
        else:
            self._loop.call_later(APPEND_AGAIN_S, self._again, record)

    def _again(self, record: Record) -> None:
        if record.proposal_id in self._begun and not self._ended.done():
            self.send((record,), again=True)

    def read_back(self, proposal_id: str, entry: Folded) -> None:
        """A record of this node was read from the log."""
        verdict, since = self._begun.get(proposal_id, (None, 0.0))
        if verdict is None:
            return
        self.log_end.appended(since)
        if not verdict.done():
            verdict.set_result(entry)
            self._metrics.verdict.observe(clock.now() - since)

    def end(self, error: Exception) -> None:
        """Tells all who wait for a verdict that the node has stopped."""
        for verdict, _ in list(self._begun.values()):
            if not verdict.done():
                verdict.set_exception(error)

    # --- refusing -----------------------------------------------------------------------

    async def decided(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Returns the result of `ask`; confirms a refusal at the end of the log before it raises
        it.

        This node may not have folded yet a change that another node has just made. So it decides a
        refusal, and only that, again once it has read all that the log held at that time. It does
        not ask again if `ask` has read back a record of its own, because then nothing older is
        lacking. Without a lease the refusal stands: this node tells what it has. Raises
        UnavailableError when the end is not reached in the time of a lease.
        """
        began = clock.now()
        try:
            return await ask()
        except _REFUSALS as error:
            if self.log_end.read_at >= began or not await self._has_read(began, error.reason):
                raise
        return await ask()

    async def _has_read(self, since: float, refusal: str) -> bool:
        """True once all is folded that the log held then; False without a lease."""
        lease = self._core.lease
        if not lease.holds(clock.now()):
            return False
        try:
            async with asyncio.timeout(self._core.settings.lease_s):
                await self.log_end.reached(since)
        except (TimeoutError, AnabranchError) as error:
            if not lease.holds(clock.now()):
                return False
            why = str(error) or "it has not folded so far"
            raise UnavailableError(
                f"{refusal}, as far as this node has read the log, and it could not read the rest: "
                f"{why}; try again, or ask another node"
            ) from None
        return True


def not_permitted(key: str) -> ForbiddenError:
    """The log has refused the request, since the principal lacks the right."""
    who = requester()
    by = f", or {who.proxied_by}, by which they ask," if who.proxied_by else ""
    return ForbiddenError(
        f"{who.role}{by} may not change {key}: the right to it was not granted, or is taken away"
    )


class LogEnd:
    """The end of the log, for use in the event loop.

    `ask` tells the offset that the next record will get at least, or raises AnabranchError.
    `next_offset`: the first offset that this node has not folded.
    """

    def __init__(self, ask: AskEnd, next_offset: Callable[[], int]) -> None:
        self.read_at = -math.inf  # all that the log held at this instant is folded
        self._ask = ask
        self._next_offset = next_offset
        self._reading: asyncio.Task[None] | None = None
        self._further: asyncio.Future[None] | None = None
        self._is_stopped = False

    def appended(self, at: float) -> None:
        """A record that this node appended at that instant or later was read back."""
        self.read_at = max(self.read_at, at)

    def folded(self) -> None:
        """This node has folded more than before."""
        if self._further is not None and not self._further.done():
            self._further.set_result(None)

    async def reached(self, since: float) -> None:
        """Returns once all is folded that the log held at `since`, on this node's clock.

        Takes what Kafka takes: the caller sets a deadline. Raises what asking for the end raises,
        and UnavailableError once this node stops.
        """
        while self.read_at < since:
            if self._reading is None and not self._is_stopped:
                self._reading = asyncio.create_task(self._read(), name="log end")
                self._reading.add_done_callback(self._done)
            reading = self._reading
            if reading is not None:
                await asyncio.wait([reading])  # a cancelled waiter does not end it for others
            if reading is None or reading.cancelled():
                raise stopping()
            try:
                reading.result()
            finally:
                del reading  # or it, its error and this frame were a circle

    def stop(self) -> None:
        """Tells all who wait, and all who come later, that this node stops."""
        self._is_stopped = True
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> None:
        asked_at = clock.now()
        end = await self._ask()
        while self._next_offset() < end:
            self._further = asyncio.get_running_loop().create_future()
            await self._further
        self.appended(asked_at)

    def _done(self, reading: asyncio.Task[None]) -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()  # waiters are told; perhaps none is left


def ids() -> Callable[[], str]:
    """Proposal ids: short, and no two alike in any process."""
    process = secrets.token_hex(8)
    numbers = count(1)
    return lambda: f"{process}-{next(numbers):x}"
