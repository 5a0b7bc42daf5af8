"""Clients that walk through a list of topics by HTTP, page by page: what a node answers is the
product's own, and between the two lies a reader that takes its time.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from anabranch.broker.errors import OperationError
from anabranch.client._topics.topic_list import TopicSelection
from anabranch.core.errors import AnabranchError
from simulation.list_clients import ANSWER_S, ListClient
from simulation.process import Process

if TYPE_CHECKING:
    from simulation.list_host import ListHost
    from simulation.list_world import ListWorld

_TRIES_MAX = 5
_OK = 200


class Page(msgspec.Struct, frozen=True):
    """What a node answered. `first`, `last`: how far it had read the log before and after."""

    names: list[str]
    after: str  # where the next one begins; "": nowhere
    first: int
    last: int


class Walker(ListClient):
    """Walks through whole lists, each page from any node; or takes them by one answer."""

    walked = 0

    def __init__(self, world: ListWorld, number: int) -> None:
        super().__init__(world, number)
        self._patience_s = 0.0  # until it takes the next part

    async def work(self) -> None:
        while not self._world.faults_over:
            await self._walk()
            await self._rest(0.5)

    async def _walk(self) -> None:
        world, rng = self._world, self._sched.rng
        selection, limit = rng.choice(world.by_property), rng.choice((None, 1, 3, 7, 100))
        self._patience_s = rng.choice((0.0, 0.1, 0.5))
        names: list[str] = []
        after, first, last = "", 1 << 62, 0
        while True:
            page = await self._page(selection, limit, after)
            if page is None:
                return
            if limit is not None and len(page.names) > limit:
                world.wrong(f"{self} asked for {limit} names and was told {len(page.names)}")
            names += page.names
            first, last = min(first, page.first), max(last, page.last)
            if not page.after:
                break
            after = page.after
            await self._rest(0.05)
        self.walked += 1
        world.judged(partial(world.checks.walked, selection, names, first, last))

    async def _page(self, selection: TopicSelection, limit: int | None, after: str) -> Page | None:
        for _ in range(_TRIES_MAX):
            page = await self._asked(selection, limit, after)
            if page is not None:
                return page
            await self._rest(0.3)
        return None

    async def _asked(self, selection: TopicSelection, limit: int | None, after: str) -> Page | None:
        process = self._sched.rng.choice(self._world.cluster.processes)
        host = self._world.hosts.get(process.name)
        if not process.alive or process.paused or not process.joined or host is None:
            return None
        if self.cut_until > self._sched.now:
            return None
        answer: asyncio.Future[Page | None] = self.loop.create_future()
        mine = self.in_life()

        def told(page: Page | None) -> None:
            mine(partial(self.loop.call, partial(_settle, answer, page)))

        async def serve() -> None:
            told(await self._served(process, host, selection, limit, after))

        def begin() -> None:
            host.loop.spawn(serve())

        process.call(begin)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            return None

    async def _served(
        self,
        process: Process,
        host: ListHost,
        selection: TopicSelection,
        limit: int | None,
        after: str,
    ) -> Page | None:
        """In the node."""
        first = process.replica.next_offset
        sent: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            sent.append(message)
            await asyncio.sleep(self._patience_s)

        async def receive() -> Any:
            raise AssertionError("nothing of a request is read")

        try:
            response = await host.names(selection.properties, limit, after)
            await response({"type": "http"}, receive, send)
        except OperationError:
            return None
        except AnabranchError as error:
            self._world.wrong(f"{self} was answered by a fault: {error}")
            return None
        if sent[0]["status"] != _OK:
            self._world.turned_away += 1
            return None
        names = json.loads(b"".join(each.get("body", b"") for each in sent))
        link = dict(sent[0]["headers"]).get(b"link", b"").decode()
        query = parse_qs(urlsplit(link.partition(">")[0].removeprefix("<")).query)
        return Page(names, query.get("after", [""])[0], first, process.replica.next_offset)


def _settle(answer: asyncio.Future[Page | None], page: Page | None) -> None:
    if not answer.done():
        answer.set_result(page)
