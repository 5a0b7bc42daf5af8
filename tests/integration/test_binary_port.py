"""The binary port of real node processes, and addresses that are none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.nodes import NodeProcess, await_ready, stop_all
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.client import ClientConnection, connect
from anabranch.wire.errors import ConnectError
from support.processes import EVENLY, HOST, LONG_LEASES, free_ports
from support.waiting import WAIT_S

pytestmark = pytest.mark.integration


async def connected(service_url: str) -> ClientConnection:
    address = urlsplit(service_url)
    assert address.scheme == "pulsar"
    assert address.hostname
    assert address.port
    return await connect(address.hostname, address.port, timeout_s=WAIT_S)


async def look_up(service_url: str, topic: str) -> str:
    client = await connected(service_url)
    answer = await client.request(pb.CommandLookupTopic(topic=topic), WAIT_S)
    client.abort("asked")
    await asyncio.wait([client.closed])
    return answer.lookupTopicResponse.brokerServiceUrl


def test_each_node_process_sends_clients_to_the_binary_port_of_the_owner(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    first = free_ports(2)
    nodes = [
        NodeProcess(
            f"node-{number}",
            first + number,
            kafka.bootstrap_servers,
            tmp_path,
            f"topicPrefix={topic_prefix}",
            *LONG_LEASES,
            EVENLY,
        )
        for number in range(2)
    ]
    try:
        for node in nodes:
            node.start()
        await_ready(nodes)
        urls = [node.service_url() for node in nodes]

        async def test() -> None:
            named = {await look_up(url, "topic://public/default/orders") for url in urls}
            assert len(named) == 1
            assert named <= set(urls)
            client = await connected(urls[0])
            nodes[0].terminate()
            assert nodes[0].wait(WAIT_S)
            assert await asyncio.wait_for(client.closed, WAIT_S) == "closed by the other side"

        asyncio.run(test())
        assert nodes[0].exit_status == 0
    finally:
        stop_all(nodes)


def test_a_plain_kafka_address_is_said_to_be_no_node(kafka: EmbeddedKafka) -> None:
    port = int(kafka.bootstrap_servers.rpartition(":")[2])

    async def test() -> None:
        with pytest.raises(ConnectError, match="does not speak the binary protocol of a node"):
            await connect(HOST, port, timeout_s=WAIT_S)

    asyncio.run(test())
