"""What a consumer's parts do when they cannot go on: they say so, and wait for nothing."""

from __future__ import annotations

import asyncio
import socket

import pytest
from confluent_kafka import KafkaException

from anabranch.client.data_plane import DataPlane, ReadSettings
from anabranch.client.errors import ClientError
from anabranch.client.holdings import ConsumerCore
from anabranch.client.layout_watch import LayoutWatch
from anabranch.client.nodes import Nodes
from anabranch.client.session import ConsumerSession, Identity
from anabranch.wire import clock
from anabranch.wire.anabranch_pb2 import ScalableConsumerType


def test_a_fault_in_the_session_fails_the_consumer_at_once() -> None:
    async def test() -> None:
        nodes = Nodes("pulsar://127.0.0.1:1")
        watch = LayoutWatch(nodes, "topic://public/default/orders")  # not started: it raises
        who = Identity(watch.topic, "billing", "one", 1, ScalableConsumerType.STREAM)
        told = asyncio.Event()
        session = ConsumerSession(ConsumerCore(1.0), who, nodes, watch, clock.now, told.set)
        with pytest.raises(ClientError, match="ended by a fault"):
            await session.start(timeout_s=60.0)
        assert told.is_set()
        await session.close(0.1)

    asyncio.run(asyncio.wait_for(test(), 20))


def test_a_commit_without_kafka_is_given_up_before_the_session_lapses(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        servers = f"127.0.0.1:{nobody.getsockname()[1]}"

        async def test() -> None:
            kafka = {"bootstrap.servers": servers, "group.id": "billing"}
            plane = DataPlane(kafka, ReadSettings(), lambda: None)
            try:
                with pytest.raises(KafkaException):
                    await asyncio.wait_for(plane.commit({("orders", 0): 5}), 10.0)
            finally:
                await plane.close()

        asyncio.run(test())
    assert capfd.readouterr().err == ""
