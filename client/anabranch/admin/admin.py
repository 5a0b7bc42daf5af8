"""The administration of a cluster: each operation of the REST interface is a method here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeVar

import httpx

from anabranch.admin import exchange
from anabranch.admin.brokers import Brokers
from anabranch.admin.bundles import Bundles
from anabranch.admin.calls import Awaitable, Blocking, Call
from anabranch.admin.errors import AdminError
from anabranch.admin.lookups import Lookups
from anabranch.admin.namespaces import Namespaces
from anabranch.admin.scalable_topics import ScalableTopics
from anabranch.admin.tenants import Tenants

T = TypeVar("T")

NODES: Final = "http://127.0.0.1:8080"
# A node gives up before: what it has begun, it answers itself.
TIMEOUT_S: Final = 60.0

_log = logging.getLogger("anabranch.admin")


def _warn_stale() -> None:
    _log.warning("the node cannot reach the log; its answer may be out of date")


class Admin:
    """Asks the nodes `http://host:port[,...]`: the first that is there; any will do.

    A node that sends a request on to another one is followed. `on_stale` is called where an answer
    may be out of date, because its node cannot reach the log; else a warning is logged.
    Methods raise AdminError, or InvalidInputError where a name cannot be meant. One thread at a
    time.
    """

    def __init__(
        self,
        nodes: str = NODES,
        *,
        timeout_s: float = TIMEOUT_S,
        on_stale: Callable[[], None] = _warn_stale,
    ) -> None:
        self._nodes = exchange.addresses(nodes)
        self._on_stale = on_stale
        self._client = httpx.Client(timeout=timeout_s, follow_redirects=True)
        self.answered_by = self._nodes[0]
        """The node of the last answer: it has seen what it changed, others may not have yet."""
        self.tenants = Tenants[Blocking](self)
        self.namespaces = Namespaces[Blocking](self)
        self.bundles = Bundles[Blocking](self)
        self.scalable_topics = ScalableTopics[Blocking](self)
        self.brokers = Brokers[Blocking](self)
        self.lookups = Lookups[Blocking](self)

    def send(self, call: Call[T]) -> T:
        """Sends one call, which `anabranch.admin` has a function for. Raises AdminError."""
        for node in self._nodes:
            try:
                response = self._client.send(exchange.request(self._client, node, call))
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                if node != self._nodes[-1] and exchange.is_unsent(error, node):
                    continue
                raise exchange.failure(error, node) from error
            self.answered_by = exchange.node_of(response.url)
            if exchange.is_stale(response):
                self._on_stale()
            return exchange.result(call, response)
        raise AdminError("there is no node to ask")  # never: there is one at least

    def close(self) -> None:
        """Closes connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncAdmin:
    """`Admin` with coroutines; as many at a time as you like, in one event loop."""

    def __init__(
        self,
        nodes: str = NODES,
        *,
        timeout_s: float = TIMEOUT_S,
        on_stale: Callable[[], None] = _warn_stale,
    ) -> None:
        self._nodes = exchange.addresses(nodes)
        self._on_stale = on_stale
        self._client = httpx.AsyncClient(timeout=timeout_s, follow_redirects=True)
        self.tenants = Tenants[Awaitable](self)
        self.namespaces = Namespaces[Awaitable](self)
        self.bundles = Bundles[Awaitable](self)
        self.scalable_topics = ScalableTopics[Awaitable](self)
        self.brokers = Brokers[Awaitable](self)
        self.lookups = Lookups[Awaitable](self)

    async def send(self, call: Call[T]) -> T:
        """Sends one call. Raises AdminError."""
        for node in self._nodes:
            try:
                response = await self._client.send(exchange.request(self._client, node, call))
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                if node != self._nodes[-1] and exchange.is_unsent(error, node):
                    continue
                raise exchange.failure(error, node) from error
            if exchange.is_stale(response):
                self._on_stale()
            return exchange.result(call, response)
        raise AdminError("there is no node to ask")  # never: there is one at least

    async def close(self) -> None:
        """Closes connections."""
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
