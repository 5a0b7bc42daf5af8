"""`POST .../prepare` over HTTP: what it makes of any layout, and what it refuses."""

from __future__ import annotations

import asyncio

import httpx

from support.http import HttpNode, on_nodes
from support.memory_cluster import until
from support.scalable import TOPIC, created, refused


@on_nodes()
async def test_a_topic_is_prepared_up_and_down_at_once_and_what_is_there_needs_nothing(
    node: HttpNode,
) -> None:
    http = node.http
    await created(node, 1)

    async def prepared(count: int, **given: int) -> tuple[int, list[tuple[int, int, int]]]:
        answer = await http.post(f"{TOPIC}/prepare", params={"segmentCount": count, **given})
        assert (answer.status_code, answer.text) == (204, "")
        layout = (await http.get(TOPIC)).json()
        active = [part for part in layout["segments"].values() if part["active"]]
        active.sort(key=lambda part: part["hashRange"]["start"])
        return layout["epoch"], [
            (part["segmentId"], part["hashRange"]["start"], len(part["entryBucketSplits"]) + 1)
            for part in active
        ]

    quarters = [(1, 0, 1), (2, 0x4000, 1), (3, 0x8000, 1), (4, 0xC000, 1)]
    assert await prepared(4) == (1, quarters)
    assert await prepared(4) == (1, quarters)
    assert await prepared(4, bucketCount=1) == (1, quarters)
    assert await prepared(1) == (2, [(5, 0, 4)])
    assert await prepared(2, bucketCount=7) == (3, [(6, 0, 7), (7, 0x8000, 7)])


@on_nodes()
async def test_a_prepare_that_cannot_be_is_refused_with_its_reason(node: HttpNode) -> None:
    http, cluster = node.http, node.cluster

    async def asked(**given: int | str) -> httpx.Response:
        return await http.post(f"{TOPIC}/prepare", params=given)

    refused(await asked(segmentCount=2), 404, "topic://public/default/orders")
    await created(node, 2)
    refused(await asked(), 400, "segmentCount")
    refused(await asked(segmentCount="many"), 400, "segmentCount")
    for count in (0, -1, 65_537):
        refused(
            await asked(segmentCount=count), 412, f"segmentCount must be in [1, 65536]: {count}"
        )
    for buckets in (0, 1025):
        refused(await asked(segmentCount=2, bucketCount=buckets), 412, f"[1, 1024]: {buckets}")
    refused(await asked(segmentCount=65_536), 412, "fewer segments or entry buckets")
    refused(await asked(segmentCount=3, keep="true"), 412, "only a cut-over")
    made = len(cluster.segments.calls)
    cluster.segments.hold.clear()
    first = asyncio.create_task(asked(segmentCount=3))
    await until(lambda: "create" in cluster.segments.calls[made:])
    for count in (2, 3, 4):  # also for what it has, or will have
        refused(await asked(segmentCount=count), 409, "an operation under way, PREPARE of segment")
    cluster.segments.hold.set()
    assert (await first).status_code == 204
    assert (await asked(segmentCount=3)).status_code == 204
