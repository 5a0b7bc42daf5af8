"""A proxy and nodes as processes, with all of their security on, and a token that is revoked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from anabranch.access import Tls, TlsFiles, Token
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.ports import free_port
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from anabranch.wire.client import ClientConnection, connect
from anabranch.wire.errors import RefusedError
from support.kafka_cluster import KafkaCluster
from support.node_process import node_process
from support.proxy_process import ProxyProcess, proxy_process
from support.secured_proxy import (
    ADMIN,
    PEOPLE,
    PROXY,
    READER,
    STRANGER,
    Surroundings,
    furnished,
    shown,
)
from support.waiting import WAIT_S, eventually, until
from support.wire import HOST

pytestmark = pytest.mark.integration

ORDERS = f"{ADMIN}/scalable/acme/shop/orders"
FULL = "topic://acme/shop/orders"


async def names(client: ClientConnection) -> list[str] | int:
    asked = pb.CommandGetTopicsOfNamespace(namespace="acme/shop")
    try:
        answer = await client.request(asked, WAIT_S)
    except RefusedError as error:
        return int(error.code)
    return list(answer.getTopicsOfNamespaceResponse.topics)


async def body(proxy: ProxyProcess, around: Surroundings) -> None:
    tls = TlsFiles(Tls(ca_file=around.authority.file))
    port = urlsplit(proxy.service_url_tls).port or 0
    told: list[BaseCommand] = []

    async def joined(
        role: str, on_push: Callable[[BaseCommand], None] = told.append
    ) -> ClientConnection:
        return await connect(HOST, port, on_push=on_push, tls=tls, credentials=Token(shown(role)))

    async with httpx.AsyncClient(
        base_url=proxy.web_url_tls, verify=around.authority.client(), timeout=WAIT_S
    ) as http:

        async def ask(
            method: str, path: str, role: str = "", json: object = None
        ) -> httpx.Response:
            headers = {"Authorization": f"Bearer {shown(role)}"} if role else {}
            return await http.request(method, path, headers=headers, json=json)

        async def is_ready(wanted: int) -> bool:
            return (await ask("GET", "/readyz")).status_code == wanted

        await furnished(ask)
        assert (await ask("GET", ORDERS, READER)).status_code == 200
        assert (await ask("GET", ORDERS, STRANGER)).status_code == 404
        assert (await ask("GET", ORDERS)).status_code == 401
        reader, stranger = await joined(READER), await joined(STRANGER)
        found: list[object] = [*await asyncio.gather(names(reader), names(stranger), names(reader))]
        assert found == [[FULL], ServerError.TopicNotFound, [FULL]]
        reader.send(pb.CommandWatchScalableTopics(watch_id=1, namespace="acme/shop"))
        await until(lambda: bool(told))
        assert list(told[0].watchScalableTopicsUpdate.snapshot.topics) == [FULL]

        around.set_keys("people")
        await eventually(lambda: is_ready(503))
        assert (await ask("GET", ORDERS, READER)).status_code == 503
        assert (await ask("GET", ORDERS)).status_code == 401
        around.set_token(shown(PROXY, PEOPLE))
        await eventually(lambda: is_ready(200))
        assert (await ask("GET", ORDERS, READER)).status_code == 200
        for each in (reader, stranger):
            each.abort("the test is over")


def test_clients_of_a_secured_proxy_have_their_own_rights_and_its_token_can_be_revoked(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    around = Surroundings(tmp_path)
    cluster = KafkaCluster(kafka, topic_prefix, tmp_path)
    all_of_it = [
        cluster.settings(
            **around.of_nodes,
            webServicePortTls=free_port(HOST),
            brokerServicePort=free_port(HOST),
            brokerServicePortTls=free_port(HOST),
        )
        for _ in range(2)
    ]
    own = {
        **around.asking,
        **around.showing,
        "brokerListRefreshSeconds": 0.1,
        "webServicePortTls": 0,
        "servicePortTls": 0,
    }
    given = [
        f"{name}={str(value).lower() if value is True else value}" for name, value in own.items()
    ]
    with ExitStack() as stack:
        nodes = [stack.enter_context(node_process(settings)) for settings in all_of_it]
        first = [f"{HOST}:{all_of_it[0].web_service_port_tls}"]
        proxy = stack.enter_context(proxy_process("proxy", first, tmp_path, given, "https"))
        asyncio.run(body(proxy, around))
        assert proxy.stop() == 0, proxy.text()
        texts = [proxy.text(), *(node.text() for node in nodes)]
    assert "proxy.credentials_refused" in texts[0]
    assert "proxy.credentials_taken" in texts[0]
    for text in texts:
        assert "Traceback" not in text
        assert shown(READER).rpartition(".")[0] not in text
        assert PEOPLE.decode() not in text
