"""`SharedResources`: all that the topics of one consumer share."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from anabranch.client._consumer.reads import ReadTrouble
from anabranch.client._consumer.resources import ConsumerResources, Offsets, Plane
from anabranch.client._many.connections import SharedConnections
from anabranch.client._many.offsets import OffsetsClient
from anabranch.client._many.plane import SharedPlanes
from anabranch.client._settings import ReadSettings
from anabranch.client._topics.nodes import Nodes

_KEEP_ALIVES: Final = 4  # reports in the time of a session: a thousand topics have as many


class SharedResources(ConsumerResources):
    """The shared parts of one consumer over many topics. Make it and use it on one event loop.

    `nodes` has the addresses of nodes and the way to connect to them.
    """

    keep_alives = _KEEP_ALIVES
    look_s = math.inf  # the consumer looks once for all topics

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = Nodes(nodes.url, SharedConnections(nodes.connecting).connect)
        self._numbers = itertools.count(1)
        self._offsets = OffsetsClient()
        self._planes = SharedPlanes()

    def numbers(self) -> Iterator[int]:
        return self._numbers

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
        del skips_gone  # streams do
        return self._planes.lane(kafka, settings, on_read, trouble, partitions)

    def offsets(self, kafka: Mapping[str, Any], session_s: float, mark: str) -> Offsets:
        return self._offsets.of_group(kafka, session_s, mark)

    async def close(self) -> None:
        """Ends the shared parts, once no topic uses them any more."""
        await asyncio.gather(self._planes.close(), self._offsets.close(), return_exceptions=True)
