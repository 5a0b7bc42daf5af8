"""How the demo reaches the cluster that it loads: by TLS or not, as whom, and its Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import httpx
import msgspec

from anabranch.access import Credentials, Tls
from anabranch.admin import AsyncAdmin, UnreachableError
from anabranch.admin.access import ShownIdentity, files_of, identity_of
from anabranch.admin.errors import refusal
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.client import Client

_REASON_CHARACTERS_MAX: Final = 500


class Reach(msgspec.Struct, frozen=True):
    """Whom to trust, who to be to nodes, and librdkafka's security properties."""

    tls: Tls | None = None
    credentials: Credentials | None = None
    kafka_security: Mapping[str, str] = {}

    def admin(self, url: str) -> AsyncAdmin:
        """A node's administration. Raises InvalidInputError."""
        return AsyncAdmin(url, tls=self.tls, credentials=self.credentials)

    def client(self, service_url: str) -> Client:
        """A client of the SDK. Raises InvalidInputError."""
        return Client(
            service_url, tls=self.tls, credentials=self.credentials, kafka=self.kafka_security
        )

    def kafka(self, bootstrap_servers: str) -> KafkaConnection:
        """Kafka itself. Raises InvalidInputError."""
        return KafkaConnection(bootstrap_servers, self.kafka_security, "anabranch-demo")

    def http(self, urls: tuple[str, ...], **settings: Any) -> httpx.AsyncClient:
        """Requests to those nodes, and to those that they send one on to, each as who asks.

        Raises InvalidInputError. A request raises CredentialsError and UnreachableError, too.
        """
        files = files_of(urls, self.tls)
        showing = _Showing(identity_of(urls, self.credentials), is_tls=files is not None)
        return httpx.AsyncClient(
            verify=True if files is None else files.context(),
            event_hooks={"request": [showing.put_on]},
            **settings,
        )


class _Showing:
    """Puts on each request who asks, those of redirects included."""

    def __init__(self, identity: ShownIdentity, *, is_tls: bool) -> None:
        self._identity = identity
        self._is_tls = is_tls

    async def put_on(self, request: httpx.Request) -> None:
        if self._is_tls and request.url.scheme != "https":
            raise UnreachableError(f"a node sends the request on to {request.url}, without TLS")
        self._identity.put_on(request, await self._identity.show_async())


OPEN: Final = Reach()
"""Of a cluster that asks nobody who they are."""


def checked(answer: httpx.Response) -> httpx.Response:
    """The answer of a node that did what was asked. Raises RefusedError, with its reason."""
    if answer.is_success:
        return answer
    try:
        reason = str(answer.json()["reason"])
    except (ValueError, KeyError, TypeError):
        reason = answer.text[:_REASON_CHARACTERS_MAX]
    raise refusal(answer.status_code, reason)
