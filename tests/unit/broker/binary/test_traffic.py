"""Reports of traffic by the binary protocol: only what there is can be reported on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from anabranch.broker.binary.sessions import sessions
from anabranch.broker.load.traffic import TrafficGrowth
from anabranch.core.subscriptions.subscription import SubscriptionKind
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.client import ClientConnection
from anabranch.wire.errors import RefusedError
from support import steady
from support.http import PATIENT
from support.memory_cluster import memory_cluster
from support.wire import WAIT_S, connected, serving

NAME = "public/default/orders"


class Desk:
    """A node's topic of two segments, and a client that reports."""

    def __init__(self, connection: ClientConnection, incarnation: int) -> None:
        self.incarnation = incarnation
        self.grown: list[TrafficGrowth] = []
        self._connection = connection

    async def report(
        self, *said: tuple[int, str, int], topic: str = NAME, incarnation: int | None = None
    ) -> None:
        await self._connection.request(
            pb.CommandScalableTrafficReport(
                topic=f"topic://{topic}",
                incarnation=self.incarnation if incarnation is None else incarnation,
                client_id=1,
                since_ms=1_000,
                segments=[
                    pb.SegmentTraffic(
                        segment_id=segment, subscription=name, messages=count, bytes=10 * count
                    )
                    for segment, name, count in said
                ],
            ),
            WAIT_S,
        )

    @property
    def counted(self) -> list[tuple[int, str, int]]:
        return [(each.segment_id, each.subscription, each.messages) for each in self.grown]


def run(test: Callable[[Desk], Awaitable[None]]) -> None:
    async def body() -> None:
        async with memory_cluster(1, **PATIENT, brokerServicePort=7000) as cluster:
            (node,) = cluster.nodes
            await node.operations.topics.create(NAME, 2, {})
            await node.operations.topics.consumers.create(NAME, "billing", SubscriptionKind.STREAM)
            topic = node.view.topic(NAME)
            assert topic is not None
            async with (
                serving(sessions(node.operations, node.settings)) as server,
                connected(server) as connection,
            ):
                desk = Desk(connection, topic.incarnation)
                node.operations.traffic.listener = desk.grown.append
                await test(desk)

    steady.run(asyncio.wait_for(body(), WAIT_S))


def test_what_is_written_to_and_read_from_a_segment_is_counted() -> None:
    async def test(desk: Desk) -> None:
        await desk.report((0, "", 10), (1, "billing", 20))
        assert desk.counted == [(0, "", 10), (1, "billing", 20)]

    run(test)


def test_segments_and_subscriptions_that_are_not_there_are_passed_over() -> None:
    async def test(desk: Desk) -> None:
        await desk.report((99, "", 10), (0, "invented", 10), (0, "", 5))
        assert desk.counted == [(0, "", 5)]

    run(test)


def test_a_report_with_more_entries_than_there_are_places_is_refused_and_the_next_is_taken() -> (
    None
):
    async def test(desk: Desk) -> None:
        many = [(0, "", 1)] * 10_001
        with pytest.raises(
            RefusedError, match="10001 entries; at most 10000 are looked"
        ) as refused:
            await desk.report(*many)
        assert refused.value.code == pb.ServerError.NotAllowedError
        assert desk.counted == []
        await desk.report(*many[1:])
        assert desk.counted == [(0, "", 1)]

    run(test)


def test_a_report_on_a_topic_that_is_not_there_or_was_made_again_is_refused() -> None:
    async def test(desk: Desk) -> None:
        with pytest.raises(RefusedError):
            await desk.report((0, "", 10), topic="public/default/invented")
        with pytest.raises(RefusedError) as refused:
            await desk.report((0, "", 10), incarnation=desk.incarnation + 1)
        assert refused.value.code == pb.ServerError.TopicNotFound
        assert desk.counted == []

    run(test)
