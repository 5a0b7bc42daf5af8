"""Lists of topics from a node: how long they take, how many, and what following them costs."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import uvloop

from anabranch.core.names import full_name
from anabranch.core.topic_lists.sorted_names import topics_hash
from anabranch.devkit.nodes import NodeProcess, await_ready, stop_all
from anabranch.devkit.topics_on_log import append_topics
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandGetTopicsOfNamespace,
    CommandGetTopicsOfNamespaceResponse,
    CommandWatchTopicList,
)
from anabranch.wire.client import ClientConnection, connect
from bench.client import Client as HttpClient
from bench.figure import Measured, spread
from bench.memory import own_all
from bench.place import Place, resident_mb
from bench.proxying import framed, rate

_HOME: Final = "public/default"
_LONG: Final = 100_000
_SHORT: Final = 1_000
_WATCHES: Final = 1_000
_REPEATS: Final = 15
_CREATED: Final = 10
_SECONDS: Final = 5.0
_SETTLED_S: Final = 5.0
_LOOK_S: Final = 0.1
_GROWTH_MB: Final = 0.5  # that is not worth waiting for
_DEADLINE_S: Final = 60.0
_GOAL_MS: Final = 300.0
_GOAL_RATIO: Final = 1.5
_GOAL_RATE: Final = 2_000
_GOAL_NEWS_MS: Final = 50.0
_GOAL_MB: Final = 40.0
_ASKED: Final = CommandGetTopicsOfNamespace(namespace=_HOME, request_id=1)


def long_list(place: Place) -> Measured:
    """From the request until the client has the list, decoded; in turn with serializing it.

    What is compared is processor time, of the node's event loop and of the client's together.
    """
    names = _names(_LONG // 10 if place.quick else _LONG)
    with _node(place, names) as node:
        took, used, serializing = uvloop.run(_listed(node, [full_name(name) for name in names]))
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
            "serializing": spread(serializing),
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
    """What the watches of a namespace add to a node, the list and their connections included."""
    quick = 10 if place.quick else 1
    names, watches = _names(_LONG // quick), _WATCHES // quick
    with _node(place, names) as node:
        before = _settled_mb(node)
        listed, first, second = uvloop.run(_grown_mb(node, names, watches))
    # Some of the first ones may fit into what was left free before.
    each = max(first - listed, second - first) / watches
    added = listed - before + each * watches
    details = {
        "topics": len(names),
        "watches": watches,
        "before_mb": before,
        "list_mb": listed - before,
        "first_watches_mb": first - listed,
        "as_many_again_mb": second - first,
        "kb_per_watch": each * 1_024,
    }
    return Measured(added, "MB", added, _GOAL_MB, details=details)


def _names(count: int) -> list[str]:
    return [f"{_HOME}/topic-{number:06d}" for number in range(count)]


@contextmanager
def _node(place: Place, names: list[str]) -> Iterator[NodeProcess]:
    """A node that serves, alone, with those topics."""
    prefix = f"bench-{place.number()}."
    process = place.lonely_node(prefix)
    try:
        process.start()
        await_ready([process])
        own_all(process, _HOME)
        process.kill()
        append_topics(place.connection, prefix, process.broker_id, names, 1)
        process.start()
        await_ready([process])
        yield process
    finally:
        stop_all([process])


async def _connected(node: NodeProcess) -> ClientConnection:
    where = urlsplit(node.service_url())
    return await connect(where.hostname or "", where.port or 0, timeout_s=_DEADLINE_S)


async def _listed(
    node: NodeProcess, names: list[str]
) -> tuple[list[float], list[float], list[float]]:
    """Times in ms: of waiting, of both processors, of serializing."""
    took, used, serializing = [], [], []
    client = await _connected(node)
    for _ in range(_REPEATS + 1):
        began, before = time.perf_counter(), time.thread_time() + _loop_s(node)
        answer = (await client.request(_ASKED, _DEADLINE_S)).getTopicsOfNamespaceResponse
        took.append((time.perf_counter() - began) * 1_000)
        used.append((time.thread_time() + _loop_s(node) - before) * 1_000)
        if len(answer.topics) != len(names):
            raise RuntimeError(f"{len(answer.topics)} of {len(names)} topics were listed")
        began = time.thread_time()
        CommandGetTopicsOfNamespaceResponse(topics=names).SerializePartialToString()
        serializing.append((time.thread_time() - began) * 1_000)
    client.close("measured")
    return took[1:], used[1:], serializing[1:]  # the first one made the list


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


async def _grown_mb(
    node: NodeProcess, names: list[str], watches: int
) -> tuple[float, float, float]:
    """The node's memory once there is a list, with so many watches of it, and twice as many."""
    known = topics_hash([full_name(name) for name in names])
    found, clients = [], []
    for count in (1, watches, watches):
        told: asyncio.Queue[float] = asyncio.Queue(maxsize=watches)
        clients += await _watching(node, count, known, told)
        found.append(await asyncio.to_thread(_settled_mb, node))
    for client in clients:
        client.abort("measured")
    return found[0], found[1], found[2]


def _settled_mb(node: NodeProcess) -> float:
    """Its memory once it grows no more: for a while after its start it does, by itself."""
    most, since = resident_mb(node.pid or 0), time.monotonic()
    while time.monotonic() < since + _SETTLED_S:
        time.sleep(_LOOK_S)
        found = resident_mb(node.pid or 0)
        if found > most + _GROWTH_MB:
            most, since = found, time.monotonic()
    return resident_mb(node.pid or 0)
