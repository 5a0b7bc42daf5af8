"""One scalable topic of a test, over HTTP."""

from __future__ import annotations

from typing import Any

import httpx

from support.http import HttpNode

HOME = "/admin/v2/scalable/public/default"
TOPIC = f"{HOME}/orders"
BILLING = f"{TOPIC}/subscriptions/billing"


async def created(node: HttpNode, segments: int = 1, **params: Any) -> None:
    answer = await node.http.put(TOPIC, params={"numInitialSegments": segments, **params})
    assert answer.status_code == 204, answer.text


async def layout(node: HttpNode) -> dict[str, Any]:
    answer = await node.http.get(TOPIC)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def ranges(body: dict[str, Any], state: str = "ACTIVE") -> dict[str, tuple[int, int]]:
    return {
        each: (part["hashRange"]["start"], part["hashRange"]["end"])
        for each, part in body["segments"].items()
        if part["state"] == state
    }


def refused(answer: httpx.Response, status: int, said: str) -> None:
    assert answer.status_code == status, answer.text
    assert said in answer.json()["reason"]


async def stats(node: HttpNode) -> dict[str, Any]:
    answer = await node.http.get(f"{TOPIC}/stats")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def billing(node: HttpNode) -> dict[str, Any]:
    found: dict[str, Any] = (await stats(node))["subscriptions"]["billing"]
    return found


async def split_with_records(node: HttpNode) -> list[str]:
    """Kafka topics: of a sealed parent, 5 records in each bucket, and of two children, 3."""
    await created(node)
    ends = node.cluster.segments.ends
    (parent,) = ends
    ends[parent] = [5, 5, 5, 5]
    assert (await node.http.post(f"{TOPIC}/split/0")).status_code == 204
    topics = list(ends)
    for child in topics[1:]:
        ends[child] = [3, 3]
    return topics
