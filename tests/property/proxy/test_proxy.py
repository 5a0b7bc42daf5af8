"""Whatever order clients ask in, and nodes answer in, each gets its own answers through a proxy."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from anabranch.proxy.nodes import NodeTable
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.server.server import Peer, Routes
from support import steady
from support.proxied import proxy_before
from support.wire import raw, serving

# Which client asks, how many turns later the next one does, and how long the node takes.
_STEP = st.tuples(st.integers(0, 1), st.integers(0, 5), st.sampled_from([0.0, 0.001, 0.003]))


def answering(peer: Peer) -> Routes:
    """Refuses each look-up with its topic as the reason, which no proxy changes."""

    async def lookup(command: BaseCommand) -> None:
        asked = command.lookupTopic
        await asyncio.sleep(float(asked.topic.rpartition(" ")[2]))
        peer.send(
            pb.CommandLookupTopicResponse(
                request_id=asked.request_id,
                response=pb.CommandLookupTopicResponse.Failed,
                error=pb.ServerError.TopicNotFound,
                message=asked.topic,
            )
        )

    return {BaseCommand.LOOKUP: lookup}


@given(st.lists(_STEP, min_size=1, max_size=40))
def test_two_clients_get_each_exactly_its_own_answers(steps: list[tuple[int, int, float]]) -> None:
    async def body() -> None:
        async with (
            serving(answering) as node,
            proxy_before(node.port) as proxy,
            raw(proxy.port) as one,
            raw(proxy.port) as two,
        ):
            clients = (one, two)
            expected: tuple[list[tuple[int, str]], ...] = ([], [])
            for each in clients:
                await each.handshake()
            for place, (who, pause, wait_s) in enumerate(steps):
                topic = f"client {who} place {place} {wait_s}"
                number = len(expected[who])  # the same ids in both
                expected[who].append((number, topic))
                asked = pb.CommandLookupTopic(topic=topic, request_id=number)
                clients[who].send(commands.envelope(asked))
                for _ in range(pause):
                    await asyncio.sleep(0)
            for client, wanted in zip(clients, expected, strict=True):
                found = []
                for _ in wanted:
                    answer = await client.told()
                    said = answer.lookupTopicResponse
                    found.append((said.request_id, said.message))
                assert sorted(found) == sorted(wanted)

    steady.run(body())


_ADDRESSES = st.sampled_from(["a:1", "b:1", "c:1", "d:1"])


@given(
    st.lists(_ADDRESSES, unique=True),
    st.lists(st.tuples(st.sampled_from(["failed", "answered", "learn"]), _ADDRESSES), max_size=30),
)
def test_every_node_is_tried_once_and_those_that_answer_first(
    named: list[str], events: list[tuple[str, str]]
) -> None:
    with capture_logs():  # thousands of lines
        table = NodeTable(named)
        failing: set[str] = set()
        for event, address in events:
            if event == "learn":
                table.learn({address, "a:1"})
                failing &= set(table.addresses)
            elif address in table.addresses:
                if event == "failed":
                    table.failed(address, "the test says so")
                    failing.add(address)
                else:
                    table.answered(address)
                    failing.discard(address)
            order = table.order()
            assert sorted(order) == sorted(table.addresses)
            assert set(named) <= set(order)
            assert [each in failing for each in order] == sorted(each in failing for each in order)
            assert table.answering == len(order) - len(failing)
