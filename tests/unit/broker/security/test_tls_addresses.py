"""Whoever asks where something is, is told where it is with TLS too."""

from __future__ import annotations

import httpx

from anabranch.broker.http.app import create_app
from anabranch.wire.anabranch_pb2 import CommandLookupTopic
from support.binary import client_of
from support.memory_cluster import MemoryCluster, memory_cluster
from support.wire import WAIT_S

TLS = {
    "tlsCertificateFilePath": "server.pem",
    "tlsKeyFilePath": "server.key",
    "webServicePortTls": 8443,
    "brokerServicePortTls": 6651,
}
ALONE = {**TLS, "webServicePort": "", "brokerServicePort": ""}
NAME = "persistent/public/default/orders"


def http_of(cluster: MemoryCluster, number: int, scheme: str) -> httpx.AsyncClient:
    node = cluster.nodes[number]
    transport = httpx.ASGITransport(create_app(node.operations, node.settings, node.metrics))
    return httpx.AsyncClient(transport=transport, base_url=f"{scheme}://node", timeout=WAIT_S)


async def test_look_ups_name_the_owner_s_addresses_with_tls_and_without() -> None:
    async with memory_cluster(2, **TLS) as cluster:
        for number in (0, 1):  # its own, and what the other says of itself
            async with http_of(cluster, number, "http") as http:
                told = (await http.get(f"/lookup/v2/topic/{NAME}")).json()
            owner = told["httpUrl"].removeprefix("http://").removesuffix(":8080")
            assert told == {
                "brokerUrl": f"pulsar://{owner}:6650",
                "brokerUrlTls": f"pulsar+ssl://{owner}:6651",
                "httpUrl": f"http://{owner}:8080",
                "httpUrlTls": f"https://{owner}:8443",
                "nativeUrl": f"pulsar://{owner}:6650",
            }
            async with client_of(cluster.nodes[number]) as client:
                asked = CommandLookupTopic(topic="persistent://public/default/orders")
                answer = (await client.request(asked, WAIT_S)).lookupTopicResponse
            assert answer.authoritative
            assert answer.brokerServiceUrl == told["brokerUrl"]
            assert answer.brokerServiceUrlTls == told["brokerUrlTls"]


async def test_where_there_is_no_port_without_tls_none_is_named() -> None:
    async with memory_cluster(1, **ALONE) as cluster, http_of(cluster, 0, "https") as http:
        told = (await http.get(f"/lookup/v2/topic/{NAME}")).json()
        assert told["brokerUrl"] is told["httpUrl"] is told["nativeUrl"] is None
        assert told["httpUrlTls"] == "https://b1:8443"
        leader = (await http.get("/admin/v2/brokers/leaderBroker")).json()
        assert leader == {"brokerId": "b1:8443", "serviceUrl": "https://b1:8443"}
        status = (await http.get("/admin/v2/brokers/status")).json()
        assert (status["serviceUrl"], status["serviceUrlTls"]) == ("", "pulsar+ssl://b1:6651")
        (found,) = (await http.get("/admin/v2/brokers/addresses")).json()
        assert found == {
            "brokerId": "b1:8443",
            "webServiceUrl": "",
            "webServiceUrlTls": "https://b1:8443",
            "brokerServiceUrl": "",
            "brokerServiceUrlTls": "pulsar+ssl://b1:6651",
        }
        async with client_of(cluster.nodes[0]) as client:
            asked = CommandLookupTopic(topic="persistent://public/default/orders")
            answer = (await client.request(asked, WAIT_S)).lookupTopicResponse
        assert not answer.HasField("brokerServiceUrl")
        assert answer.brokerServiceUrlTls == "pulsar+ssl://b1:6651"


async def test_a_request_is_sent_on_with_tls_if_it_came_so() -> None:
    async with memory_cluster(2, **TLS) as cluster:
        access = cluster.nodes[0].operations.topics.access
        located = await access.find_controller("public/default/orders")
        other = next(n for n, node in enumerate(cluster.nodes) if node.id != located.broker)
        host, _, _ = located.broker.partition(":")
        for scheme, port in (("http", 8080), ("https", 8443)):
            async with http_of(cluster, other, scheme) as http:
                answer = await http.put("/admin/v2/scalable/public/default/orders")
            assert answer.status_code == 307
            assert answer.headers["location"].startswith(f"{scheme}://{host}:{port}/")
