"""Lists of topics through HTTP: in parts, and within the limiter's memory."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import AsyncMock
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request

from anabranch.broker.http.routes.topics import names_response
from anabranch.broker.settings import load_settings
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


async def test_a_page_is_as_long_as_its_memory_and_says_where_the_rest_is() -> None:
    names = [f"topic://public/default/{'x' * 60}{number:05d}" for number in range(50_000)]
    limiter = AsyncDualMemoryLimiter(load_settings(None, {}, {}).topic_list_limits)
    body = bytearray()
    request = Request({"type": "http", "path": LIST, "query_string": b"", "headers": []})

    async def send(message: Any) -> None:
        held = [limiter.side(each).acquired for each in LimitType]
        assert 0 < held[0] == held[1] <= 256 << 10
        body.extend(message.get("body", b""))

    page = names_response(names, limiter, request, 50_000, "")
    names = []
    await page({"type": "http"}, AsyncMock(), send)
    found = json.loads(body)
    assert len(body) <= 256 << 10
    assert 1_000 < len(found) < 50_000
    link = page._told["Link"]
    assert parse_qs(urlsplit(link.split(">")[0][1:]).query)["after"] == found[-1:]
    assert [limiter.side(each).acquired for each in LimitType] == [0, 0]
