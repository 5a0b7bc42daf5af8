"""`Watches`: whoever wants to know a topic's layout and controller, now and at every change.

Any node can tell: both come from its own fold. A watcher is told that there is something new, and
looks when it can take it: only the newest matters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec

from anabranch.broker.topics.access import Access
from anabranch.broker.topics.seeker import Seeker
from anabranch.core.names import full_name, namespace_of
from anabranch.core.records import topic_key
from anabranch.core.ring import split_bundle_name, topic_hash
from anabranch.core.topics import ScalableTopic

_LAG_S: Final = 0.5  # how far this node may be behind one that the client has just spoken to

Wake = Callable[[], None]
Mark = tuple[int, int, str, str]


class Seen(msgspec.Struct, frozen=True):
    """What a watcher sees: the topic (None: there is none) and where its controller is."""

    topic: ScalableTopic | None
    web_url: str = ""
    service_url: str = ""

    @property
    def mark(self) -> Mark:
        """Differs whenever there is something to tell."""
        if self.topic is None:
            return (-1, 0, "", "")
        return (self.topic.incarnation, self.topic.version, self.web_url, self.service_url)


class Watches:
    """All watches of this node. To be used in its event loop."""

    def __init__(self, access: Access, seeker: Seeker) -> None:
        self._access = access
        self._seeker = seeker
        self._runtime = access.runtime
        self._by_topic: dict[str, dict[Wake, None]] = {}
        self._by_namespace: dict[str, dict[str, int]] = {}  # topics, with their place on the ring
        self._generation = self._runtime.generation
        self.count = 0
        access.service.listeners.append(self._changed)
        access.service.tickers.append(self._reached)

    def look(self, topic: str) -> Seen:
        """The topic as this node sees it."""
        found = self._runtime.view.topic(topic)
        if found is None:
            return Seen(None)
        located = self._access.controller_at(topic)
        if located is None:
            return Seen(found)
        return Seen(found, located.web_url, located.service_url)

    async def appears(self, topic: str) -> None:
        """Waits a moment for a topic that is not there: another node may have just made it."""
        if self._runtime.view.topic(topic) is None:
            self._access.namespace(topic)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAG_S):
                    await self._runtime.changed(topic_key(topic))

    def add(self, topic: str, wake: Wake) -> None:
        """`wake` is called after every change, in the event loop; it must be quick.

        While the topic is watched, it has a controller, or one is looked for.
        """
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

    def _changed(self, topics: set[str], units: list[str]) -> None:
        self._reached()
        self._wake(topic for topic in sorted(topics) if topic in self._by_topic)
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

    def _seek(self, topic: str) -> None:
        self._seeker.seek(topic, self._by_topic.__contains__)
