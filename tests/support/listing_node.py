"""A node that answers with lists of any length, and a proxy before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from anabranch.core.security.principal import Principal
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.framing import LIST_FRAME_BYTES_MAX, encode_frame
from anabranch.wire.memory.limiter import LimitType
from anabranch.wire.server.identity import AdmittedPeer, Visitor
from anabranch.wire.server.server import Peer, Routes
from support.proxied import RunningProxy, proxy_before
from support.wire import Raw, raw, serving

Told = (
    pb.CommandGetTopicsOfNamespaceResponse
    | pb.CommandWatchTopicListSuccess
    | pb.CommandWatchScalableTopicsUpdate
)

_LIMITS = ConnectionLimits(unsent_bytes_max=4 * LIST_FRAME_BYTES_MAX, unread_s_max=3_600)


class Believing:
    """Believes of everybody for whom they say to ask; for `seconds`, None: for ever."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self.shown_anew: list[bytes] = []

    async def admit(self, connect: pb.CommandConnect, visitor: Visitor) -> AdmittedPeer:
        return AdmittedPeer(Principal(connect.original_principal or "proxy"), self.seconds)

    async def admit_again(self, shown: pb.AuthData, visitor: Visitor) -> AdmittedPeer:
        self.shown_anew.append(shown.auth_data)
        return AdmittedPeer(visitor.principal)


class ListingNode:
    """Answers with lists of as many names as the namespace says, and pushes changes on demand."""

    def __init__(self) -> None:
        self.peers: list[Peer] = []
        self.asked = 0
        self.told = 0  # lists with names
        self.hash = "abc"
        self.strangers: set[str] = set()  # roles that may not see any list
        self.believing = Believing()  # who comes, where it is asked
        self.waits = asyncio.Event()  # not set: nothing is answered
        self.waits.set()

    def names(self, count: int) -> list[str]:
        return [f"topic://public/default/a-topic-with-number-{n:06}" for n in range(count)]

    def open_session(self, peer: Peer) -> Routes:
        self.peers.append(peer)

        async def topics(command: BaseCommand) -> None:
            self.asked += 1
            asked = command.getTopicsOfNamespace
            if peer.principal.role in self.strangers:
                peer.refuse(command, pb.ServerError.TopicNotFound, "not for you to see")
                return
            if asked.namespace == "public/none":
                peer.refuse(command, pb.ServerError.TopicNotFound, "no such namespace")
                return
            await self.waits.wait()
            count = int(asked.namespace.split("/")[1])
            told = pb.CommandGetTopicsOfNamespaceResponse(
                request_id=asked.request_id, topics_hash=self.hash
            )
            told.changed = asked.topics_hash != self.hash
            self.send_names(peer, told, self.names(count) if told.changed else [])

        async def watch(command: BaseCommand) -> None:
            self.asked += 1
            asked = command.watchScalableTopics
            await self.waits.wait()
            told = pb.CommandWatchScalableTopicsUpdate(
                watch_id=asked.watch_id, topics_hash=self.hash
            )
            is_known = asked.current_hash == self.hash
            if is_known:
                told.diff.SetInParent()
            self.send_names(peer, told, [] if is_known else self.names(int(asked.namespace[7:])))

        async def close(_command: BaseCommand) -> None:
            """There is no answer to it."""

        async def watch_list(command: BaseCommand) -> None:
            asked = command.watchTopicList
            if asked.namespace == "public/none":
                peer.refuse(command, pb.ServerError.TopicNotFound, "no such namespace")
                return
            told = pb.CommandWatchTopicListSuccess(
                request_id=asked.request_id, watcher_id=asked.watcher_id, topics_hash=self.hash
            )
            self.send_names(peer, told, self.names(int(asked.namespace.split("/")[1])))

        async def lookup(command: BaseCommand) -> None:
            peer.send(
                pb.CommandLookupTopicResponse(
                    request_id=command.lookupTopic.request_id,
                    brokerServiceUrl="pulsar://node:6650",
                    response=pb.CommandLookupTopicResponse.Connect,
                )
            )

        return {
            BaseCommand.GET_TOPICS_OF_NAMESPACE: topics,
            BaseCommand.WATCH_SCALABLE_TOPICS: watch,
            BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE: close,
            BaseCommand.WATCH_TOPIC_LIST: watch_list,
            BaseCommand.LOOKUP: lookup,
        }

    def send_names(self, peer: Peer, answer: Told, names: list[str]) -> None:
        if isinstance(answer, pb.CommandWatchTopicListSuccess):
            answer.topic.extend(names)
        elif isinstance(answer, pb.CommandGetTopicsOfNamespaceResponse):
            answer.topics.extend(names)
        elif not answer.HasField("diff"):
            answer.snapshot.topics.extend(names)
            answer.snapshot.SetInParent()
        self.told += bool(names)
        self.send(peer, answer)

    def send(self, peer: Peer, message: object) -> None:
        data = commands.envelope(message).SerializeToString()  # type: ignore[arg-type]
        peer.send_frame(encode_frame(data, LIST_FRAME_BYTES_MAX))


@asynccontextmanager
async def listed(**changes: object) -> AsyncIterator[tuple[RunningProxy, ListingNode]]:
    """The node asks who comes where the changes have the proxy do so."""
    node = ListingNode()
    async with (
        serving(node.open_session, _LIMITS) as server,
        proxy_before(server.port, **changes) as proxy,
    ):
        if "authenticationEnabled" in changes:
            server.admission = node.believing
        yield proxy, node


@asynccontextmanager
async def before_another(proxy: RunningProxy) -> AsyncIterator[RunningProxy]:
    """A proxy that takes this one for its node."""
    async with proxy_before(proxy.port) as outer:
        yield outer


@asynccontextmanager
async def client_of(proxy: RunningProxy, token: str = "") -> AsyncIterator[Raw]:
    async with raw(proxy.port, LIST_FRAME_BYTES_MAX) as client:
        if token:
            hello = pb.CommandConnect(client_version="raw", protocol_version=15)
            hello.auth_method_name, hello.auth_data = "token", token.encode()
            client.send(commands.envelope(hello))
            await client.welcomed()
        else:
            await client.handshake()
        yield client


def ask(client: Raw, count: int | str, request_id: int = 1) -> None:
    asked = pb.CommandGetTopicsOfNamespace(request_id=request_id, namespace=f"public/{count}")
    client.send(commands.envelope(asked))


def watch(client: Raw, count: int, watch_id: int = 1) -> None:
    asked = pb.CommandWatchScalableTopics(watch_id=watch_id, namespace=f"public/{count}")
    client.send(commands.envelope(asked))


def held(proxy: RunningProxy) -> tuple[int, int]:
    limiter = proxy.proxy.limiter
    heap, direct = (limiter.side(each).acquired for each in LimitType)
    return heap, direct


async def deaf(stack: AsyncExitStack, proxy: RunningProxy, count: int) -> list[Raw]:
    """Clients that read nothing."""
    found = [await stack.enter_async_context(client_of(proxy)) for _ in range(count)]
    for each in found:
        each.writer.transport.pause_reading()  # type: ignore[attr-defined]
    return found
