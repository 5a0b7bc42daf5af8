"""Lists of topics from a node: how long they take, how many, and what following them costs."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import uvloop

from anabranch.core.names import full_name
from anabranch.core.topic_lists.topic_list import topics_hash
from anabranch.devkit.nodes import NodeProcess, await_ready, stop_all
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandGetTopicsOfNamespace,
    CommandGetTopicsOfNamespaceResponse,
    CommandWatchTopicList,
)
from anabranch.wire.client import ClientConnection, connect
from bench.figure import Measured, spread
from bench.http.client import Client as HttpClient
from bench.nodes.proxying import framed, rate
from bench.place import Place, resident_mb
from bench.topics.memory import own_all
from support.topics_on_log import append_topics

_HOME: Final = "public/default"
_LONG: Final = 100_000
_SHORT: Final = 1_000
_WATCHES: Final = 1_000
_REPEATS: Final = 15
_ROUNDS: Final = 4  # of so many watches each
_CREATED: Final = 10
_SECONDS: Final = 5.0
_SETTLED_S: Final = 5.0
_SETTLED_AT_FIRST_S: Final = 20.0  # after a start, what a node keeps at hand fills up
_SETTLE_S_MAX: Final = 180.0
_LOOK_S: Final = 0.1
_REST_S: Final = 0.2
_GROWTH_MB: Final = 0.5  # that is not worth waiting for
_DEADLINE_S: Final = 60.0
_GOAL_MS: Final = 300.0
_GOAL_RATIO: Final = 1.5
_GOAL_RATE: Final = 2_000
_GOAL_NEWS_MS: Final = 50.0
_GOAL_MB: Final = 40.0
# Whoever has the bundles keeps them as they are.
_STAYING: Final = (
    "loadBalancerSheddingEnabled=false",
    "loadBalancerAutoBundleSplitEnabled=false",
)
_ASKED: Final = CommandGetTopicsOfNamespace(namespace=_HOME, request_id=1)


def long_list(place: Place) -> Measured:
    """From the request until the client has the list, decoded; in turn with serializing it.

    What is compared is processor time, of the node's event loop and of the client's together.
    """
    names = _names(_LONG // 10 if place.quick else _LONG)
    with _onlooker(place, names) as node:
        looks = uvloop.run(_listed(node, [full_name(name) for name in names]))
    used = [look.by_node + look.by_client for look in looks]
    took, serializing = [look.took for look in looks], [look.serializing for look in looks]
    waited, value = statistics.median(took), statistics.median(used)
    limit = statistics.median(serializing)
    return Measured(
        value,
        "ms",
        max(waited / _GOAL_MS, value / limit / _GOAL_RATIO),
        1.0,
        limit=limit,
        limit_what="serializing the list once",
        details={
            "topics": len(names),
            "waited": spread(took),
            "used": spread(used),
            "by_node": spread([look.by_node for look in looks]),
            "by_client": spread([look.by_client for look in looks]),
            "serializing": spread(serializing),
            # What the node's loop does by itself in a second, list or no list.
            "at_rest": spread([look.at_rest for look in looks]),
        },
    )


def short_lists(place: Place) -> Measured:
    """Lists a second, to 32 connections that ask again as soon as they are answered."""
    seconds = 1.0 if place.quick else _SECONDS
    hello = framed(CommandConnect(client_version="bench", protocol_version=21))
    with _node(place, _names(_SHORT)) as node:
        url = node.service_url()
        rates = [uvloop.run(rate(url, hello, framed(_ASKED), seconds)) for _ in range(3)]
    value = statistics.median(rates)
    return Measured(
        value, "lists/s", value, _GOAL_RATE, at_least=True, details={"topics": _SHORT, "of": rates}
    )


def news(place: Place) -> Measured:
    """From the answer to the creation of a topic until the last of the watches was told of it."""
    watches = _WATCHES // 10 if place.quick else _WATCHES
    with _node(place, _names(_SHORT)) as node:
        told = uvloop.run(_told(node, watches))
    value = statistics.median(told)
    return Measured(
        value, "ms", value, _GOAL_NEWS_MS, details={"watches": watches, "of": spread(told)}
    )


def memory(place: Place) -> Measured:
    """What the watches of a namespace add to a node, the list and their connections included.

    They come by the thousand, and nobody leaves: what a thousand adds is the median over all but
    the first, some of which may fit into what was left free before, or the first if it is more.
    """
    quick = 10 if place.quick else 1
    names, watches = _names(_LONG // quick), _WATCHES // quick
    with _onlooker(place, names) as node:
        before = _settled_mb(node, _SETTLED_AT_FIRST_S)
        found = uvloop.run(_grown_mb(node, names, watches))
    grown = [later - earlier for earlier, later in pairwise(found.watched)]
    of_watches = max(grown[0], statistics.median(grown[1:]))
    of_list = max(0.0, found.watched[0] - before)
    details = {
        "topics": len(names),
        "watches": watches,
        "before_mb": before,
        "list_mb": of_list,
        "watches_mb": grown,
        "kb_per_watch": of_watches / watches * 1_024,
        "when_all_had_gone_mb": found.left,
    }
    added = of_list + of_watches
    return Measured(added, "MB", added, _GOAL_MB, details=details)


def _names(count: int) -> list[str]:
    return [f"{_HOME}/topic-{number:06d}" for number in range(count)]


@contextmanager
def _node(place: Place, names: list[str]) -> Iterator[NodeProcess]:
    """A node that serves, alone, with those topics, which are its own."""
    prefix = f"bench-{place.number()}."
    process = _with_topics(place, prefix, names)
    try:
        process.start()
        await_ready([process])
        yield process
    finally:
        stop_all([process])


@contextmanager
def _onlooker(place: Place, names: list[str]) -> Iterator[NodeProcess]:
    """A node that knows those topics, and serves none of them.

    Whoever serves 100,000 looks at 2,000 of them each second, and takes hundreds of MB for that:
    they would be taken for the list's. So another node serves them all the while; were it gone,
    its bundles would soon be this one's. Raises RuntimeError when some were.
    """
    prefix = f"bench-{place.number()}."
    owner = _with_topics(place, prefix, names, *_STAYING)
    process = place.lonely_node(prefix, *_STAYING)
    try:
        for each in (owner, process):
            each.start()
            await_ready([each])
        yield process
        _check_owner(process, owner)
    finally:
        stop_all([process, owner])


def _check_owner(asked: NodeProcess, owner: NodeProcess) -> None:
    client = HttpClient(asked)
    found = client.owners(_HOME)
    client.close()
    if set(found.values()) != {owner.broker_id}:
        raise RuntimeError(
            f"not all topics were {owner.broker_id}'s while it was measured: {found}"
        )


def _with_topics(place: Place, prefix: str, names: list[str], *settings: str) -> NodeProcess:
    """A node that was killed, and whose bundles have those topics."""
    process = place.lonely_node(prefix, *settings)
    try:
        process.start()
        await_ready([process])
        own_all(process, _HOME)
    finally:
        process.kill()
    append_topics(place.connection, prefix, process.broker_id, names, 1)
    return process


async def _connected(node: NodeProcess) -> ClientConnection:
    where = urlsplit(node.service_url())
    return await connect(where.hostname or "", where.port or 0, timeout_s=_DEADLINE_S)


class _Look(NamedTuple):
    """One list, in ms: of waiting, of both processors, of serializing, of the node at rest."""

    took: float
    by_node: float
    by_client: float
    serializing: float
    at_rest: float  # in a second


async def _listed(node: NodeProcess, names: list[str]) -> list[_Look]:
    looks = []
    client = await _connected(node)
    for _ in range(_REPEATS + 1):
        resting = _loop_s(node)
        await asyncio.sleep(_REST_S)
        at_rest = (_loop_s(node) - resting) / _REST_S
        began, by_client, by_node = time.perf_counter(), time.thread_time(), _loop_s(node)
        answer = (await client.request(_ASKED, _DEADLINE_S)).getTopicsOfNamespaceResponse
        took, by_client = time.perf_counter() - began, time.thread_time() - by_client
        by_node = _loop_s(node) - by_node
        if len(answer.topics) != len(names):
            raise RuntimeError(f"{len(answer.topics)} of {len(names)} topics were listed")
        began = time.thread_time()
        CommandGetTopicsOfNamespaceResponse(topics=names).SerializePartialToString()
        serializing = time.thread_time() - began
        found = (took, by_node, by_client, serializing, at_rest)
        looks.append(_Look(*(seconds * 1_000 for seconds in found)))
    client.close("measured")
    return looks[1:]  # the first one made the list


def _loop_s(node: NodeProcess) -> float:
    """Processor time of the node's main thread, in which its event loop runs."""
    used_ns = Path(f"/proc/{node.pid}/task/{node.pid}/schedstat").read_text().split()[0]
    return int(used_ns) / 1e9


async def _watching(
    node: NodeProcess, count: int, known: str, told: asyncio.Queue[float]
) -> list[ClientConnection]:
    """So many watches, each over a connection of its own."""
    where = urlsplit(node.service_url())

    def take(command: BaseCommand) -> None:
        if command.type == BaseCommand.WATCH_TOPIC_UPDATE:
            told.put_nowait(time.perf_counter())

    clients = []
    for _ in range(count):
        client = await connect(
            where.hostname or "", where.port or 0, on_push=take, timeout_s=_DEADLINE_S
        )
        asked = CommandWatchTopicList(
            namespace=_HOME, topics_pattern=".*", watcher_id=1, topics_hash=known
        )
        await client.request(asked, _DEADLINE_S)
        clients.append(client)
    return clients


async def _told(node: NodeProcess, watches: int) -> list[float]:
    known = topics_hash([full_name(name) for name in _names(_SHORT)])
    heard: asyncio.Queue[float] = asyncio.Queue(maxsize=watches * (_CREATED + 1))
    clients = await _watching(node, watches, known, heard)
    http = HttpClient(node)
    took = []
    for number in range(_CREATED):
        create = partial(http.put, f"/admin/v2/scalable/{_HOME}/news-{number}")
        await asyncio.to_thread(create)
        created = time.perf_counter()
        async with asyncio.timeout(_DEADLINE_S):
            times = [await heard.get() for _ in range(watches)]
        took.append(max(0.0, (max(times) - created) * 1_000))
    http.close()
    for client in clients:
        client.abort("measured")
    return took


class _Grown(NamedTuple):
    """The node's memory in MB."""

    watched: list[float]  # with one watch, then with so many more each time
    left: float  # when all had gone


async def _grown_mb(node: NodeProcess, names: list[str], watches: int) -> _Grown:
    known = topics_hash([full_name(name) for name in names])
    watched, clients = [], []
    for count in (1, *[watches] * _ROUNDS):
        told: asyncio.Queue[float] = asyncio.Queue(maxsize=count)
        clients += await _watching(node, count, known, told)
        watched.append(await asyncio.to_thread(_settled_mb, node))
    for client in clients:
        client.abort("measured")
    await asyncio.wait([client.closed for client in clients])
    return _Grown(watched, await asyncio.to_thread(_settled_mb, node))


def _settled_mb(node: NodeProcess, quiet_s: float = _SETTLED_S) -> float:
    """Its memory once it grows no more, or after some minutes: that it settles is not certain."""
    most, since = resident_mb(node.pid or 0), time.monotonic()
    until = since + _SETTLE_S_MAX
    while time.monotonic() < min(since + quiet_s, until):
        time.sleep(_LOOK_S)
        found = resident_mb(node.pid or 0)
        if found > most + _GROWTH_MB:
            most, since = found, time.monotonic()
    return resident_mb(node.pid or 0)
