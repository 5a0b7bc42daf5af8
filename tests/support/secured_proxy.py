"""A proxy with all of its security on, before nodes with all of theirs, over TLS with tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

import httpx

from anabranch.access import Tls, TlsFiles, Token
from anabranch.proxy.settings import WEB_TLS, ProxySettings, load_proxy_settings
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.client import ClientConnection
from support.authority import Authority, tls_settings
from support.memory_cluster import WAIT_S
from support.proxied import HOST, RunningProxy, ServedNode, running_proxy, served_nodes
from support.tokens import jwk, key_set, token
from support.wire import connected_at

ADMIN: Final = "/admin/v2"
PEOPLE, PROXIES = b"p" * 64, b"x" * 64  # secrets: each signs tokens of its own kind
ROOT, BOSS, READER, STRANGER, PROXY = "root", "boss", "reader", "stranger", "proxy"


def shown(role: str, secret: bytes = PEOPLE) -> str:
    """A token of people's, or of what signs with another secret."""
    return token(role, secret, kid="people" if secret == PEOPLE else "proxies")


class Surroundings:
    """The files of a test: an authority, certificates, keys that count, the proxy's token."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "authority")
        self.server = self.authority.issue("server", server=True)
        self.keys = folder / "keys.json"
        self.people = folder / "people.key"
        self.people.write_bytes(PEOPLE)
        self.token = folder / "proxy.token"
        self.set_keys("people", "proxies")
        self.set_token(shown(PROXY, PROXIES))

    def set_keys(self, *kinds: str) -> None:
        """Nodes and the proxy verify tokens by these alone."""
        secrets = {"people": PEOPLE, "proxies": PROXIES}
        self.keys.write_bytes(key_set(*(jwk(secrets[kind], kind) for kind in kinds)))

    def set_token(self, told: str) -> None:
        self.token.write_text(f"{told}\n")

    @property
    def of_nodes(self) -> dict[str, object]:
        return {
            **tls_settings(self.server),
            "authenticationEnabled": True,
            "authenticationProviders": "token",
            "tokenKeySet": str(self.keys),
            "authenticationFilesCheckSeconds": 0.1,
            "proxyRoles": PROXY,
            "authorizationEnabled": True,
            "superuserRoles": f"{ROOT},{PROXY}",
            "brokerClientAuthenticationPlugin": "token",
            **self._showing,
        }

    @property
    def _showing(self) -> dict[str, object]:
        """Settings of who asks nodes."""
        return {
            "brokerClientAuthenticationParameters": f"file://{self.token}",
            "brokerClientTrustCertsFilePath": str(self.authority.file),
        }

    def of_proxy(self, nodes: str, **changes: object) -> ProxySettings:
        """`nodes`: host:port,... of ports of HTTP with TLS."""
        given = {
            **tls_settings(self.server),
            "authenticationEnabled": True,
            "tokenSecretKey": str(self.people),
            **self._showing,
            "advertisedAddress": HOST,
            "brokerWebServiceURL": f"https://{nodes}",
            "webServicePort": 0,
            "servicePort": 0,
            "webServicePortTls": 0,
            "servicePortTls": 0,
            **changes,
        }
        return load_proxy_settings(None, {}, given)


class SecuredProxy:
    """The proxy and how to ask it, by TLS."""

    def __init__(self, running: RunningProxy, around: Surroundings, http: httpx.AsyncClient):
        self.running = running
        self.settings = running.settings
        self.around = around
        self.http = http

    async def ask(
        self, method: str, path: str, role: str = "", json: object = None, **headers: str
    ) -> httpx.Response:
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        if role:
            told["Authorization"] = f"Bearer {shown(role)}"
        return await self.http.request(method, path, headers=told, json=json)

    def client(
        self, role: str, on_push: Callable[[BaseCommand], None] = lambda _: None
    ) -> AbstractAsyncContextManager[ClientConnection]:
        tls = TlsFiles(Tls(ca_file=self.around.authority.file))
        shows = Token(shown(role)) if role else None
        port = self.settings.service_port_tls or 0
        return connected_at(port, on_push, tls=tls, credentials=shows)


@asynccontextmanager
async def secured_proxy(
    around: Surroundings, nodes: str, **changes: object
) -> AsyncIterator[SecuredProxy]:
    async with running_proxy(around.of_proxy(nodes, **changes)) as running:
        http = httpx.AsyncClient(
            base_url=running.settings.url_of(WEB_TLS),
            verify=around.authority.client(),
            timeout=WAIT_S,
        )
        async with http:
            yield SecuredProxy(running, around, http)


Ask = Callable[[str, str, str, object], Awaitable[httpx.Response]]


async def furnished(ask: Ask) -> None:
    """A tenant with an administrator; a reader of one namespace, which has a topic."""
    for method, path, role, body in (
        ("PUT", "/tenants/acme", ROOT, {"adminRoles": [BOSS], "allowedClusters": ["standalone"]}),
        ("PUT", "/namespaces/acme/shop", BOSS, None),
        ("PUT", "/namespaces/acme/secret", BOSS, None),
        ("PUT", "/scalable/acme/shop/orders", BOSS, None),
        ("PUT", "/scalable/acme/secret/plans", BOSS, None),
        ("POST", f"/namespaces/acme/shop/permissions/{READER}", BOSS, ["consume"]),
    ):
        answer = await ask(method, f"{ADMIN}{path}", role, body)
        assert answer.status_code == 204, (path, answer.text)


@asynccontextmanager
async def furnished_proxy(
    folder: Path, count: int = 2, of_nodes: Mapping[str, object] | None = None, **changes: object
) -> AsyncIterator[tuple[SecuredProxy, list[ServedNode]]]:
    """A proxy before a furnished cluster of that many nodes.

    `of_nodes`: settings of theirs, besides; `changes` are of the proxy.
    """
    around = Surroundings(folder)
    async with served_nodes(count, {**around.of_nodes, **(of_nodes or {})}) as nodes:
        named = ",".join(node.web_tls for node in nodes)
        async with secured_proxy(around, named, **changes) as proxy:
            await furnished(proxy.ask)
            yield proxy, nodes
