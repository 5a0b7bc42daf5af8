"""What Pulsar's own clients send, recorded, and what they are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from anabranch.broker.binary.sessions import sessions
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from support.binary import one_node
from support.wire import raw, serving

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
