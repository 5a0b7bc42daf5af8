"""`TopicLists`: the lists of topics that somebody asked this node for, kept up to date by the log.

A list is made when it is asked for first, by looking at every topic of the namespace, a slice of
time each; from then on the changes of the log keep it. That of a whole namespace is the source of
those that a pattern or properties select. What nobody watches may be forgotten again.

A topic that changes is held against each selection, which nearly always is done at once. Strangers'
patterns may take long, all of them together: then others have their turn in between, and who asks
for a list of a selection waits until it has what had changed by then.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from anabranch.broker.errors import OverloadedError, UnavailableError
from anabranch.broker.runtime import FoldingReplica, Runtime
from anabranch.broker.topics.controllers.service import TopicService
from anabranch.core.names import Namespace, full_name, namespace_of
from anabranch.core.topic_lists.selection import ALL, Selection, Selector
from anabranch.core.topic_lists.sorted_names import names_of
from anabranch.core.topic_lists.topic_list import TopicList
from anabranch.wire import clock

Wake = Callable[[], None]

INITIAL_BYTES: Final = 1_024  # of heap, before it is known how long a list is
_UNWATCHED_MAX: Final = 64  # lists that are kept for who may ask again
_UNWATCHED_BYTES_MAX: Final = 32 << 20  # of them, but for those of whole namespaces
_SELECTED_MAX: Final = 1_000  # lists of patterns and properties: each change is held against all
_SELECTED_BYTES_MAX: Final = 128 << 20  # of them
_SLICE_S: Final = 0.005  # of making a list, before others have their turn
_DOMAIN_LENGTH: Final = len(full_name(""))


class KeptList:
    """A list of a namespace's open topics, all or some. Only its `TopicLists` changes it."""

    def __init__(self, home: Namespace, selection: Selection) -> None:
        self.home = home
        self.selection = selection
        self.selector = None if selection.is_all else Selector(selection)
        self.list = TopicList()
        self.is_over = False  # it is not kept up to date any more: ask for it anew
        self.watchers: dict[Wake, None] = {}
        self.making: asyncio.Task[None] | None = None
        self.askers = 0  # who wait until it is made
        self.late_came = 0  # it has no more than some of so many changes yet
        self._meanwhile: dict[str, bool] = {}  # what changed while it was made

    @property
    def size_bytes(self) -> int:
        """What it takes: the names, and what is said of them, which may be much and select none."""
        return self.list.names.names_bytes + self.selection.length

    def note(self, name: str, present: bool) -> bool:
        """The topic of this full name belongs to it now, or does not; whether that is new."""
        if self.making is not None:
            self._meanwhile[name] = present
            return False
        return self.list.note(name, present)

    def made(self, names: Iterable[str]) -> None:
        """These were found, each at some moment since it was begun; what changed since counts."""
        found = {name for name in names if self._meanwhile.get(name, True)}
        found.update(name for name, present in self._meanwhile.items() if present)
        self.list = TopicList(found)
        self._meanwhile.clear()
        self.making = None

    def wake(self) -> None:
        """There is something new for those who watch it."""
        for each in list(self.watchers):
            each()


_Key = tuple[Namespace, Selection]


class TopicLists:
    """All lists of this node. To be used in its event loop."""

    def __init__(self, service: TopicService, now: Callable[[], float] = clock.now) -> None:
        self._now = now
        self._runtime: Runtime = service.runtime
        self._view: FoldingReplica = self._runtime.view
        self._by_home: dict[Namespace, dict[Selection, KeptList]] = {}
        self._unwatched: OrderedDict[_Key, None] = OrderedDict()  # the one asked for last is last
        self._stopped = False
        # One at a time of each kind: what strangers ask for shares one slice of each turn.
        self._whole_turn = asyncio.Lock()
        self._selected_turn = asyncio.Lock()
        self._new_turn = asyncio.Lock()
        # Topics that changed and were not held against selections yet.
        self._late: dict[str, None] = {}
        self._late_came = self._late_done = 0  # how many changes
        self._late_steps: Iterator[None] = iter(())
        self._late_slice = _Slices(now)
        self._noting: asyncio.Task[None] | None = None  # the next slice of that
        self._tasks: set[asyncio.Task[None]] = set()
        self.watch_count = 0
        service.listeners.append(self._changed)
        service.tickers.append(self._check_view)

    async def of(self, home: Namespace, selection: Selection = ALL) -> KeptList:
        """The list as it is now. Of a namespace that is not there it is empty.

        Raises PatternError, or OverloadedError where too many are kept. Who wants it to stay calls
        `watch` before the next `await`.
        """
        came = self._late_came
        if not selection.is_all and selection not in self._by_home.get(home, ()):
            async with self._new_turn:  # a pattern takes long to be read, so it is one in each turn
                await asyncio.sleep(0)
        while not self._stopped:
            self._check_view()
            kept = self._found(home, selection)
            awaited = kept.making
            late = max(came, kept.late_came)
            if awaited is None and not selection.is_all and self._late_done < late:
                awaited = self._noting
            if awaited is None:
                return kept
            kept.askers += 1
            try:
                await asyncio.wait([awaited])  # who is cancelled does not end it for others
            finally:
                kept.askers -= 1
            if not awaited.cancelled():
                awaited.result()
        raise UnavailableError("this node is stopping; ask another one")

    def watch(self, kept: KeptList, wake: Wake) -> None:
        """`wake` is called in the event loop when the list has changed; it must be quick."""
        kept.watchers[wake] = None
        self._unwatched.pop((kept.home, kept.selection), None)
        self.watch_count += 1

    def unwatch(self, kept: KeptList, wake: Wake) -> None:
        """No more calls."""
        if kept.watchers.pop(wake, self) is self:
            return
        self.watch_count -= 1
        if not kept.watchers and not kept.is_over:
            self._unwatched[kept.home, kept.selection] = None
            self._forget_some()

    @property
    def count(self) -> int:
        """How many lists are kept."""
        return sum(map(len, self._by_home.values()))

    async def stop(self) -> None:
        """Ends what is under way."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- what is kept -------------------------------------------------------------------

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
        if len(sizes) >= _SELECTED_MAX or sum(sizes) > _SELECTED_BYTES_MAX:
            raise OverloadedError(
                f"this node follows {len(sizes)} patterns and property filters of "
                f"{sum(sizes) >> 20} MB, and takes {_SELECTED_MAX} of "
                f"{_SELECTED_BYTES_MAX >> 20} MB; watch the whole namespace, or ask another node"
            )

    def _forget_some(self) -> None:
        """Keeps no more of what nobody watches than there is room for."""
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

    def _selected_bytes(self, key: _Key) -> int:
        home, selection = key
        return 0 if selection.is_all else self._by_home[home][selection].size_bytes

    def _forget(self, kept: KeptList) -> None:
        kept.is_over = True
        self._unwatched.pop((kept.home, kept.selection), None)
        lists = self._by_home[kept.home]
        del lists[kept.selection]
        if not lists:
            del self._by_home[kept.home]

    # --- making -------------------------------------------------------------------------

    def _make(self, kept: KeptList) -> None:
        make = self._whole if kept.selector is None else self._some
        task = asyncio.create_task(make(kept), name="topic list")
        kept.making = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _whole(self, kept: KeptList) -> None:
        try:
            async with self._whole_turn:
                view = self._view
                found: list[str] = []
                slices = _Slices(self._now)
                # What is looked at once takes no place of what the view keeps at hand.
                for name, topic in view.topic_states(kept.home):
                    if slices.is_over:
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
                kept.made(await self._selected_of(kept, whole))
                kept.late_came = self._late_came
        finally:
            self._settled(kept)

    async def _selected_of(self, kept: KeptList, whole: KeptList) -> list[str]:
        view, selector = self._view, kept.selector
        found: list[str] = []
        slices = _Slices(self._now)
        if selector is None:
            return found
        for piece in whole.list.names.pieces:
            for name in names_of(piece):
                if slices.is_over:
                    await slices.rest()
                bare = name[_DOMAIN_LENGTH:]
                topic = view.topic(bare) if selector.needs_properties else None
                if selector.takes(bare, topic.properties if topic is not None else ()):
                    found.append(name)
        return found

    def _settled(self, kept: KeptList) -> None:
        """Of one that could not be made nothing is left; whoever asks again has it made anew."""
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
                self._late_came += 1
                self._late[name] = None
        for kept in wholes:
            kept.wake()
        if self._noting is None and self._late:
            self._late_steps = self._held_against_selections()
            self._note_late()

    def _note_late(self) -> None:
        """Lists of selections have what is late, as far as one slice of time goes."""
        self._late_slice = _Slices(self._now)
        self._noting = None
        if next(self._late_steps, self) is not self:
            self._noting = asyncio.create_task(self._note_later(), name="topic lists, what is late")
            self._tasks.add(self._noting)
            self._noting.add_done_callback(self._tasks.discard)

    async def _note_later(self) -> None:
        try:
            self._note_late()
        except Exception:
            self._forget_all()  # what was missed, nobody would make up for
            raise

    def _held_against_selections(self) -> Iterator[None]:
        """One step for each slice of time. What is found counts at once when nothing is late any
        more: no list is ever one that the log has not had.
        """
        found: dict[KeptList, dict[str, bool]] = {}
        while self._late:
            name = next(iter(self._late))
            del self._late[name]
            is_open, properties = self._state_of(name)  # when that changes, it is late again
            for kept in list(self._by_home.get(namespace_of(name), {}).values()):
                if self._late_slice.is_over:
                    yield
                selector = kept.selector
                if selector is not None and not kept.is_over:
                    present = is_open and selector.takes(name, properties)
                    found.setdefault(kept, {})[full_name(name)] = present
        self._late_done = self._late_came
        for kept, names in found.items():
            changes = sum(kept.note(name, present) for name, present in names.items())
            if changes:
                kept.wake()

    def _state_of(self, name: str) -> tuple[bool, tuple[str, ...]]:
        """Whether it is open, and its properties."""
        topic = self._view.topic(name)
        return (topic.is_open, topic.properties) if topic is not None else (False, ())

    def _check_view(self) -> None:
        """A view that was built anew tells no changes: all that was kept of the former is over."""
        if self._view is self._runtime.view:
            return
        self._view = self._runtime.view
        self._forget_all()

    def _forget_all(self) -> None:
        """Whoever watches begins anew."""
        self._late.clear()
        self._late_done = self._late_came
        kept_lists = [kept for lists in self._by_home.values() for kept in lists.values()]
        for kept in kept_lists:
            self._forget(kept)
            if kept.making is not None:
                kept.making.cancel()
                kept.making = None
        for kept in kept_lists:
            kept.wake()


class _Slices:
    """Slices of time, between which others have their turn."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._until = now() + _SLICE_S

    @property
    def is_over(self) -> bool:
        return self._now() >= self._until

    async def rest(self) -> None:
        """Others have their turn."""
        await asyncio.sleep(0)
        self._until = self._now() + _SLICE_S
