"""A node as a process, with all of its security on: TLS, tokens, rights, and their change."""

from __future__ import annotations

import asyncio
import shutil
import signal
import ssl
import time
from pathlib import Path

import httpx
import pytest

from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.ports import free_port
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from support.authority import Authority, Issued, tls_settings
from support.kafka_cluster import KafkaCluster
from support.node_process import NodeProcess, node_process
from support.processes import STOP_S_MAX
from support.tokens import SECRET, secret_file, token
from support.waiting import WAIT_S
from support.wire import HOST, Raw, hang_up

pytestmark = pytest.mark.integration

ADMIN = "/admin/v2"


async def shake(port: int, context: ssl.SSLContext, role: str, wanted: int) -> None:
    reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
    hello = pb.CommandConnect(client_version="anabranch", protocol_version=21)
    if role:
        hello.auth_method_name, hello.auth_data = "token", token(role).encode()
    client = Raw(reader, writer)
    client.send(commands.envelope(hello))
    answer = await client.answer()
    assert answer is not None
    assert answer.type == wanted
    await hang_up(writer)


def test_a_node_asks_who_comes_over_tls_and_takes_a_new_certificate(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    first, second = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    server = Issued(tmp_path / "server.pem", tmp_path / "server.key")

    def put(issued: Issued) -> None:
        shutil.copy(issued.key, server.key)
        shutil.copy(issued.certificate, server.certificate)

    put(first.issue("server", server=True))
    web, binary = free_port(HOST), free_port(HOST)
    settings = KafkaCluster(kafka, topic_prefix, tmp_path).settings(
        **tls_settings(server),
        webServicePortTls=web,
        brokerServicePortTls=binary,
        tlsCertRefreshCheckDurationSec=0.1,
        authenticationEnabled=True,
        authenticationProviders="token",
        tokenSecretKey=secret_file(tmp_path),
        authorizationEnabled=True,
        superuserRoles="root",
    )

    async def get(client: httpx.AsyncClient, path: str, role: str = "") -> httpx.Response:
        headers = {"Authorization": f"Bearer {token(role)}"} if role else {}
        return await client.get(f"https://{HOST}:{web}{path}", headers=headers)

    async def test(node: NodeProcess) -> None:
        async with httpx.AsyncClient(verify=first.client(), timeout=WAIT_S) as client:
            assert (await get(client, f"{ADMIN}/tenants")).status_code == 401
            assert (await get(client, f"{ADMIN}/tenants", "ada")).status_code == 403
            assert (await get(client, f"{ADMIN}/tenants", "root")).status_code == 200
            metrics = (await get(client, "/metrics", "root")).text
            assert 'anabranch_authorization_refusals_total{reason="denied"} 1.0' in metrics
            await shake(binary, first.client(), "root", BaseCommand.CONNECTED)
            await shake(binary, first.client(), "", BaseCommand.ERROR)
            put(second.issue("server", server=True))

            async def is_taken() -> bool:
                async with httpx.AsyncClient(verify=second.client(), timeout=WAIT_S) as other:
                    try:
                        return (await get(other, "/livez")).status_code == 200
                    except httpx.TransportError:
                        return False

            deadline = time.monotonic() + WAIT_S
            while not await is_taken():
                assert time.monotonic() < deadline
            # Who was connected before still is.
            assert (await get(client, f"{ADMIN}/tenants", "root")).status_code == 200
        node.process.send_signal(signal.SIGTERM)

    with node_process(settings) as node:
        asyncio.run(test(node))
        assert node.process.wait(STOP_S_MAX) == 0
        told = node.text()
    assert "authorization.refused" in told
    assert "security.file_taken" in told
    assert token("root").split(".")[0] not in told
    assert SECRET.hex() not in told
