"""Lists of topics through HTTP: in parts, and within the limiter's memory."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from anabranch.wire.memory.limiter import LimitType
from support.http import HttpNode, with_http
from support.list_follower import full, held, make
from support.memory_cluster import MemoryCluster

LIST = "/admin/v2/scalable/public/default"
NAMES = [f"orders-{number:02d}" for number in range(10)]


def test_following_the_links_gives_every_topic_once_in_order() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await make(cluster.nodes[0], *NAMES)
        http = nodes[0].http
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
        assert held(cluster.nodes[0]) == 0

    with_http(test)


def test_the_link_goes_on_with_the_same_question() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await make(cluster.nodes[0], *NAMES[:5], team="blue & green")
        await make(cluster.nodes[0], *NAMES[5:], team="red")
        http = nodes[0].http
        asked = {"property": "team=blue & green", "limit": "2"}
        answer = await http.get(LIST, params=asked)
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

    with_http(test)


def test_a_list_goes_on_behind_a_topic_that_is_gone() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await make(node, *NAMES)
        first = await nodes[0].http.get(f"{LIST}?limit=3")
        await node.operations.topics.delete(f"public/default/{NAMES[2]}")
        rest = await nodes[0].http.get(first.links["next"]["url"])
        assert rest.json() == full(*NAMES[3:6])
        everything = await nodes[0].http.get(LIST, params={"after": full(NAMES[5])[0]})
        assert everything.json() == full(*NAMES[6:])
        assert "Link" not in everything.headers
        beyond = await nodes[0].http.get(LIST, params={"after": full(NAMES[9])[0]})
        assert (beyond.json(), "Link" in beyond.headers) == ([], False)

    with_http(test)


def test_a_limit_that_is_none_is_refused() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        for limit in ("0", "-1", "many"):
            answer = await nodes[0].http.get(LIST, params={"limit": limit})
            assert answer.status_code in (400, 422)
            assert "limit" in answer.text

    with_http(test)


def test_without_memory_a_list_is_refused_by_the_setting_that_helps_and_later_answered() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await make(node, *NAMES)
        limiter = node.operations.topic_list_limiter
        for kind, word in (
            (LimitType.HEAP_MEMORY, "HeapMemSize"),
            (LimitType.DIRECT_MEMORY, "DirectMemSize"),
        ):
            async with limiter.held(1 << 20, kind):
                answer = await nodes[0].http.get(LIST)
                assert answer.status_code == 503
                assert word in answer.json()["reason"]
            assert (await nodes[0].http.get(LIST)).json() == full(*NAMES)
        assert held(node) == 0

    with_http(
        test,
        maxTopicListInFlightHeapMemSizeMB=1,
        maxTopicListInFlightDirectMemSizeMB=1,
        maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis=50,
        maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis=50,
    )
