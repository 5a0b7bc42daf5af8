"""Reports of traffic by the binary protocol: only what there is can be reported on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.broker.binary.sessions import sessions
from anabranch.broker.load.traffic import TrafficGrowth
from anabranch.core.subscriptions.subscription import SubscriptionKind
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.client import ClientConnection
from anabranch.wire.errors import RefusedError
from support.binary import one_node
from support.wire import WAIT_S, connected, is_refused, serving

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


@asynccontextmanager
async def desk_of_topic() -> AsyncIterator[Desk]:
    async with one_node() as node:
        await node.operations.topics.create(NAME, 2, {})
        await node.operations.topics.consumers.create(NAME, "billing", SubscriptionKind.STREAM)
        topic = node.operations.topics.topic(NAME)
        async with (
            serving(sessions(node.operations, node.settings)) as server,
            connected(server) as connection,
        ):
            desk = Desk(connection, topic.incarnation)
            node.operations.traffic.listener = desk.grown.append
            yield desk


async def test_what_is_written_to_and_read_from_segments_that_are_there_is_counted() -> None:
    async with desk_of_topic() as desk:
        await desk.report((99, "", 10), (0, "", 10), (0, "invented", 10), (1, "billing", 20))
        assert desk.counted == [(0, "", 10), (1, "billing", 20)]


async def test_a_report_on_a_topic_that_is_not_there_or_was_made_again_is_refused() -> None:
    async with desk_of_topic() as desk:
        with pytest.raises(RefusedError):
            await desk.report((0, "", 10), topic="public/default/invented")
        asked = desk.report((0, "", 10), incarnation=desk.incarnation + 1)
        await is_refused(asked, pb.ServerError.TopicNotFound)
        assert desk.counted == []
