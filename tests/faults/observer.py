"""Asks every node, all the time, what it knows and what it does; answers are judged later.

Each question goes to one node and nowhere else. A question is not waited for before the next one is
asked: one that a paused node answers when it goes on, as if nothing had happened, is what is
looked for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import httpx

from faults.history import History
from faults.parts import NAMESPACE, TOPIC
from faults.rivals import Rivals

EVERY_S: Final = 1.0
ANSWER_S: Final = 30.0
PENDING: Final = 100  # questions to one node that are not answered
PLAIN_TOPICS: Final = tuple(f"{NAMESPACE}/plain-{number}" for number in range(4))
_STALE: Final = "x-anabranch-stale"

_Say = Callable[[httpx.Response], dict[str, Any] | None]


class Observer:
    """`nodes`: their HTTP addresses, of which each is asked alone."""

    def __init__(self, nodes: list[str], history: History) -> None:
        self._nodes = nodes
        self._history = history
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Until `stop`; what is not answered by then is given up."""
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(timeout=ANSWER_S, limits=limits) as client:
            asking = [asyncio.create_task(self._ask(client, node)) for node in self._nodes]
            asking.append(asyncio.create_task(Rivals(self._nodes, self._history).run()))
            await self._stopping.wait()
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def _ask(self, client: httpx.AsyncClient, node: str) -> None:
        questions: list[tuple[str, str, _Say]] = [
            *(
                ("lookup", f"/lookup/v2/topic/persistent/{topic}", _owner(topic))
                for topic in PLAIN_TOPICS
            ),
            ("ownership", f"/admin/v2/namespaces/{NAMESPACE}/bundles/ownership", _ownership),
            ("view", "/admin/v2/brokers/status", _view),
            ("controlled", f"/admin/v2/scalable/{TOPIC}/stats", _controlled),
        ]
        pending: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:
            while True:
                for what, path, said in questions:
                    if len(pending) < PENDING:
                        task = group.create_task(self._one(client, node, what, path, said))
                        pending.add(task)
                        task.add_done_callback(pending.discard)
                    await asyncio.sleep(EVERY_S / len(questions))

    async def _one(
        self, client: httpx.AsyncClient, node: str, what: str, path: str, said: _Say
    ) -> None:
        asked = time.monotonic()
        try:
            found = await client.get(f"{node}{path}")
            fields = said(found)
        except (httpx.HTTPError, ValueError, KeyError) as error:
            # A node that is gone answers nothing; one that is killed, half of it.
            self._history.say("unanswered", node=_host(node), of=what, why=type(error).__name__)
            return
        if fields is not None:
            stale = found.headers.get(_STALE) == "true"
            self._history.say(what, node=_host(node), asked=asked, stale=stale, **fields)


def _owner(topic: str) -> _Say:
    def said(found: httpx.Response) -> dict[str, Any] | None:
        if found.status_code != httpx.codes.OK:
            return None  # it refuses to tell, as it may
        return {"topic": f"persistent://{topic}", "owner": _host(found.json()["httpUrl"])}

    return said


def _ownership(found: httpx.Response) -> dict[str, Any] | None:
    if found.status_code != httpx.codes.OK:
        return None
    return {
        "bundles": [
            [
                each["bundle"],
                each["version"],
                each["state"],
                each["source"].partition(":")[0] or each["broker"].partition(":")[0],
            ]
            for each in found.json()["bundles"]
        ]
    }


def _view(found: httpx.Response) -> dict[str, Any] | None:
    if found.status_code != httpx.codes.OK:
        return None
    body = found.json()
    return {"mode": body["mode"], "offset": body["nextOffset"], "digest": body["digest"]}


def _controlled(found: httpx.Response) -> dict[str, Any] | None:
    """Only the topic's controller answers itself; others name it."""
    return {"topic": f"topic://{TOPIC}"} if found.status_code == httpx.codes.OK else None


def _host(url: str) -> str:
    """Of `http://node-1:8080` the name, which is that of the node's container."""
    return httpx.URL(url).host
