"""The demo's clients: look-ups in the trace's order and time, through all nodes in turn."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import httpx
import msgspec

from anabranch.broker.http.routing import STALE_HEADER
from anabranch.devkit.demo.reach import OPEN, Reach
from anabranch.devkit.demo.trace import Event
from anabranch.devkit.nodes import NodeAddress

_TOGETHER_MAX: Final = 64
_SECONDS_MAX: Final = 15.0
_ATTEMPTS_MAX: Final = 9
# How long a node that did not answer is left out, as any client would.
_SHUNNED_SECONDS: Final = 1.0


class LookupSample(msgspec.Struct, frozen=True):
    """One answered look-up; times are those of the wall clock, as the log's are."""

    topic: str
    namespace: str
    broker: str
    sent_ms: float
    answered_ms: float
    stale: bool


class LookupClients:
    """Sends every event's look-up to the next node; where that fails, to another one."""

    def __init__(self, nodes: Sequence[NodeAddress], reach: Reach = OPEN) -> None:
        self.answered: list[LookupSample] = []
        self.failed: list[str] = []
        self.refused: Counter[str] = Counter()  # attempts that another node then answered, or not
        self._nodes = nodes
        self._turn = itertools.count()
        self._shunned_until: dict[str, float] = {}
        limits = httpx.Limits(max_connections=_TOGETHER_MAX, max_keepalive_connections=None)
        urls = tuple(node.url for node in nodes)
        self._http = reach.http(urls, timeout=_SECONDS_MAX, limits=limits)
        self._together = asyncio.Semaphore(_TOGETHER_MAX)

    async def run(self, events: Sequence[Event]) -> None:
        """Looks all up, each at its time; returns when all are answered or have failed."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for event in events:
                delay = began + event.at_s - time.monotonic()
                if delay > 0:
                    await asyncio.sleep(delay)
                await self._together.acquire()
                group.create_task(self._look_up(event)).add_done_callback(self._done)

    async def close(self) -> None:
        """Ends the connections."""
        await self._http.aclose()

    def _done(self, _: asyncio.Task[None]) -> None:
        self._together.release()

    async def _look_up(self, event: Event) -> None:
        domain, _, rest = event.topic.partition("://")
        tenant, namespace, local = rest.split("/", 2)
        path = f"/lookup/v2/topic/{domain}/{tenant}/{namespace}/{quote(local, safe='')}"
        why = ""
        for _ in range(_ATTEMPTS_MAX):
            node = self._next_node()
            sent_ms = time.time() * 1000
            try:
                answer = await self._http.get(node.url + path)
            except httpx.TransportError as error:
                why = f"{node.name}: {type(error).__name__}"
                self.refused["no connection"] += 1
                self._shunned_until[node.name] = time.monotonic() + _SHUNNED_SECONDS
                continue
            if answer.status_code == httpx.codes.OK:
                self._keep(event, answer, sent_ms)
                return
            why = f"{node.name}: {answer.status_code} {answer.text[:200]}"
            self.refused[str(answer.status_code)] += 1
        self.failed.append(f"{event.topic}: {why}")

    def _next_node(self) -> NodeAddress:
        now = time.monotonic()
        usable = [n for n in self._nodes if self._shunned_until.get(n.name, 0.0) <= now]
        candidates = usable or self._nodes
        return candidates[next(self._turn) % len(candidates)]

    def _keep(self, event: Event, answer: httpx.Response, sent_ms: float) -> None:
        found: dict[str, Any] = answer.json()
        self.answered.append(
            LookupSample(
                topic=event.topic,
                namespace=event.namespace,
                broker=(found["httpUrl"] or found["httpUrlTls"]).partition("://")[2],
                sent_ms=sent_ms,
                answered_ms=time.time() * 1000,
                stale=STALE_HEADER in answer.headers,
            )
        )
