"""Look-ups by the binary protocol, on nodes in memory behind real sockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from google.protobuf.message import Message

from anabranch.broker.binary.handlers import code_of, lookups, open_sessions
from anabranch.broker.binary.sessions import sessions
from anabranch.broker.errors import ConflictError, NotFoundError, StartError, UnavailableError
from anabranch.core.errors import InvalidInputError, UnknownSegmentError
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.client import ClientConnection
from anabranch.wire.commands import envelope, payload_of
from anabranch.wire.server.server import Peer
from support.binary import client_of, one_node, reachable, subscribe
from support.wire import WAIT_S, connected, is_refused, raw, serving

TOPIC = "topic://public/default/orders"


async def looked_up(client: ClientConnection, topic: str) -> pb.CommandLookupTopicResponse:
    return (await client.request(pb.CommandLookupTopic(topic=topic), WAIT_S)).lookupTopicResponse


@pytest.mark.parametrize(
    ("topic", "code", "said"),
    [
        ("topic://public/nothing/orders", pb.TopicNotFound, "public/nothing does not exist"),
        ("orders", pb.InvalidTopicName, "not of the form tenant/namespace/topic"),
    ],
)
async def test_a_look_up_that_cannot_be_answered_says_why_and_the_connection_lives_on(
    topic: str, code: pb.ServerError, said: str
) -> None:
    async with one_node() as node, client_of(node) as client:
        await is_refused(looked_up(client, topic), code, said)
        assert (await looked_up(client, TOPIC)).brokerServiceUrl


async def test_an_owner_without_a_binary_port_is_named() -> None:
    async with reachable(brokerServicePort=0) as cluster, client_of(cluster.nodes[0]) as client:
        await is_refused(looked_up(client, TOPIC), pb.ServiceNotReady, "b1:8080 owns the bundle of")


async def test_what_a_part_refuses_on_purpose_is_its_commands_answer() -> None:
    def part(_peer: Peer) -> dict[int, Callable[[pb.BaseCommand], Awaitable[None]]]:
        async def refuse(_command: pb.BaseCommand) -> None:
            raise ConflictError("split under way")

        return {pb.BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE: refuse}

    async with serving(open_sessions(part)) as server, connected(server) as client:
        asked = client.request(pb.CommandScalableTopicUnsubscribe(consumer_id=1), WAIT_S)
        await is_refused(asked, pb.NotAllowedError, "split under way")


async def test_two_parts_for_one_command_are_a_mistake() -> None:
    async with one_node() as node:
        part = lookups(node.operations)
        async with serving() as server, connected(server):
            (peer,) = server.peers
            with pytest.raises(ValueError, match="two parts serve command 23"):
                open_sessions(part, part)(peer)


def test_errors_have_the_numbers_of_the_protocol() -> None:
    assert code_of(NotFoundError("x")) == pb.TopicNotFound
    assert code_of(UnavailableError("x")) == pb.ServiceNotReady
    assert code_of(InvalidInputError("x")) == pb.InvalidTopicName
    assert code_of(UnknownSegmentError("x")) == pb.InvalidTopicName
    assert code_of(StartError("x")) == pb.UnknownError


@pytest.mark.parametrize("command", ["scalableTopicLookup", "scalableTopicSubscribe"])
async def test_a_client_that_does_not_read_kafka_is_told_so(command: str) -> None:
    """Pulsar's own would look for the segments at brokers, and hang."""

    async with one_node() as node:
        await node.operations.topics.create("public/default/orders", 1, {})

        def asked(version: str) -> Message:
            if command == "scalableTopicLookup":
                return pb.CommandScalableTopicLookup(
                    session_id=3, topic="topic://public/default/orders"
                )
            return subscribe("public/default/orders", consumer_name=version)

        routes = sessions(node.operations, node.settings)
        for version, flags in (
            ("Pulsar-Java-v5.0.0-M1", pb.FeatureFlags(supports_scalable_topics=True)),
            ("anabranch", pb.FeatureFlags()),
            ("another", pb.FeatureFlags(reads_kafka=True)),
        ):
            async with serving(routes) as server, raw(server.port) as client:
                hello = pb.CommandConnect(client_version=version, feature_flags=flags)
                client.send(envelope(hello))
                assert await client.answer() is not None
                client.send(envelope(asked(version)))
                payload = payload_of(await client.told())
                if version.startswith("Pulsar"):
                    assert payload.error == pb.ServerError.NotAllowedError
                    assert "does not read Kafka" in payload.message
                else:
                    assert not payload.HasField("error"), payload.message
