"""What topics and watches cost a node in memory."""

from __future__ import annotations

import asyncio
import time
from functools import cache

from anabranch.client import Client
from anabranch.devkit.nodes import NodeProcess, await_ready, stop_all
from bench.figure import Measured
from bench.http.client import Client as HttpClient
from bench.place import Place, resident_mb
from support.topics_on_log import append_topics

_TOPICS = 10_000
_WATCHES = 1_000
_SEGMENTS = 4
_GOAL_MB = 400
_NAMESPACE = "public/default"
_WATCHES_AT_ONCE = 50
_DEADLINE_S = 60.0


def node(place: Place) -> Measured:
    """Peak memory of a node that clients watch, and that was asked for every topic's layout."""
    found = _memory(place)
    total = found["peak_mb"]
    return Measured(total, "MB", total, _GOAL_MB, details=found)


@cache
def _memory(place: Place) -> dict[str, float]:
    topics = _TOPICS // 10 if place.quick else _TOPICS
    watches = _WATCHES // 10 if place.quick else _WATCHES
    prefix = f"bench-{place.number()}."
    process = place.lonely_node(prefix)
    try:
        process.start()
        await_ready([process])
        idle = _resident_mb(process)
        own_all(process, _NAMESPACE)
        process.kill()
        names = [f"{_NAMESPACE}/topic-{number:05d}" for number in range(topics)]
        append_topics(place.connection, prefix, process.broker_id, names, _SEGMENTS)
        process.start()
        await_ready([process])
        _read_all(process, names)
        read = _resident_mb(process)
        watched, twice, peak = asyncio.run(_watched(process, names, watches))
    finally:
        stop_all([process])
    return {
        "topics": topics,
        "segments_each": _SEGMENTS,
        "watches": watches,
        "idle_mb": idle,
        "with_topics_mb": read,
        "with_watches_mb": watched,
        "with_twice_as_many_mb": twice,
        "peak_mb": peak,
        "kb_per_topic": (read - idle) * 1024 / topics,
        # The first ones fit into what reading everything has left free.
        "kb_per_watch": (twice - watched) * 1024 / watches,
    }


def _resident_mb(process: NodeProcess) -> float:
    time.sleep(1.0)  # what it just did is over
    return resident_mb(process.pid or 0)


def own_all(process: NodeProcess, namespace: str) -> None:
    """Every bundle of the namespace is the node's."""
    client = HttpClient(process)
    number = 0
    while not all(owners := client.owners(namespace).values()) or not owners:
        client.lookup(f"{namespace}/any-{number}")
        number += 1
    client.close()


def _read_all(process: NodeProcess, names: list[str]) -> None:
    """Reads all layouts, which fills what a node keeps at hand."""
    client = HttpClient(process)
    for name in names:
        status, answer = client.get(f"/admin/v2/scalable/{name}")
        if status != 200 or len(answer["segments"]) != _SEGMENTS:
            raise RuntimeError(f"{name}: {status} {answer}")
    client.close()


async def _watched(
    process: NodeProcess, names: list[str], count: int
) -> tuple[float, float, float]:
    """The node's memory with so many watches, each over a connection of its own, and with twice
    as many; its peak before those.
    """
    async with Client(process.service_url()) as client:
        await _watch(client, names[:count])
        first = await asyncio.to_thread(_resident_mb, process)
        peak = resident_mb(process.pid or 0, "VmHWM")
        await _watch(client, names[count : 2 * count])
        return first, await asyncio.to_thread(_resident_mb, process), peak


async def _watch(client: Client, names: list[str]) -> None:
    for at in range(0, len(names), _WATCHES_AT_ONCE):
        some = names[at : at + _WATCHES_AT_ONCE]
        await asyncio.gather(*[client.watch(f"topic://{name}", _DEADLINE_S) for name in some])
