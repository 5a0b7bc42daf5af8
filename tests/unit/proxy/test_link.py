"""What a proxy's link takes of a list before there is memory for it, and how it takes the list."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.proxy.link import OWN_IDS, PIECE_BYTES_MAX, NodeLink
from anabranch.proxy.lists import INITIAL_BYTES
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.client import join
from anabranch.wire.connection import PROTOCOL_VERSION
from anabranch.wire.errors import RequestTimeoutError
from anabranch.wire.server.server import Peer, Routes
from support.listing_node import ListingNode
from support.waiting import WAIT_S
from support.wire import HOST, serving

HELLO = pb.CommandConnect(client_version="link", protocol_version=PROTOCOL_VERSION)


class Owner:
    """Notes what its link tells it."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[int] = asyncio.Queue()
        self.answers: asyncio.Queue[BaseCommand] = asyncio.Queue()

    def answered(self, _link: NodeLink, command: BaseCommand) -> None:
        self.answers.put_nowait(command)

    def list_begins(self, _link: NodeLink, _type_number: int, frame_bytes: int) -> None:
        self.begun.put_nowait(frame_bytes)

    def link_ended(self, _link: NodeLink, _reason: str) -> None:
        pass


async def asks(link: NodeLink, owner: Owner, count: int, number: int) -> int:
    """Asks for so many names; the size of the list that has begun to come."""
    link.send(pb.CommandGetTopicsOfNamespace(request_id=number, namespace=f"public/{count}"))
    return await asyncio.wait_for(owner.begun.get(), WAIT_S)


async def test_a_list_that_is_not_taken_yet_is_a_piece_and_one_that_is_taken_comes_whole() -> None:
    node, owner = ListingNode(), Owner()
    async with serving(node.open_session) as server:
        link = await join(lambda: NodeLink(owner, "node"), HOST, server.port, HELLO, WAIT_S)
        for number, count in enumerate((100_000, 100_000, 1_000, 1, 100_000), 1):
            size = await asks(link, owner, count, number)
            for _ in range(50):  # turns in which more could come
                await asyncio.sleep(0)
            assert link._decoder.unfinished_bytes <= PIECE_BYTES_MAX < INITIAL_BYTES
            if number == 2:
                link.leave_out_list()
                continue
            data = await asyncio.wait_for(link.take_list(), WAIT_S)
            told = commands.parse(data).getTopicsOfNamespaceResponse
            assert (told.request_id, list(told.topics)) == (number, node.names(count))
            assert len(data) == size - 4
            link.list_over()
        link.send(pb.CommandLookupTopic(topic="topic://a/b/c", request_id=9))
        answer = await asyncio.wait_for(owner.answers.get(), WAIT_S)
        assert answer.lookupTopicResponse.request_id == 9
        own = await link.request(pb.CommandLookupTopic(topic="topic://a/b/c"), WAIT_S)
        assert own.lookupTopicResponse.request_id >= OWN_IDS
        assert owner.answers.empty()
        link.abort("enough")
        await asyncio.wait([link.closed])


async def test_a_late_answer_to_the_proxy_itself_is_no_answer_for_its_client() -> None:
    owner, asked = Owner(), asyncio.Queue[tuple[Peer, int]]()

    def slow(peer: Peer) -> Routes:
        async def lookup(command: BaseCommand) -> None:
            asked.put_nowait((peer, command.lookupTopic.request_id))

        return {BaseCommand.LOOKUP: lookup}

    async with serving(slow) as server:
        link = await join(lambda: NodeLink(owner, "node"), HOST, server.port, HELLO, WAIT_S)
        with pytest.raises(RequestTimeoutError):
            await link.request(pb.CommandLookupTopic(topic="topic://a/b/c"), 0.01)
        peer, number = await asyncio.wait_for(asked.get(), WAIT_S)
        for each in (number, 9):
            told = pb.CommandLookupTopicResponse(request_id=each)
            told.response = pb.CommandLookupTopicResponse.Connect
            peer.send(told)
        answer = await asyncio.wait_for(owner.answers.get(), WAIT_S)
        assert answer.lookupTopicResponse.request_id == 9
        link.abort("enough")
        await asyncio.wait([link.closed])


async def test_a_list_whose_link_has_ended_before_it_is_taken_is_not_waited_for() -> None:
    node, owner = ListingNode(), Owner()
    async with serving(node.open_session) as server:
        link = await join(lambda: NodeLink(owner, "node"), HOST, server.port, HELLO, WAIT_S)
        await asks(link, owner, 100_000, 1)
        link.abort("lost before its list was taken")
        await asyncio.wait([link.closed])
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(link.take_list(), WAIT_S)
