"""Assignments of wide topics, which are made beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from anabranch.broker.topics import wide
from anabranch.wire import anabranch_pb2 as pb
from support import steady
from support.beside import Beside
from support.binary_consumer import Client, client_of
from support.http import PATIENT
from support.memory_cluster import MemoryNode, memory_cluster, until

NAME = "public/default/orders"

Test = Callable[[MemoryNode, Client, Beside], Awaitable[None]]


def run(test: Test, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a topic with one segment too many for the event loop."""

    async def body() -> None:
        async with memory_cluster(1, **PATIENT, brokerServicePort=7000) as cluster:
            node, beside = cluster.nodes[0], Beside()
            await node.operations.topics.create(NAME, wide.AT_ONCE + 1, {})
            with monkeypatch.context() as patched:
                patched.setattr(asyncio, "to_thread", beside)
                async with client_of(node, "a") as client:
                    await test(node, client, beside)

    steady.run(body())


def test_others_are_served_while_assignments_are_made_and_none_of_these_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(node: MemoryNode, client: Client, beside: Beside) -> None:
        topics = node.operations.topics
        subscribing = asyncio.create_task(client.subscribe())
        await until(lambda: beside.made != [])
        await topics.split(NAME, 0)
        await topics.split(NAME, 1)
        assert not subscribing.done()
        beside.begin.set()
        await subscribing
        epochs = range(topics.topic(NAME).epoch + 1)
        await until(lambda: len(client.assigned) == len(epochs))
        told = {each.sequence: each.layout_epoch for each in client.assigned}
        assert told == {epoch + 1: epoch for epoch in epochs}
        assert len(client.held) == wide.AT_ONCE + 1
        await client.report()
        assert beside.made == ["_Link.assigned.<locals>.make"] * len(epochs)

    run(test, monkeypatch)


def test_who_is_dropped_before_its_first_assignment_is_made_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(node: MemoryNode, client: Client, beside: Beside) -> None:
        topics = node.operations.topics
        refusing = asyncio.create_task(client.refused())
        await until(lambda: beside.made != [])
        await topics.consumers.delete(NAME, "billing")
        assert (await refusing).code == pb.ServerError.ServiceNotReady
        assert (client.assigned, client.closed) == ([], [])
        assert topics.access.service.consumers == {}
        beside.begin.set()
        await client.subscribe()
        assert [each.sequence for each in client.assigned] == [1]

    run(test, monkeypatch)


def test_whose_assignment_changes_faster_than_it_can_be_told_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(node: MemoryNode, client: Client, beside: Beside) -> None:
        topics = node.operations.topics
        beside.begin.set()
        await client.subscribe()
        beside.begin.clear()
        for segment_id in range(6):  # each in three steps, of which all consumers are told
            await topics.split(NAME, segment_id)
        await until(lambda: client.closed != [])
        assert "changes faster than it can be told" in client.closed[0]
        assert topics.access.service.consumers == {}
        beside.begin.set()

    run(test, monkeypatch)
