"""Look-ups and reports of traffic by the binary protocol, on nodes behind real sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf.message import Message

from anabranch.broker.binary.sessions import lookups, open_sessions, sessions
from anabranch.broker.errors import NotFoundError, StartError, UnavailableError, code_of
from anabranch.broker.load.traffic import TrafficGrowth
from anabranch.core.entities.subscription import SubscriptionKind
from anabranch.core.errors import InvalidInputError, UnknownSegmentError
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.client import ClientConnection
from anabranch.wire.commands import envelope, payload_of
from anabranch.wire.errors import RefusedError
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


# --- reports of traffic by the binary protocol: only what there is can be reported on -------------


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
        await node.operations.topics.subscriptions.create(NAME, "billing", SubscriptionKind.STREAM)
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


# --- what Pulsar's own clients send, recorded, and what they are told -----------------------------


# By client and command: the first frame of each that the client sent to make producers, consumers
# of a topic, of a namespace and of a pattern, readers and table views.
FRAMES: Final[dict[str, dict[str, str]]] = json.loads(
    (Path(__file__).parents[3] / "data" / "pulsar_frames.json").read_text()
)
ANSWERS: Final = {
    "PARTITIONED_METADATA": BaseCommand.PARTITIONED_METADATA_RESPONSE,
    "GET_SCHEMA": BaseCommand.GET_SCHEMA_RESPONSE,
    "SCALABLE_TOPIC_LOOKUP": BaseCommand.SCALABLE_TOPIC_UPDATE,
}
NO_ANSWER: Final = ("SCALABLE_TOPIC_CLOSE", "WATCH_SCALABLE_TOPICS_CLOSE")


@pytest.mark.parametrize("name", FRAMES)
async def test_each_request_is_refused_at_once_as_its_client_expects(name: str) -> None:
    async with one_node() as node:
        await node.operations.topics.create("public/default/v5", 2, {})
        routes = sessions(node.operations, node.settings)
        frames = {command: bytes.fromhex(frame) for command, frame in FRAMES[name].items()}
        async with serving(routes) as server, raw(server.port) as client:
            client.writer.write(frames.pop("CONNECT"))
            await client.welcomed()
            for command, frame in frames.items():
                if command in NO_ANSWER:
                    continue
                client.writer.write(frame)
                answer = await client.told()
                said = commands.payload_of(answer)
                if command == "LOOKUP":  # look-ups are served
                    assert said.response == pb.CommandLookupTopicResponse.Connect
                    continue
                if command == "GET_TOPICS_OF_NAMESPACE":  # and so are lists of topics
                    assert list(said.topics) == ["topic://public/default/v5"]
                    continue
                if command == "WATCH_SCALABLE_TOPICS":
                    assert list(said.snapshot.topics) == ["topic://public/default/v5"]
                    continue
                assert answer.type == ANSWERS[command]
                code, why = _refusal(said)
                assert code == pb.ServerError.NotAllowedError
                assert "Kafka" in why
                asked = commands.payload_of(commands.parse(frame[8:]))
                for each in ("request_id", "session_id", "watch_id"):
                    if each in said.DESCRIPTOR.fields_by_name:
                        assert getattr(said, each) == getattr(asked, each)


def _refusal(said: Any) -> tuple[int, str]:
    if "error_code" in said.DESCRIPTOR.fields_by_name:
        return said.error_code, said.error_message
    return said.error, said.message
