"""Lists of topics through HTTP: in parts, and within the limiter's memory."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request

from anabranch.broker.http.routes.topic_names import names_response
from anabranch.broker.settings import load_settings
from anabranch.core.topic_lists.sorted_names import SortedNames
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter, LimitType
from support.http import HttpNode, on_nodes
from support.list_follower import full, held, make
from support.scalable import refused

LIST = "/admin/v2/scalable/public/default"
NAMES = [f"orders-{number:02d}" for number in range(10)]


@on_nodes()
async def test_following_the_links_gives_every_topic_once_in_order(node: HttpNode) -> None:
    await make(node.node, *NAMES)
    http = node.http
    for limit in (1, 3, 5, 10, 11):
        found: list[str] = []
        url, pages = f"{LIST}?limit={limit}", 0
        while url:
            answer = await http.get(url)
            assert answer.status_code == 200
            assert 0 < len(answer.json()) <= limit
            found += answer.json()
            pages += 1
            link = answer.links.get("next")
            url = link["url"] if link else ""
        assert found == full(*NAMES)
        assert pages == -(-len(NAMES) // limit)
    for limit in (0, -1):
        refused(await http.get(LIST, params={"limit": limit}), 400, "limit")
    assert held(node.node) == 0


@on_nodes()
async def test_the_link_goes_on_with_the_same_question(node: HttpNode) -> None:
    await make(node.node, *NAMES[:5], team="blue & green")
    await make(node.node, *NAMES[5:], team="red")
    http = node.http
    answer = await http.get(LIST, params={"property": "team=blue & green", "limit": "2"})
    assert answer.json() == full(*NAMES[:2])
    link = urlsplit(answer.links["next"]["url"])
    assert link.path == LIST
    assert parse_qs(link.query) == {
        "property": ["team=blue & green"],
        "limit": ["2"],
        "after": full(NAMES[1]),
    }
    rest = await http.get(answer.links["next"]["url"])
    assert rest.json() == full(*NAMES[2:4])


@on_nodes()
async def test_a_list_goes_on_behind_a_topic_that_is_gone(node: HttpNode) -> None:
    await make(node.node, *NAMES)
    first = await node.http.get(f"{LIST}?limit=3")
    await node.node.operations.topics.delete(f"public/default/{NAMES[2]}")
    rest = await node.http.get(first.links["next"]["url"])
    assert rest.json() == full(*NAMES[3:6])
    everything = await node.http.get(LIST, params={"after": full(NAMES[5])[0]})
    assert everything.json() == full(*NAMES[6:])
    assert "Link" not in everything.headers
    beyond = await node.http.get(LIST, params={"after": full(NAMES[9])[0]})
    assert (beyond.json(), "Link" in beyond.headers) == ([], False)


@on_nodes(
    maxTopicListInFlightHeapMemSizeMB=1,
    maxTopicListInFlightDirectMemSizeMB=1,
    maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis=50,
    maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis=50,
)
async def test_without_memory_a_list_is_refused_by_the_setting_that_helps(node: HttpNode) -> None:
    await make(node.node, *NAMES)
    limiter = node.node.operations.topic_list_limiter
    for kind, word in (
        (LimitType.HEAP_MEMORY, "HeapMemSize"),
        (LimitType.DIRECT_MEMORY, "DirectMemSize"),
    ):
        async with limiter.held(1 << 20, kind):
            answer = await node.http.get(LIST)
            assert answer.status_code == 503
            assert word in answer.json()["reason"]
        assert (await node.http.get(LIST)).json() == full(*NAMES)
    assert held(node.node) == 0


class Reader:
    """Asks for a list, and takes a part of the answer when it is told to."""

    def __init__(self, names: SortedNames, limit: int | None) -> None:
        self.names = names
        self.body = b""
        self.link = ""
        self.limiter = AsyncDualMemoryLimiter(load_settings(None, {}, {}).topic_list_limits)
        self._limit = limit
        self._takes = asyncio.Semaphore(0)
        self._came = asyncio.Semaphore(0)

    async def find(self) -> SortedNames:
        return self.names

    async def ask(self) -> list[str]:
        request = Request({"type": "http", "path": LIST, "query_string": b"", "headers": []})
        answer = await names_response(self.find, self.limiter, request, self._limit, "")
        self.link = answer.headers.get("link", "")
        await answer({"type": "http"}, self._receive, self._send)
        found: list[str] = json.loads(self.body)
        return found

    async def take(self, parts: int = 1) -> None:
        """So many more parts, and then nothing while the next one waits for it."""
        for _ in range(parts):
            await self._came.acquire()
            self._takes.release()
        await self._came.acquire()
        self._came.release()

    async def rest(self, asking: asyncio.Task[list[str]]) -> list[str]:
        """All that there is, once it is there."""
        while not asking.done():
            self._takes.release()
            await asyncio.sleep(0)
        return asking.result()

    async def _receive(self) -> dict[str, Any]:
        raise AssertionError("nothing of the request is read")

    async def _send(self, message: Any) -> None:
        self._came.release()
        await self._takes.acquire()
        self.body += message.get("body", b"")

    @property
    def held(self) -> tuple[int, int]:
        heap, direct = (self.limiter.side(each).acquired for each in LimitType)
        return heap, direct


MANY = [f"topic://public/default/orders-{number:05d}" for number in range(5_000)]


@asynccontextmanager
async def asking(
    names: list[str], limit: int | None = None
) -> AsyncIterator[tuple[Reader, asyncio.Task[list[str]]]]:
    """A reader of these names, who has asked for them."""
    reader = Reader(SortedNames(names), limit)
    yield reader, asyncio.create_task(reader.ask())
    assert reader.held == (0, 0)


async def test_a_reader_that_stalls_keeps_no_list_and_goes_on_with_the_one_of_then() -> None:
    async with asking(MANY) as (reader, task):
        await reader.take(2)  # the head, and the first names
        assert reader.held == (256 << 10, 256 << 10)
        first = json.loads(reader.body + b"]")
        gone, late = MANY[::5], [f"{name}-late" for name in MANY[::7]]
        for name in gone:
            reader.names.discard(name)
        for name in late:
            reader.names.add(name)
        before, reader.names = weakref.ref(reader.names), SortedNames(reader.names)
        assert before() is None  # the node keeps it no longer, and nobody else does
        found = await reader.rest(task)
        assert found == sorted(set(found))
        assert set(MANY) - set(gone) <= set(found) <= {*MANY, *late}
        sent = found[: 2 * len(first)]  # what had been encoded by then
        assert {*found} & {*gone} <= {*sent}
        assert {*late} - {*found} == {name for name in late if name < sent[-1]}


async def test_a_page_is_as_long_as_its_memory_and_says_where_the_rest_is() -> None:
    names = [f"topic://public/default/{'x' * 60}{number:05d}" for number in range(50_000)]
    async with asking(names, 50_000) as (reader, task):
        await reader.take()
        assert reader.held == (256 << 10, 256 << 10)
        reader.names = SortedNames()
        found = await reader.rest(task)
        assert len(reader.body) <= 256 << 10
        assert found == names[: len(found)]  # as they were when they were asked for
        assert 1_000 < len(found) < 50_000
        assert parse_qs(urlsplit(reader.link.split(">")[0][1:]).query)["after"] == found[-1:]
