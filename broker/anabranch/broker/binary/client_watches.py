"""`ClientWatches`: the watches of one client, which is told of each no faster than it reads."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from anabranch.broker.binary.guarding import open_right
from anabranch.broker.errors import OperationError
from anabranch.broker.logging import get_logger
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.security.open_rights import UNASKED
from anabranch.core.security.resources import ResourceName
from anabranch.wire.errors import RefusedError
from anabranch.wire.server.server import Peer

_KeyT = TypeVar("_KeyT")


class ClientWatch(Generic[_KeyT]):
    """One watch. `key`: the client's name for it."""

    __slots__ = ("_of", "key", "right")

    def __init__(self, key: _KeyT, of: ClientWatches[_KeyT, Any]) -> None:
        self.key = key
        self.right = UNASKED
        self._of = of

    def wake(self) -> None:
        """There may be something new."""
        self._of.due(self)

    def lost(self, error: OperationError) -> None:
        """Its client may not see that any more."""
        self._of.lost(self, error)


_WatchT = TypeVar("_WatchT", bound=ClientWatch[Any])


class Opening:
    """A watch that is to be opened. `is_counted`: its connection counts it already."""

    __slots__ = ("is_counted",)

    def __init__(self, *, is_counted: bool) -> None:
        self.is_counted = is_counted


class ClientWatches(ABC, Generic[_KeyT, _WatchT]):
    """All of one kind. `what`: its name, for faults. `guard`: ends those whose right is gone."""

    def __init__(self, peer: Peer, what: str, guard: AccessGuard | None) -> None:
        self._peer = peer
        self._what = what
        self._guard = guard
        self._watches: dict[_KeyT, _WatchT] = {}
        self._opening: dict[_KeyT, Opening] = {}
        self._due: dict[_KeyT, _WatchT] = {}
        self._task: asyncio.Task[None] | None = None
        self._log = get_logger()
        peer.closed.add_done_callback(lambda _: self._end())

    @abstractmethod
    async def _tell_some(self) -> None:
        """Tells a part of what is due, once the client has taken the last part."""

    @abstractmethod
    def _unfollow(self, watch: _WatchT) -> None:
        """The watch is over."""

    @abstractmethod
    def _forbidden(self, watch: _WatchT, error: OperationError) -> None:
        """Tells the client that a watch was ended for want of a right."""

    def due(self, watch: _WatchT) -> None:
        """Marks a watch to be told as soon as the client has taken the last answer."""
        self._due[watch.key] = watch
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=self._what)

    def lost(self, watch: _WatchT, error: OperationError) -> None:
        """Ends a watch whose client has lost the right to it."""
        if self._watches.get(watch.key) is watch:
            self._drop(watch.key)
            self._forbidden(watch, error)

    @contextmanager
    def _to_open(self, key: _KeyT) -> Iterator[Opening]:
        """Counts a watch that takes the place of a former one once it is there; it may be closed,
        or opened anew, while it waits (`_is_wanted`). Raises RefusedError for one too many.
        """
        opening = Opening(is_counted=key not in self._watches)
        if opening.is_counted:
            self._peer.open_watch()
        self._opening[key] = opening
        try:
            yield opening
        finally:
            if self._is_wanted(key, opening):
                del self._opening[key]
            if opening.is_counted:
                self._peer.close_watch()

    def _is_wanted(self, key: _KeyT, opening: Opening) -> bool:
        return self._opening.get(key) is opening

    def _begin(self, opening: Opening, watch: _WatchT, number: int, on: ResourceName) -> None:
        """Opens it in place of the former one. Raises OperationError if its right is gone."""
        self._drop(watch.key)
        if not opening.is_counted:
            self._peer.open_watch()
            opening.is_counted = True
        watch.right = open_right(self._guard, self._peer, number, on, watch.lost)
        self._watches[watch.key] = watch
        opening.is_counted = False  # it counts for the watch now

    async def _run(self) -> None:
        try:
            while self._due:
                await self._tell_some()
        except RefusedError as error:
            self._peer.close(error.reason)
        except Exception as error:  # noqa: BLE001 - a silent watch is worse than one begun again
            self._log.error("wire.fault", command=self._what, exc_info=error)
            self._peer.close("a fault in the node ended this connection's watches; open them anew")
        finally:
            self._task = None

    def _close(self, key: _KeyT) -> None:
        self._opening.pop(key, None)
        self._drop(key)

    def _drop(self, key: _KeyT) -> None:
        watch = self._watches.pop(key, None)
        if watch is not None:
            self._peer.close_watch()
            watch.right.close()
            self._unfollow(watch)
            self._due.pop(key, None)

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for key in list(self._watches):
            self._drop(key)
