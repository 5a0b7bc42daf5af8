"""`ManyTopicsParts`: all that the topics of one consumer share, and each one's view of it."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.reads import ReadTrouble
from anabranch.client._consumer.resources import ConsumerResources, Offsets, Plane
from anabranch.client._many.connections import SharedConnections
from anabranch.client._many.keeping import OWN_KEEP_ALIVES, SessionKeeper
from anabranch.client._many.offsets import OffsetsClient
from anabranch.client._many.plane import SharedPlanes
from anabranch.client._settings import ReadSettings
from anabranch.client._topics.nodes import NodeConnection, Nodes


class ManyTopicsParts:
    """The shared parts of one consumer over many topics. Make it and use it on one event loop.

    `nodes` has the addresses of nodes and the way to connect to them. `expected` is the number of
    Kafka partitions that come together at first.
    """

    def __init__(self, nodes: Nodes, expected: int) -> None:
        connections = SharedConnections(nodes.connecting)
        self.nodes = Nodes(nodes.url, connections.connect)
        self.connections = connections
        self.numbers = itertools.count(1)
        self.keeper = SessionKeeper()
        self.offsets = OffsetsClient()
        self.planes = SharedPlanes(expected)

    async def close(self) -> None:
        """Ends the shared parts, once no topic uses them any more."""
        await asyncio.gather(self.keeper.close(), self.planes.close())
        await self.offsets.close()

    async def drop(self) -> None:
        """Ends the shared parts after the event loop is over."""
        await asyncio.gather(self.planes.close(), self.offsets.close(), return_exceptions=True)


class SharedResources(ConsumerResources):
    """One topic's view of the shared parts.
    `is_late` is True if the topic was not there at first.
    """

    keep_alives = OWN_KEEP_ALIVES
    look_s = math.inf  # the keeper does

    def __init__(self, parts: ManyTopicsParts, *, is_late: bool) -> None:
        self._parts = parts
        self._is_late = is_late

    def numbers(self) -> Iterator[int]:
        return self._parts.numbers

    def kept(
        self,
        connection: NodeConnection,
        consumer_id: int,
        core: ConsumerCore,
        poke: Callable[[], None],
    ) -> AbstractContextManager[None]:
        return self._parts.keeper.kept(connection, consumer_id, core, poke)

    def plane(
        self,
        kafka: Mapping[str, Any],
        settings: ReadSettings,
        on_read: Callable[[], None],
        trouble: ReadTrouble,
        *,
        skips_gone: bool,
        partitions: int,
    ) -> Plane:
        return self._parts.planes.lane(
            kafka,
            settings,
            on_read,
            trouble,
            skips_gone=skips_gone,
            is_late=self._is_late,
            partitions=partitions,
        )

    def offsets(self, kafka: Mapping[str, Any], session_s: float, mark: str) -> Offsets:
        return self._parts.offsets.of_group(kafka, session_s, mark)
