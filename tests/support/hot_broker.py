"""A broker that look-ups make hot: for tests and figures, on nodes of one machine.

Messages never pass through a node, so only many requests make a node hot. Each bundle of a
namespace has a topic, and a client that looks up this topic again and again. It asks the broker
that has the bundle. A bundle's move takes its client, and the load, along.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

import httpx
import msgspec

from anabranch.admin import AsyncAdmin, AutoScaleOverride
from anabranch.broker.settings import load_settings
from anabranch.cli.cluster.balance_history import AutomaticMove, moves_of
from anabranch.cli.cluster.log import lines
from anabranch.core import names
from anabranch.core.errors import AnabranchError
from anabranch.core.names import full_name
from anabranch.core.ring import HashRange, even_ranges, topic_hash
from anabranch.devkit.nodes import NodeProcess

_HOT_BUNDLES: Final = 8
TARGET: Final = 0.2  # the target deviation of the brokers' loads
# Seconds in place of minutes. Nodes of one machine share its network: that makes none of them hot.
SETTINGS: Final = (
    "loadBalancerBandwidthInResourceWeight=0",
    "loadBalancerBandwidthOutResourceWeight=0",
    "loadBalancerHistoryResourcePercentage=0.5",
    "loadBalancerReportUpdateMinIntervalMillis=500",
    "loadBalancerReportUpdateMaxIntervalMinutes=0.02",
    "loadBalancerSheddingIntervalMinutes=0.05",
    "loadBalancerSheddingGracePeriodMinutes=1",
    "loadBalanceSheddingDelayInSeconds=2",
    "loadBalancerSheddingConditionHitCountThreshold=1",
    f"loadBalancerBrokerLoadTargetStd={TARGET}",
)
# Few messages count as well as many, and no topic scales: bundles alone are to move.
_POLICY: Final = AutoScaleOverride(
    enabled=False,
    mergeMsgRateInThreshold=1,
    mergeBytesRateInThreshold=1,
    mergeMsgRateOutThreshold=1,
    mergeBytesRateOutThreshold=1,
)
_QUIET_BUNDLES_EACH: Final = 2
_TOGETHER: Final = 32  # look-ups of a client that are under way at once
_EASE: Final = 4  # a client pauses for so many times what its look-ups take at best
_POLL_S: Final = 0.1
_ANSWER_S_MAX: Final = 60.0


class HotBrokerError(AnabranchError):
    """The nodes did not reach the state that the scene begins with."""


class SeenLoads(msgspec.Struct, frozen=True):
    """Loads and their deviation by the log's time.
    `oldest_ms` is the time of the oldest measurement.
    """

    at_ms: int
    deviation: float
    loads: dict[str, float]
    oldest_ms: int


class HotBroker:
    """A namespace whose bundles are all on `hot`, and one that the other nodes share.

    The other one gives those nodes messages, too, because a broker without any would be given
    bundles for that alone.
    """

    def __init__(
        self, nodes: Sequence[NodeProcess], hot: NodeProcess, home: str, quiet_home: str
    ) -> None:
        self.hot = hot
        self.home = home
        parts = even_ranges(_HOT_BUNDLES)
        self.topics = {str(part): _topic_of(home, part) for part in parts}
        others = [node for node in nodes if node is not hot]
        self._quiet_home = quiet_home
        quiet = even_ranges(_QUIET_BUNDLES_EACH * len(others))
        self.quiet_topics = {str(part): _topic_of(quiet_home, part) for part in quiet}
        self._others = others
        self._admin = AsyncAdmin(hot.url)

    @property
    def all_topics(self) -> list[str]:
        """Returns one topic for each bundle of both namespaces."""
        return [*self.topics.values(), *self.quiet_topics.values()]

    async def close(self) -> None:
        """Ends the connections."""
        await self._admin.close()

    async def create(self) -> None:
        """Makes namespaces and topics, and moves each bundle to its first broker."""
        for home, topics in ((self.home, self.topics), (self._quiet_home, self.quiet_topics)):
            await self._admin.namespaces.create_namespace(home, len(topics))
            for number, (part, topic) in enumerate(topics.items()):
                await self._admin.scalable_topics.create_scalable_topic(topic)
                await self._admin.scalable_topics.set_auto_scale_policy(topic, _POLICY)
                here = self.hot if home == self.home else self._others[number % len(self._others)]
                await self.transfer(home, part, here.broker_id)

    async def transfer(self, home: str, part: str, broker: str) -> None:
        """Returns once that broker has the bundle."""
        if (await self.owners(home))[part] == broker:
            return
        await self._admin.bundles.unload_bundle(home, part, broker)
        deadline = time.monotonic() + _ANSWER_S_MAX
        while (await self.owners(home))[part] != broker:
            if time.monotonic() > deadline:
                raise HotBrokerError(f"{home}/{part} did not come to {broker} in time")
            await asyncio.sleep(_POLL_S)

    async def owners(self, home: str) -> dict[str, str]:
        """Returns the owner of each bundle, "" for one that is on its way."""
        found = (await self._admin.bundles.get_ownership(home)).bundles
        return {each.bundle: each.broker if each.state == "OWNED" else "" for each in found}

    async def held(self) -> int:
        """Returns the number of bundles of its namespace that the hot broker has, or has not passed
        on yet.
        """
        owners = (await self.owners(self.home)).values()
        return sum(each in ("", self.hot.broker_id) for each in owners)

    async def seen(self) -> SeenLoads:
        """Returns the brokers' loads, as the leader has them."""
        found = await self._admin.balance.get_outlook()
        known = [each for each in found.brokers if each.load is not None]
        return SeenLoads(
            found.at_millis,
            found.deviation or 0.0,
            {each.broker_id: each.load or 0.0 for each in known},
            min((each.updated_millis or 0 for each in known), default=0),
        )


class BusyLookups:
    """A client for each topic, which asks the broker that has it. `run` lasts until it is
    cancelled.

    All clients together learn the best time of an answer to one round of look-ups. A client pauses
    for some times as long, so that about as many of them keep a broker busy on every machine.
    """

    def __init__(self, nodes: Sequence[NodeProcess], topics: Sequence[str]) -> None:
        self.answered = 0
        self.refused: Counter[str] = Counter()
        self._ports = {node.url: node.port for node in nodes}
        self._topics = topics
        self._best_s = float("inf")

    async def run(self) -> None:
        """Asks from the first node on. Each answer names the broker to ask next."""
        async with asyncio.TaskGroup() as group:
            for topic in self._topics:
                group.create_task(self._keep_asking(topic))

    async def _keep_asking(self, topic: str) -> None:
        request = f"GET /lookup/v2/topic/topic/{topic} HTTP/1.1\r\nHost: busy\r\n\r\n".encode()
        url = next(iter(self._ports))
        while True:
            pipe = await _Pipe.open(self._ports[url])
            # A node ends connections that nobody used for a while. The look-ups are then repeated.
            with contextlib.closing(pipe), contextlib.suppress(ConnectionError, EOFError):
                url = await self._ask_until_it_moves(pipe, request, url)

    async def _ask_until_it_moves(self, pipe: _Pipe, request: bytes, url: str) -> str:
        """Asks until the topic's bundle moves, and returns its new place."""
        while True:
            began = time.monotonic()
            owner = url
            for status, body in await pipe.ask(request, _TOGETHER):
                if status == httpx.codes.OK:
                    self.answered += 1
                    owner = json.loads(body)["httpUrl"]
                else:
                    self.refused[f"{status} {body.decode(errors='replace')}"] += 1
            if owner != url:
                return owner
            self._best_s = min(self._best_s, time.monotonic() - began)
            await asyncio.sleep(self._best_s * _EASE)


class _Pipe:
    """A connection on which several requests are under way at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> _Pipe:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, request: bytes, times: int) -> list[tuple[int, bytes]]:
        """Returns status and body of each answer."""
        self._writer.write(request * times)
        return [await self._answer() for _ in range(times)]

    async def _answer(self) -> tuple[int, bytes]:
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        size = head.partition(b"content-length:")[2].split(b"\r", 1)[0]
        return int(head.split(b" ", 2)[1]), await self._reader.readexactly(int(size))

    def close(self) -> None:
        self._writer.close()


def moves_by_itself(
    bootstrap_servers: str, topic_prefix: str, since_ms: int
) -> list[AutomaticMove]:
    """Returns the balancer's decisions since then, with its reasons, from the log."""
    named = {"bootstrapServers": bootstrap_servers, "topicPrefix": topic_prefix}
    moves = moves_of(lines(load_settings(None, {}, named), None, follow=False))
    return [each for each in moves if each.timestamp_ms >= since_ms]


def _topic_of(home: str, part: HashRange) -> str:
    """Returns a scalable topic, `tenant/namespace/name`, that falls into a bundle."""
    namespace = names.namespace(*home.split("/"))
    return next(
        f"{namespace}/at-{number}"
        for number in itertools.count()
        if topic_hash(full_name(f"{namespace}/at-{number}")) in part
    )
