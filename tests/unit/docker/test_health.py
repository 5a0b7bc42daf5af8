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
from support.authority import Authority
from support.http import http_nodes
from support.memory_cluster import until
from support.metrics_page import ROOT
from support.tls_port import tls_port
from support.waiting import eventually

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


async def _becomes_healthy(environment: Mapping[str, str]) -> None:
    """Once the machine has time for it: the check gives a node two seconds."""
    await eventually(lambda: _is_healthy(environment))


ENVIRONMENTS: Final[tuple[dict[str, str], ...]] = (
    {"ANABRANCH_WEBSERVICEPORT": "{0}"},
    {"ANABRANCH_webServicePort": "{0}"},
    {"ANABRANCH_WEB_SERVICE_PORT": "{0}", "ANABRANCH_BIND_ADDRESS": "127.0.0.1"},
    {
        "ANABRANCH_WEB_SERVICE_HOST": "10.0.0.1",  # of another service, on some platforms
        "ANABRANCH_WEB_SERVICE_PORT": "1",
        "ANABRANCH_webServicePort": "{0}",
    },
)


async def test_the_port_is_found_as_the_node_finds_it() -> None:
    async with http_nodes() as (nodes, _):
        port = nodes[0].http.base_url.port
        for environment in ENVIRONMENTS:
            told = {name: value.format(port) for name, value in environment.items()}
            assert load_settings(None, told, {}).web_service_port == port
            await _becomes_healthy(told)


async def test_a_node_that_runs_and_does_not_serve_is_not_healthy() -> None:
    async with http_nodes(leaseMillis=2_000, livenessTimeoutMillis=3_000) as (nodes, _):
        told = {"ANABRANCH_WEB_SERVICE_PORT": str(nodes[0].http.base_url.port)}
        await _becomes_healthy(told)
        nodes[0].node.connected = False
        await until(lambda: not nodes[0].node.runtime.has_lease)
        assert not await _is_healthy(told)
        assert not await _is_healthy({"ANABRANCH_WEB_SERVICE_PORT": "1"}), "nobody is there"


@pytest.mark.parametrize("required", [False, True], ids=["anybody", "certified"])
async def test_where_there_is_only_tls_that_is_asked(tmp_path: Path, *, required: bool) -> None:
    authority = Authority(tmp_path)
    node = authority.issue("node", host="10.0.0.1", server=True)  # its name outside
    own = authority.issue("own")

    trusted = authority.file if required else None
    async with tls_port(node, trusted, app=_ready, required=required) as port:
        told = {
            "ANABRANCH_WEB_SERVICE_PORT": "",
            "ANABRANCH_WEB_SERVICE_PORT_TLS": str(port.web_port),
        }
        if required:
            assert not await _is_healthy(told)
        else:
            await _becomes_healthy(told)
        told["ANABRANCH_BROKER_CLIENT_CERTIFICATE_FILE_PATH"] = str(own.certificate)
        told["ANABRANCH_brokerClientKeyFilePath"] = str(own.key)
        await _becomes_healthy(told)


async def _ready(scope: Scope, _receive: Receive, send: Send) -> None:
    status = 200 if scope["path"] == "/readyz" else 404
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})
