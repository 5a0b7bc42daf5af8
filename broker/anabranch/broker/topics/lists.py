"""`TopicLists`: the lists of topics that this node was asked for, kept up to date by the log.

The first request has a list made: the node looks at every topic of the namespace, a slice of time
each. From then on the changes of the log keep it. A whole namespace's list is the source of those
that a pattern or properties select. A list that nobody watches may be forgotten again.

Each topic that changes is matched with each selection (`catching_up`). A request for a selection's
list waits until the list has the changes made by then. A list that takes too long is refused, or
given up.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from anabranch.broker.errors import OverloadedError, UnavailableError
from anabranch.broker.logging import get_logger
from anabranch.broker.runtime import FoldingReplica, Runtime
from anabranch.broker.topics.catching_up import CatchingUp, Slices
from anabranch.broker.topics.controllers.service import TopicService
from anabranch.broker.topics.kept_list import KeptList, Wake
from anabranch.broker.topics.list_shares import (
    SELECTED_BYTES_MAX,
    SELECTED_MAX,
    Key,
    ListShares,
    Sharers,
)
from anabranch.core.names import Namespace, full_name, namespace_of
from anabranch.core.topic_lists.matching import DEAR_S, MatchingRound
from anabranch.core.topic_lists.selection import ALL, Selection
from anabranch.core.topic_lists.sorted_names import names_of
from anabranch.wire import clock
from anabranch.wire.supervised import supervised

INITIAL_BYTES: Final = 1_024  # of heap, before it is known how long a list is
_UNWATCHED_MAX: Final = 64  # lists that are kept for who may ask again
_UNWATCHED_BYTES_MAX: Final = 32 << 20  # of them, but for those of whole namespaces
_DOMAIN_LENGTH: Final = len(full_name(""))


class TopicLists:
    """All lists of this node, for use in its event loop. `used`: the processor's time of its
    thread.
    """

    def __init__(
        self,
        service: TopicService,
        now: Callable[[], float] = clock.now,
        used: Callable[[], float] = time.thread_time,
    ) -> None:
        self._now = now
        self._runtime: Runtime = service.runtime
        self._view: FoldingReplica = self._runtime.view
        self._by_home: dict[Namespace, dict[Selection, KeptList]] = {}
        self._unwatched: OrderedDict[Key, None] = OrderedDict()  # the one asked for last is last
        self._shares = ListShares(self._selected_bytes)
        self._stopped = False
        # One list at a time of each kind: strangers' requests share one slice of each turn.
        self._whole_turn = asyncio.Lock()
        self._selected_turn = asyncio.Lock()
        self._new_turn = asyncio.Lock()
        self._catching_up = CatchingUp(self._state_of, self._least_seen, self._give_up, used)
        self._noting: asyncio.Task[None] | None = None  # the next slice of that
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = get_logger()
        self.watch_count = 0
        self.given_up = 0  # lists of selections that took too long
        service.listeners.append(self._changed)
        service.tickers.append(self._check_view)

    async def of(
        self, home: Namespace, selection: Selection = ALL, sharers: Sharers = ()
    ) -> KeptList:
        """Returns the list as it is now; it is empty for a namespace that is not there.

        A caller that wants it to stay calls `watch` before the next `await`. Raises PatternError.
        Raises OverloadedError if too many lists are kept, if a sharer follows too many, or if it
        takes too long.
        """
        came = self._catching_up.number
        if not selection.is_all and selection not in self._by_home.get(home, ()):
            async with self._new_turn:  # a pattern takes long to be read, so it is one in each turn
                await asyncio.sleep(0)
        while not self._stopped:
            self._check_view()
            if not selection.is_all:
                self._shares.check(sharers, (home, selection))
            kept = self._found(home, selection)
            awaited = kept.making
            if awaited is None and self._catching_up.awaits(kept, came):
                awaited = self._noting
            if awaited is None:
                return kept
            kept.askers += 1
            try:
                await asyncio.wait([awaited])  # a cancelled waiter does not end it for others
            finally:
                kept.askers -= 1
            if not awaited.cancelled():
                awaited.result()
            if kept.refusal:
                raise OverloadedError(kept.refusal)
        raise UnavailableError("this node is stopping; ask another one")

    def watch(self, kept: KeptList, wake: Wake, sharers: Sharers = ()) -> None:
        """`wake` is called in the event loop when the list has changed; it must be quick."""
        kept.watchers[wake] = sharers = () if kept.selection.is_all else sharers
        self._shares.take(sharers, (kept.home, kept.selection))
        self._unwatched.pop((kept.home, kept.selection), None)
        self.watch_count += 1

    def unwatch(self, kept: KeptList, wake: Wake) -> None:
        """No more calls."""
        sharers = kept.watchers.pop(wake, None)
        if sharers is None:
            return
        self._shares.give_back(sharers, (kept.home, kept.selection))
        self.watch_count -= 1
        if not kept.watchers and not kept.is_over:
            self._unwatched[kept.home, kept.selection] = None
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

    def _found(self, home: Namespace, selection: Selection) -> KeptList:
        lists = self._by_home.get(home, {})
        kept = lists.get(selection)
        if kept is None:
            kept = KeptList(home, selection)
            if not selection.is_all:
                self._check_room()
            self._by_home.setdefault(home, lists)[selection] = kept
            self._make(kept)
        if not kept.watchers:
            self._unwatched[home, selection] = None
            self._unwatched.move_to_end((home, selection))
            self._forget_some()
        return kept

    def _check_room(self) -> None:
        sizes = [
            kept.size_bytes
            for lists in self._by_home.values()
            for selection, kept in lists.items()
            if not selection.is_all and kept.watchers
        ]
        if len(sizes) >= SELECTED_MAX or sum(sizes) > SELECTED_BYTES_MAX:
            raise OverloadedError(
                f"this node follows {len(sizes)} patterns and property filters of "
                f"{sum(sizes) >> 20} MB, and takes {SELECTED_MAX} of "
                f"{SELECTED_BYTES_MAX >> 20} MB; watch the whole namespace, or ask another node"
            )

    def _forget_some(self) -> None:
        """Keeps no more lists without watchers than there is room for."""
        count = len(self._unwatched)
        left = sum(map(self._selected_bytes, self._unwatched))
        for key in list(self._unwatched)[:-1]:  # but for the one asked for last
            if count <= _UNWATCHED_MAX and left <= _UNWATCHED_BYTES_MAX:
                return
            home, selection = key
            lists = self._by_home[home]
            kept = lists[selection]
            is_wanted = kept.making is not None or kept.askers
            if is_wanted or (selection.is_all and len(lists) > 1):
                self._unwatched.move_to_end(key)  # somebody waits, or builds on it
            else:
                count, left = count - 1, left - self._selected_bytes(key)
                self._forget(kept)

    def _selected_bytes(self, key: Key) -> int:
        home, selection = key
        kept = None if selection.is_all else self._by_home.get(home, {}).get(selection)
        return kept.size_bytes if kept is not None else 0

    def _forget(self, kept: KeptList) -> None:
        kept.is_over = True
        self._unwatched.pop((kept.home, kept.selection), None)
        lists = self._by_home[kept.home]
        del lists[kept.selection]
        self._catching_up.dropped(kept, is_last=not any(each.selector for each in lists.values()))
        if not lists:
            del self._by_home[kept.home]

    # --- making -------------------------------------------------------------------------

    def _make(self, kept: KeptList) -> None:
        make = self._whole if kept.selector is None else self._some
        task = supervised(make(kept), "topic list")
        kept.making = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _whole(self, kept: KeptList) -> None:
        try:
            async with self._whole_turn:
                view = self._view
                found: list[str] = []
                slices = Slices(self._now)
                # A single look takes no place of the topics that the view keeps at hand.
                for name, topic in view.topic_states(kept.home):
                    if slices.over():
                        await slices.rest()
                    if topic.is_open:
                        found.append(full_name(name))
                kept.made(found)
        finally:
            self._settled(kept)

    async def _some(self, kept: KeptList) -> None:
        try:
            whole = await self.of(kept.home)
            async with self._selected_turn:
                kept.has_seen = self._catching_up.number
                found = await self._selected_of(kept, whole)
                if kept.refusal:
                    raise OverloadedError(kept.refusal)
                kept.made(found)
                self._catching_up.made(kept)
                if self._noting is None:
                    self._catch_up()
        finally:
            self._settled(kept)

    async def _selected_of(self, kept: KeptList, whole: KeptList) -> list[str]:
        view, selector = self._view, kept.selector
        found: list[str] = []
        slices, spent, used = Slices(self._now), MatchingRound(), self._catching_up.used
        begun, done = used(), 0
        if selector is None:
            return found
        for piece in whole.list.names.pieces:
            for name in names_of(piece):
                if slices.over():
                    if not spent.goes_on(kept.effort, done, used() - begun):
                        self._refuse(kept)
                        return []
                    await slices.rest()
                    begun, done = used(), 0
                done += 1
                bare = name[_DOMAIN_LENGTH:]
                topic = view.topic(bare) if selector.needs_properties else None
                if selector.takes(bare, topic.properties if topic is not None else ()):
                    found.append(name)
        spent.goes_on(kept.effort, done, used() - begun)
        return found

    def _settled(self, kept: KeptList) -> None:
        """Forgets a list that could not be made; the next request has it made anew."""
        if kept.making is not None and not kept.is_over:
            self._forget(kept)
        self._forget_some()

    # --- changes ------------------------------------------------------------------------

    def _changed(self, topics: list[str], _units: list[str]) -> None:
        wholes: dict[KeptList, None] = {}
        for name in topics:
            lists = self._by_home.get(namespace_of(name), {})
            whole = lists.get(ALL)
            if whole is not None and whole.note(full_name(name), self._state_of(name)[0]):
                wholes[whole] = None
            if len(lists) > (whole is not None):
                self._catching_up.changed(namespace_of(name), name, lists.values())
        for kept in wholes:
            kept.wake()
        if self._noting is None:
            self._catch_up()

    def _catch_up(self) -> None:
        """Brings lists of selections up to date, as far as one slice of time goes."""
        self._catching_up.go_on(Slices(self._now))
        self._noting = None
        if not self._catching_up.is_done:
            self._noting = supervised(self._catch_up_later(), "topic lists catch up")
            self._tasks.add(self._noting)
            self._noting.add_done_callback(self._tasks.discard)

    async def _catch_up_later(self) -> None:
        try:
            self._catch_up()
        except Exception:
            self._forget_all()  # missed changes would stay missing
            raise

    def _least_seen(self, home: Namespace) -> int:
        """The change up to which all of a namespace's lists of selections have all changes."""
        lists = self._by_home.get(home, {}).values()
        number = self._catching_up.number
        return min((kept.has_seen for kept in lists if kept.selector is not None), default=number)

    def _give_up(self, kept: KeptList) -> None:
        """Ends a list of a selection that takes too long, for all who follow it."""
        self._refuse(kept)
        self._forget(kept)
        kept.wake()

    def _refuse(self, kept: KeptList) -> None:
        selection, took_s = kept.selection, kept.effort.mean_s
        what = f"pattern {selection.pattern!r}" if selection.pattern else "property filters"
        kept.refusal = (
            f"the topics' {what} took {took_s * 1e6:.0f} microseconds for each topic, and what "
            f"takes more than {DEAR_S * 1e6:.0f} is served only while a node has time; use one "
            "with fewer and smaller repetitions, or watch the whole namespace"
        )
        self.given_up += 1
        self._log.warning("topic_list.given_up", namespace=kept.home, why=kept.refusal)

    def _state_of(self, name: str) -> tuple[bool, tuple[str, ...]]:
        """Returns whether the topic is open, and its properties."""
        topic = self._view.topic(name)
        return (topic.is_open, topic.properties) if topic is not None else (False, ())

    def _check_view(self) -> None:
        """A view that was built anew tells no changes: all that was kept of the former is over."""
        if self._view is self._runtime.view:
            return
        self._view = self._runtime.view
        self._forget_all()

    def _forget_all(self) -> None:
        """Forgets all lists; their watchers begin anew."""
        kept_lists = [kept for lists in self._by_home.values() for kept in lists.values()]
        for kept in kept_lists:
            self._forget(kept)
            if kept.making is not None:
                kept.making.cancel()
                kept.making = None
        for kept in kept_lists:
            kept.wake()
