"""The followers of topics: watches of layouts, searches for controllers, a node's own topics.

Any node can tell a layout and its controller, because both come from its own fold. A watcher is
told that there is something new, and looks when it can take it: only the newest matters.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec

from anabranch.broker.errors import NotFoundError, OperationError
from anabranch.broker.topics.controllers.access import TopicAccess
from anabranch.broker.topics.controllers.service import TopicService
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.entities.unit import LEADERSHIP
from anabranch.core.names import full_name, namespace_of
from anabranch.core.ring import split_bundle_name, topic_hash
from anabranch.wire.supervised import supervised

_AGAIN_S: Final = 1.0
_RESTLESS_MAX: Final = 64  # looked at in one tick
Wake = Callable[[], None]
Mark = tuple[int, int, str, str]
_AT_ONCE: Final = 500  # topics looked at before others have their turn


class WatchedTopic(msgspec.Struct, frozen=True):
    """A watcher's view: the topic (None: there is none) and its controller's address."""

    topic: ScalableTopic | None
    service_url: str = ""
    service_url_tls: str = ""

    @property
    def mark(self) -> Mark:
        """Differs whenever there is something to tell."""
        if self.topic is None:
            return (-1, 0, "", "")
        urls = self.service_url, self.service_url_tls
        return (self.topic.incarnation, self.topic.version, *urls)


class Watches:
    """All watches of this node, for use in its event loop.

    While a topic is watched, it has a controller, or one is looked for. The leader does the same
    for topics whose operation stopped because their bundle is free.
    """

    def __init__(self, access: TopicAccess) -> None:
        self._access = access
        self._runtime = access.runtime
        self._searches: dict[str, asyncio.Task[None]] = {}
        self._last_restless = ""
        self._by_topic: dict[str, dict[Wake, None]] = {}
        self._by_namespace: dict[str, dict[str, int]] = {}  # topics, with their place on the ring
        self._generation = self._runtime.generation
        self.count = 0
        access.service.listeners.append(self._changed)
        access.service.tickers.append(self._ticked)

    async def stop(self) -> None:
        """Ends all searches for controllers."""
        searches = list(self._searches.values())
        for search in searches:
            search.cancel()
        await asyncio.gather(*searches, return_exceptions=True)

    def look(self, topic: str) -> WatchedTopic:
        """The topic as this node sees it."""
        found = self._runtime.view.topic(topic)
        if found is None:
            return WatchedTopic(None)
        located = self._access.controller_at(topic)
        if located is None:
            return WatchedTopic(found)
        return WatchedTopic(found, located.service_url, located.service_url_tls)

    async def appears(self, topic: str) -> None:
        """Makes sure of a topic that seems not to be there: another node may have just made it.

        Raises NotFoundError without its namespace, UnavailableError, or PreconditionError where
        topics are switched off.
        """
        self._access.must_be_enabled()
        if self._runtime.view.topic(topic) is not None:
            return

        async def look() -> None:
            self._access.topic(topic)

        with suppress(NotFoundError):
            await self._access.proposals.decided(look)
        self._access.namespace(topic)

    def add(self, topic: str, wake: Wake) -> None:
        """`wake` is called after every change, in the event loop; it must be quick."""
        self._by_topic.setdefault(topic, {})[wake] = None
        home = self._by_namespace.setdefault(namespace_of(topic), {})
        home[topic] = topic_hash(full_name(topic))
        self.count += 1
        self._seek(topic)

    def remove(self, topic: str, wake: Wake) -> None:
        """No more calls."""
        watching = self._by_topic.get(topic)
        if watching is None or wake not in watching:
            return
        del watching[wake]
        self.count -= 1
        if not watching:
            del self._by_topic[topic]
            home = self._by_namespace[namespace_of(topic)]
            del home[topic]
            if not home:
                del self._by_namespace[namespace_of(topic)]

    def _reached(self) -> None:
        """Brokers may have come, gone or moved."""
        if self._generation != self._runtime.generation:
            self._generation = self._runtime.generation
            self._wake(list(self._by_topic))

    def _changed(self, topics: list[str], units: list[str]) -> None:
        self._reached()
        self._wake(topic for topic in topics if topic in self._by_topic)
        for unit in dict.fromkeys(units):
            watched = self._by_namespace.get(unit.rpartition("/")[0])
            if watched:
                part = split_bundle_name(unit)[1]
                self._wake([topic for topic, place in watched.items() if place in part])

    def _wake(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for wake in list(self._by_topic.get(topic, ())):
                wake()
            self._seek(topic)

    # --- controllers --------------------------------------------------------------------

    def _ticked(self) -> None:
        self._reached()
        if not self._runtime.has_lease or not self._runtime.core.is_leader():
            return
        names = sorted(self._runtime.view.restless_topics())
        at = bisect_right(names, self._last_restless)  # all of them in turn, some in a tick
        for topic in (names[at:] + names[:at])[:_RESTLESS_MAX]:
            self._last_restless = topic
            self._seek(topic)

    def _seek(self, topic: str) -> None:
        """Looks for the topic's controller, if it is not known."""
        if topic in self._searches or self._access.controller_at(topic) is not None:
            return
        search = supervised(self._find(topic), "find controller")
        self._searches[topic] = search
        search.add_done_callback(lambda _: self._searches.pop(topic, None))

    async def _find(self, topic: str) -> None:
        while self._is_wanted(topic) and not self._runtime.ended.done():
            with suppress(OperationError):
                await self._access.find_controller(topic)
                return
            await asyncio.sleep(_AGAIN_S)

    def _is_wanted(self, name: str) -> bool:
        topic = self._runtime.view.topic(name)
        return name in self._by_topic or (topic is not None and topic.is_restless)


class OwnedTopics:
    """This node's topics, by the changes of the log. For use in the node's event loop."""

    def __init__(self, service: TopicService) -> None:
        self._service = service
        self._runtime = service.runtime
        self._names: dict[str, None] = {}
        self._following: asyncio.Task[None] | None = None
        self._homes: set[str] = set()  # namespaces that it has, or had, a topic of
        # Namespaces whose bundles came or went: any topic of theirs may be concerned.
        self._moved: set[str] = set()
        self._followed: object = None  # the view whose bundles were looked at
        service.listeners.append(self._changed)
        service.tickers.append(self._ticked)

    def __len__(self) -> int:
        return len(self._names)

    def names(self) -> list[str]:
        """Returns the names as of the last change of the log; they are complete soon after a bundle
        came.
        """
        return list(self._names)

    async def follow(self) -> None:
        """Takes in the topics of bundles that came."""
        while self._is_behind:
            moved, self._moved = self._moved, set()
            found: list[str] = []
            if self._followed is not self._runtime.view:  # at the start, or after it was rebuilt
                self._followed = self._runtime.view
                mine = self._runtime.view.units_of(self._runtime.core.me)
                moved = {unit.rpartition("/")[0] for unit, _ in mine if unit != LEADERSHIP}
                found += self._names
            for home in sorted(moved):
                found += self._runtime.view.topics(home)
            for number, name in enumerate(found):
                self._look(name)
                if number % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(0)

    def _ticked(self) -> None:
        if self._is_behind and self._following is None:
            self._following = asyncio.create_task(self.follow(), name="owned topics")
            self._following.add_done_callback(self._done)

    @property
    def _is_behind(self) -> bool:
        return bool(self._moved) or self._followed is not self._runtime.view

    def _done(self, task: asyncio.Task[None]) -> None:
        self._following = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._runtime.fail(f"a fault while its topics were counted: {error}")

    async def stop(self) -> None:
        """Ends work under way."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    def _changed(self, topics: list[str], units: list[str]) -> None:
        serving = self._runtime.core.serving
        for unit in units:
            home = unit.rpartition("/")[0]
            if unit in serving or home in self._homes:
                self._moved.add(home)
        for name in topics:
            self._look(name)

    def _look(self, name: str) -> None:
        topic = self._runtime.view.topic(name)
        owner = self._runtime.routes.owner(full_name(name), namespace_of(name))
        if topic is not None and topic.is_open and owner == self._runtime.core.me:
            self._names[name] = None
            self._homes.add(namespace_of(name))
        else:
            self._names.pop(name, None)
