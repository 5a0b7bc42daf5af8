"""`SessionKeeper`: keeps the sessions of many topics' consumers, all of a connection by one report.

A report for each would be thousands a second. Whoever is not kept by it (a node of before, a
session that is over) reports for itself, and hears why.
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
from anabranch.wire.errors import RefusedError, WireError
from anabranch.wire.logging import get_logger

# In the time of a session all are reported so often; who was not, reports when so much is over.
KEEP_ALIVES: Final = 4
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
    """Of one consumer over many topics; on one event loop, from the first `kept` until `close`."""

    def __init__(self, now: Callable[[], float] = clock.now) -> None:
        self._now = now
        self._kept: dict[_Kept, None] = {}
        self._connections: dict[object, float] = {}  # when all of one were reported last
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
        """Keeps a session that is subscribed over this connection meanwhile."""
        if not isinstance(connection, Line):
            raise TypeError(f"{connection.address} is no line of a shared connection")
        each = _Kept(connection, consumer_id, core, poke)
        self._kept[each] = None
        if not self._runs:
            self._runs = True
            self._tasks.spawn(self._run())
        try:
            yield
        finally:
            del self._kept[each]

    async def close(self) -> None:
        """Keeps nothing any more."""
        await self._tasks.cancel()

    async def _run(self) -> None:
        while True:
            due = self._now() + _LOOK_S
            await asyncio.sleep(_LOOK_S)
            now = self._now()
            sessions = {_session_s(each) for each in self._kept}
            warn_if_blocked(_logger, now - due, min(sessions, default=_SESSION_S))
            shared: dict[object, list[_Kept]] = {}
            for each in self._kept:
                shared.setdefault(each.line.shared_with, []).append(each)
            self._connections = {each: self._connections.get(each, now) for each in shared}
            for connection, those in shared.items():
                session_s = _session_s(those[0])
                if now - self._connections[connection] >= session_s / KEEP_ALIVES:
                    self._connections[connection] = now
                    self._tasks.spawn(self._report(those, session_s / 3))

    async def _report(self, those: list[_Kept], timeout_s: float) -> None:
        for first in range(0, len(those), _TOGETHER_MAX):
            part = [each for each in those[first : first + _TOGETHER_MAX] if each in self._kept]
            while part:
                part = await self._report_some(part, timeout_s)

    async def _report_some(self, those: list[_Kept], timeout_s: float) -> list[_Kept]:
        """Reports them; returns those that are to be reported again, without the one that was
        refused.
        """
        now = self._now()
        begun: dict[int, tuple[_Kept, int]] = {}
        for each in those:
            # What has news says so itself, at once.
            report = None if each.core.has_news else each.core.begin_report(now)
            if report is not None:
                begun[each.consumer_id] = each, report.number
        if not begun:
            return []
        first, *others = begun
        kept = {first}
        again: list[_Kept] = []
        try:
            answer = await begun[first][0].line.request(
                CommandScalableConsumerReport(consumer_id=first, also_kept=others), timeout_s
            )
            kept.update(answer.success.kept)
        except RefusedError:
            kept = set()
            again = [begun[each][0] for each in others]
        except WireError as error:
            _logger.info("consumer.sessions_unkept", sessions=len(begun), why=str(error))
            kept = set()
        for consumer_id, (each, number) in begun.items():
            if consumer_id in kept:
                each.core.on_reported(number, self._now())
            else:
                each.core.on_report_unheard(number)
                if each not in again:
                    each.poke()
        return again


def _session_s(kept: _Kept) -> float:
    assignment = kept.core.assignment
    return _SESSION_S if assignment is None else assignment.session_timeout_s


def _log_fault(error: BaseException) -> None:
    _logger.error("consumer.keeping_failed", why=repr(error))
