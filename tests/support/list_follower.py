"""Clients that follow lists of topics, on nodes in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from anabranch.broker.binary.sessions import sessions
from anabranch.core.topic_lists.topic_list import topics_hash
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.client import ClientConnection
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.memory.limiter import LimitType
from anabranch.wire.server.server import Peer, WireServer
from support.memory_cluster import WAIT_S, MemoryNode, until
from support.wire import connected, serving

HOME = "public/default"
EMPTY = topics_hash(())


def full(*names: str) -> list[str]:
    return [f"topic://{HOME}/{name}" for name in names]


class Follower:
    """A client that keeps the lists that its watches tell it."""

    def __init__(self) -> None:
        self.pushed: list[BaseCommand] = []
        self.lists: dict[tuple[str, int], set[str]] = {}
        self.hashes: dict[int, str] = {}
        self.errors: dict[int, pb.CommandWatchScalableTopicsUpdate] = {}
        self.connection: ClientConnection
        self.server: WireServer

    @property
    def peer(self) -> Peer:
        """The node's side of its connection."""
        (peer,) = self.server.peers
        return peer

    @property
    def updates(self) -> Sequence[pb.CommandScalableTopicUpdate]:
        """What it is told of layouts."""
        return [each.scalableTopicUpdate for each in self.pushed]

    def watch_layout(self, topic: str, session: int = 1) -> None:
        self.connection.send(pb.CommandScalableTopicLookup(session_id=session, topic=topic))

    async def got(self, count: int) -> pb.CommandScalableTopicUpdate:
        await until(lambda: len(self.pushed) >= count)
        return self.updates[count - 1]

    def take(self, command: BaseCommand) -> None:
        self.pushed.append(command)
        if command.type == BaseCommand.WATCH_TOPIC_UPDATE:
            told = command.watchTopicUpdate
            known = self.lists["list", told.watcher_id]
            known.difference_update(told.deleted_topics)
            assert not known & set(told.new_topics)
            known.update(told.new_topics)
            assert topics_hash(known) == told.topics_hash
        elif command.type == BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE:
            self._take_scalable(command.watchScalableTopicsUpdate)

    def _take_scalable(self, told: pb.CommandWatchScalableTopicsUpdate) -> None:
        if told.HasField("error"):
            self.errors[told.watch_id] = told
        elif told.HasField("snapshot"):
            self.lists["scalable", told.watch_id] = set(told.snapshot.topics)
        else:
            known = self.lists.setdefault(("scalable", told.watch_id), set())
            known.difference_update(told.diff.removed)
            known.update(told.diff.added)

    async def list(self, **fields: object) -> pb.CommandGetTopicsOfNamespaceResponse:
        asked = pb.CommandGetTopicsOfNamespace(**{"namespace": HOME, **fields})  # type: ignore[arg-type]
        answer = await self.connection.request(asked, WAIT_S)
        return answer.getTopicsOfNamespaceResponse

    async def watch(
        self, number: int = 1, pattern: str = ".*", known: str = ""
    ) -> pb.CommandWatchTopicListSuccess:
        asked = pb.CommandWatchTopicList(
            watcher_id=number, namespace=HOME, topics_pattern=pattern, topics_hash=known
        )
        answer = (await self.connection.request(asked, WAIT_S)).watchTopicListSuccess
        if not known or known != answer.topics_hash:
            self.lists["list", number] = set(answer.topic)
        return answer

    def watch_scalable(self, number: int = 1, known: str = "", **filters: str) -> None:
        self.connection.send(
            pb.CommandWatchScalableTopics(
                watch_id=number,
                namespace=HOME,
                property_filters=[pb.KeyValue(key=k, value=v) for k, v in filters.items()],
                current_hash=known,
            )
        )

    def has(self, kind: str, *names: str, number: int = 1) -> bool:
        return self.lists.get((kind, number)) == set(full(*names))


@asynccontextmanager
async def follower_of(
    node: MemoryNode, limits: ConnectionLimits | None = None
) -> AsyncIterator[Follower]:
    follower = Follower()
    async with (
        serving(sessions(node.operations, node.settings), limits) as server,
        connected(server, follower.take) as connection,
    ):
        follower.connection, follower.server = connection, server
        yield follower


async def make(node: MemoryNode, *names: str, **properties: str) -> None:
    for name in names:
        await node.operations.topics.create(f"{HOME}/{name}", 1, properties)


async def drop(node: MemoryNode, *names: str) -> None:
    for name in names:
        await node.operations.topics.delete(f"{HOME}/{name}")


def held(node: MemoryNode) -> int:
    limiter = node.operations.topic_list_limiter
    return sum(limiter.side(each).acquired for each in LimitType)
