"""What another node has just made: nobody who is behind refuses it before it has read so far."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable

import httpx
import pytest

from anabranch.broker.errors import ConflictError, NotFoundError, UnavailableError
from anabranch.broker.operations import Operations
from anabranch.broker.proposals import LogEnd
from anabranch.core.errors import AnabranchError
from anabranch.core.names import Namespace, parse_topic
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import clock
from support.binary import client_of, one_node, reachable
from support.circles import nothing_left_in_a_circle
from support.http import HttpNode, http_nodes
from support.memory_cluster import WAIT_S, until
from support.scalable import HOME, TOPIC, created, refused

NAME = "public/default/orders"
TENANTS, SPACES = "/admin/v2/tenants", "/admin/v2/namespaces"


async def decided(node: HttpNode, request: Awaitable[httpx.Response]) -> httpx.Response:
    """The answer of a node that is behind, to a request that needs what it has not read yet."""
    before = node.node.asked_ends
    asking = asyncio.ensure_future(request)
    await until(lambda: node.node.asked_ends > before)
    await asyncio.sleep(0)
    assert not asking.done()
    node.node.is_behind = False
    return await asyncio.wait_for(asking, WAIT_S)


async def test_a_request_with_a_body_is_decided_again_and_carried_out_once() -> None:
    async with http_nodes(2) as (nodes, _):
        first, behind = nodes
        behind.node.is_behind = True
        tenant = {"adminRoles": [], "allowedClusters": ["standalone"]}
        assert (await first.http.put(f"{TENANTS}/acme", json=tenant)).status_code == 204
        body = {"bundles": {"numBundles": 3}}
        made = await decided(behind, behind.http.put(f"{SPACES}/acme/shop", json=body))
        assert made.status_code == 204, made.text
        assert (await first.http.get(f"{SPACES}/acme/shop/bundles")).json()["numBundles"] == 3
        refused(await behind.http.put(f"{SPACES}/acme/shop", json=body), 409, "already exists")


async def test_what_is_there_is_told_at_once_and_what_is_not_costs_few_questions() -> None:
    async def missing() -> None:
        raise NotFoundError("there is none")

    async with http_nodes() as (nodes, _):
        node = nodes[0]
        await created(node)
        before = node.node.asked_ends
        for _ in range(5):
            assert (await node.http.get(TOPIC)).status_code == 200
            assert (await node.http.get(HOME)).status_code == 200
        assert node.node.asked_ends == before
        asking = [node.node.operations.decided(missing) for _ in range(200)]
        ends = await asyncio.gather(*asking, return_exceptions=True)
        assert all(isinstance(end, NotFoundError) for end in ends)
        assert 1 <= node.node.asked_ends - before <= 2
        refused(await node.http.get(f"{HOME}/none"), 404, "not found")


async def test_a_node_in_safe_mode_tells_what_it_has_and_marks_it() -> None:
    async with http_nodes(leaseMillis=2_000, livenessTimeoutMillis=3_000) as (nodes, _):
        node = nodes[0]
        node.node.connected = False
        # Until its lease has lapsed it cannot know, and says so.
        with nothing_left_in_a_circle():
            answer = await node.http.get(TOPIC)
        refused(answer, 503, "could not read the rest: Kafka did not answer in time")
        assert answer.headers["retry-after"] == "1"
        await until(lambda: not node.node.runtime.has_lease)
        asked = node.node.asked_ends
        answer = await node.http.get(TOPIC)
        refused(answer, 404, "Scalable topic not found")
        assert (answer.headers["x-anabranch-stale"], node.node.asked_ends) == ("true", asked)


# --- the same by the binary protocol ----------------------------------------------------------


async def test_a_watch_and_a_look_up_find_what_another_node_has_just_made() -> None:
    async with reachable(2) as cluster:
        owner = await cluster.controller()
        behind = next(each for each in cluster.nodes if each is not owner)
        behind.is_behind = True
        await owner.operations.topics.create(NAME, 1, {})
        watches = behind.operations.topics.watches
        appearing = asyncio.ensure_future(watches.appears(NAME))
        await until(lambda: behind.asked_ends > 0)
        assert not appearing.done()
        behind.is_behind = False
        await appearing
        assert watches.look(NAME).topic is not None
        tenancy = owner.operations.tenancy
        await tenancy.create_tenant("acme", [], ["standalone"])
        behind.is_behind = True
        await tenancy.create_namespace(Namespace("acme/shop"), 1)
        async with client_of(behind) as client:
            before = behind.asked_ends
            asked = pb.CommandLookupTopic(topic="persistent://acme/shop/t", request_id=1)
            answering = asyncio.ensure_future(client.request(asked, WAIT_S))
            await until(lambda: behind.asked_ends > before)
            behind.is_behind = False
            answer = await asyncio.wait_for(answering, WAIT_S)
            assert answer.lookupTopicResponse.response == pb.CommandLookupTopicResponse.Connect


# --- the mechanism ------------------------------------------------------------------------------


def decided_by(
    operations: Operations, *ends: AnabranchError | None
) -> tuple[list[int], Awaitable[int]]:
    calls: list[int] = []

    async def ask() -> int:
        calls.append(len(calls))
        end = ends[min(len(calls), len(ends)) - 1]
        if end is not None:
            raise end
        return len(calls)

    return calls, operations.decided(ask)


async def test_a_refusal_stands_when_its_request_has_read_back_a_record_of_its_own() -> None:
    async with one_node() as node:
        calls: list[int] = []

        async def ask() -> None:
            calls.append(len(calls))
            await node.operations.tenancy.create_tenant(f"acme{len(calls)}", [], ["standalone"])
            raise ConflictError("it was deleted meanwhile")

        with pytest.raises(ConflictError):
            await node.operations.decided(ask)
        assert (calls, node.asked_ends) == ([0], 0)


async def test_only_what_a_newer_record_could_overturn_is_decided_again() -> None:
    async with one_node() as node:
        calls, asking = decided_by(node.operations, UnavailableError("no lease"), None)
        with pytest.raises(UnavailableError, match="no lease"):
            await asking
        assert calls == [0]
        for refusal in (NotFoundError("not yet"), ConflictError("still there")):
            _, asking = decided_by(node.operations, refusal, None)
            assert await asking == 2
        calls, asking = decided_by(
            node.operations, NotFoundError("not yet"), NotFoundError("never")
        )
        with pytest.raises(NotFoundError, match="never"):
            await asking


async def test_who_cannot_read_so_far_in_a_leases_time_says_that_it_is_not_known() -> None:
    async with one_node() as node:
        node.is_behind = True
        node.cluster.append_raw(b"x", b"not a record")
        with pytest.raises(UnavailableError, match=r"as far as this node.*not folded so far"):
            await decided_by(node.operations, NotFoundError("there is none"))[1]
        node.is_behind = False
        with pytest.raises(NotFoundError):  # the next one is answered again
            await decided_by(node.operations, NotFoundError("there is none"))[1]


async def test_a_question_that_was_put_before_does_not_do() -> None:
    asked: list[asyncio.Future[int]] = []

    async def ask() -> int:
        asked.append(asyncio.get_running_loop().create_future())
        return await asked[-1]

    folded = 0
    end = LogEnd(ask, lambda: folded)
    first = asyncio.create_task(end.reached(clock.now()))
    await until(lambda: len(asked) == 1)
    late = [asyncio.create_task(end.reached(clock.now())) for _ in range(3)]
    await asyncio.sleep(0)
    asked[0].set_result(5)
    await asyncio.sleep(0)
    assert not first.done()
    folded = 5
    end.folded()
    await first
    await until(lambda: len(asked) == 2)  # one for all who came later
    assert not any(each.done() for each in late)
    asked[1].set_result(5)
    await asyncio.gather(*late)
    assert len(asked) == 2
    failing = asyncio.create_task(end.reached(clock.now() + 1e-6))
    await until(lambda: len(asked) == 3)
    asked[2].set_exception(ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await failing
    end.stop()


async def test_who_waits_when_the_node_stops_is_told_to_ask_another() -> None:
    async def refusing() -> None:
        raise NotFoundError("there is none")

    async with one_node() as node:
        node.is_behind = True
        node.cluster.append_raw(b"x", b"not a record")
        asking = asyncio.create_task(node.operations.decided(refusing))
        await until(lambda: node.asked_ends > 0)
        node.runtime.proposals.log_end.stop()
        with pytest.raises(UnavailableError, match="this node is stopping; ask another"):
            await asking
        asked = node.asked_ends
        with pytest.raises(UnavailableError, match="this node is stopping; ask another"):
            await node.operations.decided(refusing)
        assert node.asked_ends == asked, "whoever comes afterwards asks nothing"


# --- requests that wait for a bundle --------------------------------------------------------------


UNIT = "public/default/0x00000000_0x40000000"
AWAITED = "persistent://public/default/topic-1"  # in UNIT


async def test_who_waits_for_a_bundle_is_told_when_it_is_opened() -> None:
    async with one_node() as node:
        await node.operations.lookups.lookup(*parse_topic(AWAITED))
        await until(lambda: node.runtime.core.may_act(UNIT, clock.now()))
        # Lost and regained, while something of the first time is still being finished here.
        node.runtime.core.serving[UNIT] = False
        waiting = node.runtime.changed(UNIT)
        node.runtime.closed(UNIT)
        assert node.runtime.core.may_act(UNIT, clock.now())
        assert waiting.done()


async def test_who_would_wait_for_a_bundle_of_a_node_that_has_ended_is_told_so_at_once() -> None:
    async with one_node() as node:
        runtime = node.runtime
        waiting = asyncio.create_task(runtime.until_changed(UNIT, math.inf, "never"))
        await asyncio.sleep(0)
        runtime.fail("the test says so")
        for told in (waiting, runtime.until_changed(UNIT, math.inf, "never")):
            with pytest.raises(UnavailableError, match="this node is stopping"):
                await asyncio.wait_for(told, WAIT_S)
        assert runtime.watching == 0
