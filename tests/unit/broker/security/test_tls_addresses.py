"""Whoever asks where something is, is told where it is with TLS too."""

from __future__ import annotations

import asyncio

import httpx
import msgspec

from anabranch.broker.http.app import create_app
from anabranch.channel.codec import decode_heartbeat, encode_heartbeat
from anabranch.channel.registry import PREFIX_LENGTH
from anabranch.core.sessions.lease import Heartbeat
from anabranch.wire.anabranch_pb2 import CommandLookupTopic
from support import steady
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
    app = create_app(node.operations, node.settings, node.metrics)
    transport = httpx.ASGITransport(app)
    return httpx.AsyncClient(transport=transport, base_url=f"{scheme}://node", timeout=WAIT_S)


def test_look_ups_name_the_owner_s_addresses_with_tls_and_without() -> None:
    async def test() -> None:
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
                assert answer.brokerServiceUrl == told["brokerUrl"]
                assert answer.brokerServiceUrlTls == told["brokerUrlTls"]

    steady.run(test())


def test_where_there_is_no_port_without_tls_none_is_named() -> None:
    async def test() -> None:
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

    steady.run(test())


def test_a_request_is_sent_on_with_tls_if_it_came_so() -> None:
    async def test() -> None:
        async with memory_cluster(2, **TLS) as cluster:
            path = "/admin/v2/scalable/public/default/orders"
            answers: dict[str, str] = {}
            for scheme in ("http", "https"):
                for number in (0, 1):
                    async with http_of(cluster, number, scheme) as http:
                        answer = await http.put(f"{path}-{scheme}-{number}")
                        answers[scheme] = answer.headers.get("location", answers.get(scheme, ""))
                        other = http_of(cluster, 1 - number, scheme)
                        if answer.status_code == 307:
                            async with other:
                                await other.put(f"{path}-{scheme}-{number}")
                        for each in (0, 1):
                            async with http_of(cluster, each, scheme) as asked:
                                found = await asked.post(f"{path}-{scheme}-{number}/split/0")
                                if found.status_code == 307:
                                    answers[scheme] = found.headers["location"]
            assert answers["http"].startswith("http://b")
            assert ":8080/" in answers["http"]
            assert answers["https"].startswith("https://b")
            assert ":8443/" in answers["https"]

    steady.run(asyncio.wait_for(test(), WAIT_S))


def test_a_node_without_tls_sends_heartbeats_that_the_release_before_reads() -> None:
    plain = Heartbeat("b1:8080", 1, 2, 3.0, "serving", 4, "00", -1, "http://b1:8080", "", "0.1.0")
    secured = msgspec.structs.replace(plain, web_url_tls="https://b1:8443")
    first, second = encode_heartbeat(plain), encode_heartbeat(secured)
    assert first[:PREFIX_LENGTH].hex() == "c3010d130d7558a5c176"  # of heartbeat/1, as stored
    assert second[:PREFIX_LENGTH] != first[:PREFIX_LENGTH]
    assert [decode_heartbeat(each) for each in (first, second)] == [plain, secured]
