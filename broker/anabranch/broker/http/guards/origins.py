"""Refuses requests that pages of other sites have a visitor's browser send.

A browser says in `Origin` which site's page sends a request that can change something. It must be
the node's own, by the name in `Host`.

A site can have its own name point to the node's address (DNS rebinding): then both headers name
that site. So a browser's request must also be for an address, for localhost, or for a name that the
node has. No site can have those point elsewhere. Programs send no `Origin`. They may know the node
by any name, such as that of a load balancer, unless the allowed names are listed.
"""

from __future__ import annotations

import ipaddress
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch.broker.http.errors import refusal
from anabranch.broker.http.guards.connections import Refused
from anabranch.broker.settings.ports import ANY, listed_words

_SAFE: Final = ("GET", "HEAD")
_BROWSERS: Final = b"Mozilla/"  # so all of them begin to say what they are
_CROSS: Final = b"cross-site"
_PORTS: Final = {"http": 80, "https": 443}

_Reason = tuple[HTTPStatus, str]


class SiteSettings(Protocol):
    """The part of a node's or a proxy's settings that origins need."""

    @property
    def web_service_allowed_hosts(self) -> str: ...
    @property
    def advertised_address(self) -> str: ...
    @property
    def bind_address(self) -> str: ...


class OriginMiddleware:
    """ASGI: hands on to `app` what no other site's page has sent."""

    def __init__(self, app: ASGIApp, settings: SiteSettings) -> None:
        self._app = app
        self._refused = Refused()
        hosts = listed_words(settings.web_service_allowed_hosts)
        self._is_listed = bool(hosts)
        self._takes_any = ANY in hosts
        own = [settings.advertised_address.strip("[]"), settings.bind_address, "localhost"]
        self._names = frozenset(each.lower() for each in (*own, *hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self.refuses(scope["method"], scope["headers"])
        if refused is None:
            await self._app(scope, receive, send)
            return
        status, why = refused
        self._refused.note(status.name, path=scope["path"], why=why)
        await refusal(status, why)(scope, receive, send)

    def refuses(self, method: str, headers: list[tuple[bytes, bytes]]) -> _Reason | None:
        """Status and reason; None for a request that may be served."""
        said_of = dict(headers)
        host = said_of.get(b"host", b"")
        site = said_of.get(b"sec-fetch-site")
        origins = [text.decode("latin-1") for name, text in headers if name == b"origin"]
        is_browsers = (
            bool(origins)
            or site is not None
            or said_of.get(b"user-agent", b"").startswith(_BROWSERS)
        )
        if (is_browsers or self._is_listed) and not self._takes_any:
            name = _plain(host)
            if not self._knows(name):
                return HTTPStatus.MISDIRECTED_REQUEST, (
                    f"this node has no name {name!r}: if it is one of its own, list it in "
                    "webServiceAllowedHosts"
                )
        if len(origins) > 1:
            return HTTPStatus.FORBIDDEN, (
                "the request has several Origin headers, so none is believed: send one, or none"
            )
        if origins:
            said = origins[0]
            is_ours = _is_ours(said, host)
        else:
            said = "another site"
            is_ours = site != _CROSS or method in _SAFE
        if is_ours:
            return None
        return HTTPStatus.FORBIDDEN, (
            f"a page of {said} may not send requests here: only the node's own pages may"
        )

    def _knows(self, name: str) -> bool:
        return name in self._names or name.endswith(".localhost") or _is_address(name)


def _is_ours(origin: str, host: bytes) -> bool:
    try:
        page = urlsplit(origin)
        here = urlsplit(f"//{host.decode('latin-1')}")
        default = _PORTS.get(page.scheme)
        ports = (page.port or default, here.port or default)
    except ValueError:
        return False
    return bool(page.hostname) and page.hostname == here.hostname and ports[0] == ports[1]


def _plain(host: bytes) -> str:
    """The name in a Host header, without its port."""
    try:
        return urlsplit(f"//{host.decode('latin-1')}").hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
