"""docker/health.py, run as Docker runs it, says of a container whether its process serves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from starlette.types import Receive, Scope, Send

from anabranch.broker.settings import load_settings
from support import steady
from support.authority import Authority
from support.http import HttpNode, with_http
from support.memory_cluster import MemoryCluster, until
from support.metrics_page import ROOT
from support.secured import SecuredNode, tokens_alone, with_secured
from support.tls_port import tls_port

_CHECK: Final = ROOT / "docker" / "health.py"


async def _is_healthy(environment: Mapping[str, str]) -> bool:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(_CHECK)],
        env=dict(environment),
        capture_output=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr.decode()
    return done.returncode == 0


@pytest.mark.parametrize(
    "environment",
    [
        {"ANABRANCH_WEB_SERVICE_PORT": "{0}"},
        {"ANABRANCH_WEBSERVICEPORT": "{0}"},
        {"ANABRANCH_webServicePort": "{0}"},
        {"ANABRANCH_WEB_SERVICE_PORT": "{0}", "ANABRANCH_BIND_ADDRESS": "127.0.0.1"},
        {
            "ANABRANCH_WEB_SERVICE_HOST": "10.0.0.1",  # of another service, on some platforms
            "ANABRANCH_WEB_SERVICE_PORT": "1",
            "ANABRANCH_webServicePort": "{0}",
        },
    ],
)
def test_the_port_is_found_as_the_node_finds_it(environment: Mapping[str, str]) -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        port = nodes[0].http.base_url.port
        told = {name: value.format(port) for name, value in environment.items()}
        assert load_settings(None, told, {}).web_service_port == port
        assert await _is_healthy(told)

    with_http(test)


def test_a_node_that_runs_and_does_not_serve_is_not_healthy() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        told = {"ANABRANCH_WEB_SERVICE_PORT": str(nodes[0].http.base_url.port)}
        assert await _is_healthy(told)
        nodes[0].node.connected = False
        await until(lambda: not nodes[0].node.runtime.has_lease)
        assert not await _is_healthy(told)

    with_http(test, leaseMillis=2_000, livenessTimeoutMillis=3_000)


def test_nobody_at_the_port_is_not_healthy() -> None:
    assert not asyncio.run(_is_healthy({"ANABRANCH_WEB_SERVICE_PORT": "1"}))


def test_a_node_that_asks_who_comes_is_healthy_all_the_same(tmp_path: Path) -> None:
    async def test(secured: SecuredNode, _: MemoryCluster) -> None:
        assert (await secured.ask("GET", "/admin/v2/brokers/health")).status_code == 401
        assert await _is_healthy({"ANABRANCH_WEB_SERVICE_PORT": str(secured.http.base_url.port)})

    with_secured(test, **tokens_alone(tmp_path))


@pytest.mark.parametrize("required", [False, True], ids=["anybody", "certified"])
def test_where_there_is_only_tls_it_is_asked_by_that(tmp_path: Path, *, required: bool) -> None:
    authority = Authority(tmp_path)
    node = authority.issue("node", host="10.0.0.1", server=True)  # its name outside
    own = authority.issue("own")

    async def test() -> None:
        trusted = authority.file if required else None
        async with tls_port(node, trusted, app=_ready, required=required) as port:
            told = {
                "ANABRANCH_WEB_SERVICE_PORT": "",
                "ANABRANCH_WEB_SERVICE_PORT_TLS": str(port.web_port),
            }
            assert await _is_healthy(told) is not required
            told["ANABRANCH_BROKER_CLIENT_CERTIFICATE_FILE_PATH"] = str(own.certificate)
            told["ANABRANCH_brokerClientKeyFilePath"] = str(own.key)
            assert await _is_healthy(told)

    steady.run(test())


async def _ready(scope: Scope, _receive: Receive, send: Send) -> None:
    status = 200 if scope["path"] == "/readyz" else 404
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})
