"""`SessionKeeper`: keeps the sessions of many topics' consumers, all of a connection by one report.

A report for each would be thousands a second. Its work is sorted by connection, so a look for due
sessions costs nothing for each session. A session that it cannot keep (of an older node, or one
that is over) reports for itself, and gets the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from anabranch.client._aio import Tasks
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.session import warn_if_blocked
from anabranch.client._many.connections import Line
from anabranch.client._topics.nodes import NodeConnection
from anabranch.wire import clock
from anabranch.wire.anabranch_pb2 import CommandScalableConsumerReport
from anabranch.wire.errors import RefusedError, RequestTimeoutError, WireError
from anabranch.wire.logging import get_logger

# Reports in the time of a session: for all that are kept, and (OWN) of one that is not.
KEEP_ALIVES: Final = 4
_PATIENCE: Final = 0.5  # of a session, for an answer: more questions make a slow node slower
OWN_KEEP_ALIVES: Final = 1.25
_TOGETHER_MAX: Final = 500
_LOOK_S: Final = 0.5
_SESSION_S: Final = 10.0  # until an assignment has told it

_logger = get_logger(__name__)


class _Kept(msgspec.Struct, eq=False):
    """One consumer's session."""

    line: Line
    consumer_id: int
    core: ConsumerCore
    poke: Callable[[], None]


class SessionKeeper:
    """The keeper of one consumer over many topics.
    It is used on one event loop, from the first `kept` until `close`.
    """

    def __init__(self, now: Callable[[], float] = clock.now) -> None:
        self._now = now
        self._kept: dict[object, dict[_Kept, None]] = {}  # by connection, while it has some
        self._reported: dict[object, float] = {}  # the time of the last report, by connection
        self._reporting: set[object] = set()  # connections; an answer may take until the next time
        self._tasks = Tasks(_log_fault)
        self._runs = False

    @contextmanager
    def kept(
        self,
        connection: NodeConnection,
        consumer_id: int,
        core: ConsumerCore,
        poke: Callable[[], None],
    ) -> Iterator[None]:
        """Keeps a session that is subscribed over this connection, within the context."""
        if not isinstance(connection, Line):
            raise TypeError(f"{connection.address} is no line of a shared connection")
        each, shared = _Kept(connection, consumer_id, core, poke), connection.shared_with
        self._reported.setdefault(shared, self._now())
        self._kept.setdefault(shared, {})[each] = None
        if not self._runs:
            self._runs = True
            self._tasks.spawn(self._run())
        try:
            yield
        finally:
            del self._kept[shared][each]
            _unkept(each)
            if not self._kept[shared]:
                del self._kept[shared], self._reported[shared]

    async def close(self) -> None:
        """Keeps nothing any more."""
        await self._tasks.cancel()

    async def _run(self) -> None:
        while True:
            due = self._now() + _LOOK_S
            await asyncio.sleep(_LOOK_S)
            now = self._now()
            # A connection's sessions are of one node, which has one time for all.
            sessions = {shared: _session_s(next(iter(kept))) for shared, kept in self._kept.items()}
            warn_if_blocked(_logger, now - due, min(sessions.values(), default=_SESSION_S))
            for shared, session_s in sessions.items():
                is_due = now - self._reported[shared] >= session_s / KEEP_ALIVES
                if is_due and shared not in self._reporting:
                    self._reported[shared] = now
                    self._reporting.add(shared)
                    self._tasks.spawn(self._report(shared, _PATIENCE * session_s))
                elif shared in self._reporting:
                    self._leave_to_themselves(shared, now)

    def _leave_to_themselves(self, shared: object, now: float) -> None:
        """Stops to keep sessions that lapse before the next look unless an answer comes.

        A report may take longer than they last, and their users must be told in time.
        """
        for each in list(self._kept[shared]):
            if each.core.is_kept and not each.core.is_alive(now + 2 * _LOOK_S):
                _unkept(each)

    async def _report(self, shared: object, timeout_s: float) -> None:
        """Reports all sessions of a connection."""
        try:
            those = list(self._kept.get(shared, ()))
            for first in range(0, len(those), _TOGETHER_MAX):
                part = [each for each in those[first : first + _TOGETHER_MAX] if self._keeps(each)]
                while part:
                    part = await self._report_some(part, timeout_s)
        finally:
            self._reporting.discard(shared)

    def _keeps(self, each: _Kept) -> bool:
        return each in self._kept.get(each.line.shared_with, ())

    async def _report_some(self, those: list[_Kept], timeout_s: float) -> list[_Kept]:
        """Reports these sessions, and returns those to report again.

        These are all after a time-out, and all but the refused one after a refusal.
        """
        now = self._now()
        begun: dict[int, tuple[_Kept, int]] = {}
        for each in those:
            if each.core.has_news:
                each.poke()  # it says so itself, at once
                continue
            report = each.core.begin_report(now)
            if report is not None:
                begun[each.consumer_id] = each, report.number
            else:
                _unkept(each)
        if not begun:
            return []
        first, *others = begun
        kept = {first}
        again: dict[_Kept, None] = {}
        try:
            answer = await begun[first][0].line.request_at_once(
                CommandScalableConsumerReport(consumer_id=first, also_kept=others), timeout_s
            )
            kept.update(answer.success.kept)
        except RefusedError:
            kept = set()
            again = {begun[each][0]: None for each in others}
        except RequestTimeoutError:  # thousands of single reports would be no faster
            kept = set()
            again = {each: None for each, _ in begun.values() if each.line.is_open}
        except WireError as error:
            _logger.info("consumer.sessions_unkept", sessions=len(begun), why=str(error))
            kept = set()
        for consumer_id, (each, number) in begun.items():
            if consumer_id in kept:
                each.core.on_reported(number, self._now())
                each.core.is_kept = each.core.subscribed and self._keeps(each)
                if each.core.has_news:  # meanwhile it could not say so
                    each.poke()
            else:
                each.core.on_report_unheard(number)
                if each not in again:
                    _unkept(each)
        return list(again)


def _unkept(each: _Kept) -> None:
    each.core.is_kept = False
    each.poke()


def _session_s(kept: _Kept) -> float:
    assignment = kept.core.assignment
    return _SESSION_S if assignment is None else assignment.session_timeout_s


def _log_fault(error: BaseException) -> None:
    _logger.error("consumer.keeping_failed", why=repr(error))
