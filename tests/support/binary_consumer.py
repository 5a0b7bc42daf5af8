"""A consumer of the binary protocol that does what a test tells it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch.broker.binary.sessions import sessions
from anabranch.broker.requester import asked_by
from anabranch.core.security.principal import Principal
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.client import ClientConnection
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.errors import RefusedError
from anabranch.wire.server.server import OpenSession, Peer, Route, Routes
from support.memory_cluster import MemoryNode
from support.wire import WAIT_S, connected, serving

FULL = "topic://public/default/orders"
Held = dict[int, list[int]]


class Client:
    """A connection with one consumer on it, which does what it is told."""

    def __init__(self, connection: ClientConnection, name: str, instance: int) -> None:
        self.name = name
        self.instance = instance
        self.assigned: list[pb.ScalableConsumerAssignment] = []
        self.closed: list[str] = []  # why the node ended the session
        self._connection = connection

    def pushed(self, command: BaseCommand) -> None:
        if command.type == BaseCommand.CLOSE_CONSUMER:
            assert command.close_consumer.consumer_id == 7
            self.closed.append(command.close_consumer.reason)
        else:
            self.assigned.append(command.scalableTopicAssignmentUpdate.assignment)

    @property
    def held(self) -> Held:
        return {s.segment_id: list(s.buckets) for s in self.assigned[-1].segments}

    async def subscribe(
        self,
        holdings: Held | None = None,
        kind: int = pb.ScalableConsumerType.STREAM,
        drained: Held | None = None,
        begun_at: int = 0,
        subscription: str = "billing",
        **fields: Any,
    ) -> pb.CommandScalableTopicSubscribeResponse:
        asked = pb.CommandScalableTopicSubscribe(
            topic=FULL,
            subscription=subscription,
            consumer_name=self.name,
            consumer_id=7,
            consumer_type=kind,  # type: ignore[arg-type]  # an enumeration's number
            instance=self.instance,
            holdings=_buckets(holdings or {}),
            drained=_buckets(drained or {}),
            begun_at=begun_at,
            **fields,
        )
        answer = (await self._connection.request(asked, WAIT_S)).scalableTopicSubscribeResponse
        self.assigned.append(answer.assignment)
        return answer

    async def refused(self, **fields: Any) -> RefusedError:
        """Subscribes in vain."""
        with pytest.raises(RefusedError) as refused:
            await self.subscribe(**fields)
        return refused.value

    async def report(
        self,
        released: Held | None = None,
        drained: Held | None = None,
        committed: list[int] | None = None,
    ) -> None:
        """`committed`: of each bucket of the one segment that is released."""
        let_go = _buckets(released or {})
        if committed:
            let_go[0].committed.extend(committed)
        report = pb.CommandScalableConsumerReport(
            consumer_id=7, released=let_go, drained=_buckets(drained or {})
        )
        await self._connection.request(report, WAIT_S)

    async def report_refused(self) -> RefusedError:
        """Reports in vain."""
        with pytest.raises(RefusedError) as refused:
            await self.report()
        return refused.value

    async def leave(self, *, keep_share: bool = False) -> None:
        leave = pb.CommandScalableTopicUnsubscribe(consumer_id=7, keep_share=keep_share)
        await self._connection.request(leave, WAIT_S)

    def end(self, *, is_killed: bool) -> None:
        """Ends the connection, as a process that is killed does or as one that lives on."""
        (self._connection.close if is_killed else self._connection.abort)("it ends")


def _buckets(held: Held) -> list[pb.SegmentBuckets]:
    return [pb.SegmentBuckets(segment_id=each, buckets=own) for each, own in held.items()]


def _for(who: Principal, part: OpenSession) -> OpenSession:
    def open_session(peer: Peer) -> Routes:
        return {number: known(route) for number, route in part(peer).items()}

    def known(route: Route) -> Route:
        async def answer(command: BaseCommand) -> None:
            with asked_by(who):
                await route(command)

        return answer

    return open_session


@asynccontextmanager
async def client_of(
    node: MemoryNode,
    name: str,
    instance: int = 1,
    limits: ConnectionLimits | None = None,
    role: str = "",
    by: str = "",
) -> AsyncIterator[Client]:
    """`role`: whose connection it is, `by` a proxy."""
    clients: list[Client] = []
    routes = _for(Principal(role, by), sessions(node.operations, node.settings))

    def pushed(command: BaseCommand) -> None:
        clients[0].pushed(command)

    async with serving(routes, limits) as server, connected(server, pushed) as connection:
        clients.append(Client(connection, name, instance))
        yield clients[0]
