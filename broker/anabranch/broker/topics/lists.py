"""`TopicLists`: the lists of topics that this node was asked for, kept up to date by the log.

The first request has a list made: the node looks at every topic of the namespace, a slice of time
each. From then on a topic that changes is held against each of its namespace's lists, in slices of
time, too. A request waits until its list has the changes made by then. A list that nobody watches
may be forgotten again.

Patterns come from strangers. RE2 bounds the time of one (`core.topic_lists.selection`), and this
node the number of those that somebody follows.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from anabranch.broker.errors import OverloadedError, UnavailableError
from anabranch.broker.runtime import FoldingReplica, Runtime
from anabranch.broker.topics.controllers.service import TopicService
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.names import Namespace, full_name, namespace_of
from anabranch.core.topic_lists.selection import ALL, Selection, Selector
from anabranch.core.topic_lists.topic_list import TopicList
from anabranch.wire import clock
from anabranch.wire.supervised import supervised

INITIAL_BYTES: Final = 1_024  # of heap, before it is known how long a list is
SELECTED_MAX: Final = 1_000  # lists that are followed: each change is held against all
SELECTED_BYTES_MAX: Final = 128 << 20  # of them
_SLICE_S: Final = 0.005  # before others have their turn
_UNWATCHED_MAX: Final = 64  # lists that are kept for who may ask again
_UNWATCHED_BYTES_MAX: Final = 32 << 20  # of them, but for those of whole namespaces

Wake = Callable[[], None]


class KeptList:
    """A list of a namespace's open topics, all or some. Only its `TopicLists` changes it.

    Making one raises PatternError.
    """

    def __init__(self, home: Namespace, selection: Selection) -> None:
        self.home = home
        self.selection = selection
        self.list = TopicList()
        self.is_over = False  # it is not kept up to date any more: ask for it anew
        self.watchers: dict[Wake, None] = {}
        self.making: asyncio.Task[None] | None = None
        self.askers = 0  # requests that wait until it is made
        self.asked = 0  # the number of the last request for it
        self._selector = Selector(selection)
        self._meanwhile: dict[str, bool] = {}  # changes while it was made

    @property
    def selected_bytes(self) -> int:
        """The bytes of the names and of the selection, which may be large and select none."""
        if self.selection.is_all:
            return 0
        return self.list.names_bytes + self.selection.length

    def takes(self, name: str, topic: ScalableTopic | None) -> bool:
        """Returns whether the topic of this name belongs to the list."""
        if topic is None or not topic.is_open:
            return False
        return self._selector.takes(name, topic.properties)

    def note(self, name: str, present: bool) -> bool:
        """Notes that the topic of this full name belongs to the list, or does not; returns if that
        is new.
        """
        if self.making is not None:
            self._meanwhile[name] = present
            return False
        return self.list.note(name, present)

    def made(self, names: Iterable[str]) -> None:
        """Takes the names found, each at some moment since the start; later changes count."""
        found = {name for name in names if self._meanwhile.get(name, True)}
        found.update(name for name, present in self._meanwhile.items() if present)
        self.list = TopicList(found)
        self._meanwhile.clear()
        self.making = None

    def wake(self) -> None:
        """There is something new for those who watch it."""
        for each in list(self.watchers):
            each()


class _Slices:
    """Slices of time, between which others have their turn."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._until = now() + _SLICE_S

    async def pause(self) -> None:
        """Lets others have their turn if a slice is over."""
        if self._now() >= self._until:
            await asyncio.sleep(0)
            self._until = self._now() + _SLICE_S


class TopicLists:
    """All lists of this node, for use in its event loop."""

    def __init__(self, service: TopicService, now: Callable[[], float] = clock.now) -> None:
        self._now = now
        self._runtime: Runtime = service.runtime
        self._view: FoldingReplica = self._runtime.view
        self._by_home: dict[Namespace, dict[Selection, KeptList]] = {}
        self._requests = itertools.count(1)
        self._stopped = False
        self._turn = asyncio.Lock()  # one list at a time is made
        self._new_turn = asyncio.Lock()
        self._changes: dict[str, None] = {}  # topics that the next round looks at
        self._rounds_begun = self._rounds_done = 0
        self._round: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.watch_count = 0
        service.listeners.append(self._changed)
        service.tickers.append(self._check_view)

    async def of(self, home: Namespace, selection: Selection = ALL) -> KeptList:
        """Returns the list as it is now; it is empty for a namespace that is not there.

        A caller that wants it to stay calls `watch` before the next `await`. Raises PatternError,
        and OverloadedError if too many lists are followed.
        """
        needed = self._rounds_begun + bool(self._changes)
        if selection not in self._by_home.get(home, ()):
            async with self._new_turn:  # a pattern takes long to be read, so it is one in each turn
                await asyncio.sleep(0)
        while not self._stopped:
            self._check_view()
            kept = self._found(home, selection)
            awaited = kept.making or (self._round if self._rounds_done < needed else None)
            if awaited is None:
                return kept
            kept.askers += 1
            try:
                await asyncio.wait([awaited])  # a cancelled waiter does not end it for others
            finally:
                kept.askers -= 1
            if not awaited.cancelled():
                awaited.result()
        raise UnavailableError("this node is stopping; ask another one")

    def watch(self, kept: KeptList, wake: Wake) -> None:
        """`wake` is called in the event loop when the list has changed; it must be quick."""
        kept.watchers[wake] = None
        self.watch_count += 1

    def unwatch(self, kept: KeptList, wake: Wake) -> None:
        """No more calls."""
        if wake in kept.watchers:
            del kept.watchers[wake]
            self.watch_count -= 1
            self._forget_some()

    @property
    def count(self) -> int:
        """Returns the number of lists that are kept."""
        return sum(map(len, self._by_home.values()))

    async def stop(self) -> None:
        """Ends work under way."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- lists that are kept ------------------------------------------------------------

    def _all(self) -> list[KeptList]:
        return [kept for lists in self._by_home.values() for kept in lists.values()]

    def _found(self, home: Namespace, selection: Selection) -> KeptList:
        kept = self._by_home.get(home, {}).get(selection)
        if kept is None:
            if not selection.is_all:
                self._check_room()
            kept = KeptList(home, selection)
            self._by_home.setdefault(home, {})[selection] = kept
            kept.making = self._spawned(self._make(kept), "topic list")
        kept.asked = next(self._requests)
        return kept

    def _check_room(self) -> None:
        sizes = [kept.selected_bytes for kept in self._all() if kept.watchers]
        followed = sum(map(bool, sizes))
        if followed >= SELECTED_MAX or sum(sizes) > SELECTED_BYTES_MAX:
            raise OverloadedError(
                f"this node follows {followed} patterns and property filters of "
                f"{sum(sizes) >> 20} MB, and takes {SELECTED_MAX} of "
                f"{SELECTED_BYTES_MAX >> 20} MB; watch the whole namespace, or ask another node"
            )

    def _forget_some(self) -> None:
        """Keeps no more lists without watchers than there is room for, those asked for last."""
        idle = [k for k in self._all() if not k.watchers and not k.askers and k.making is None]
        idle.sort(key=lambda kept: kept.asked)
        count, size = len(idle), sum(kept.selected_bytes for kept in idle)
        for kept in idle[:-1]:
            if count <= _UNWATCHED_MAX and size <= _UNWATCHED_BYTES_MAX:
                return
            count, size = count - 1, size - kept.selected_bytes
            self._forget(kept)

    def _forget(self, kept: KeptList) -> None:
        kept.is_over = True
        lists = self._by_home[kept.home]
        del lists[kept.selection]
        if not lists:
            del self._by_home[kept.home]

    async def _make(self, kept: KeptList) -> None:
        try:
            async with self._turn:
                found: list[str] = []
                slices = _Slices(self._now)
                # A single look takes no place of the topics that the view keeps at hand.
                for name, topic in self._view.topic_states(kept.home):
                    await slices.pause()
                    if kept.takes(name, topic):
                        found.append(full_name(name))
                kept.made(found)
        finally:
            if kept.making is not None and not kept.is_over:
                self._forget(kept)  # it could not be made; the next request has it made anew
            self._forget_some()

    # --- changes ------------------------------------------------------------------------

    def _changed(self, topics: list[str], _units: list[str]) -> None:
        self._changes.update((name, None) for name in topics if namespace_of(name) in self._by_home)
        if self._changes and self._round is None:
            self._begin_round()

    def _begin_round(self) -> None:
        self._rounds_begun += 1
        changes, self._changes = self._changes, {}
        self._round = self._spawned(self._match(changes), "topic lists")

    async def _match(self, changes: dict[str, None]) -> None:
        """Holds topics that have changed against the lists of their namespaces."""
        try:
            slices = _Slices(self._now)
            told: dict[KeptList, None] = {}
            for name in changes:
                topic = self._view.topic(name)
                for kept in list(self._by_home.get(namespace_of(name), {}).values()):
                    await slices.pause()
                    if kept.note(full_name(name), kept.takes(name, topic)):
                        told[kept] = None
            for kept in told:
                kept.wake()
        except Exception:
            self._changes.clear()
            self._forget_all()  # missed changes would stay missing
            raise
        finally:
            self._rounds_done += 1
            self._round = None
        if self._changes:
            self._begin_round()

    def _spawned(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = supervised(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _check_view(self) -> None:
        """A view that was built anew tells no changes: all that was kept of the former is over."""
        if self._view is not self._runtime.view:
            self._view = self._runtime.view
            self._forget_all()

    def _forget_all(self) -> None:
        """Forgets all lists; their watchers begin anew."""
        kept_lists = self._all()
        for kept in kept_lists:
            self._forget(kept)
            if kept.making is not None:
                kept.making.cancel()
                kept.making = None
        for kept in kept_lists:
            kept.wake()
