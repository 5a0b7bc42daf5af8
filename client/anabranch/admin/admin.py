"""The administration of a cluster: each operation of the REST interface is a method here."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, Final, Generic, Self, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from anabranch.access import Credentials, Tls
from anabranch.access.home import Home, HomeErrors
from anabranch.admin.access import Follower, files_of, identity_of, tls_reason
from anabranch.admin.balance import BalanceQuestions
from anabranch.admin.brokers import Brokers
from anabranch.admin.bundles import Bundles
from anabranch.admin.calls import Awaitable, Blocking, Call, TransportT
from anabranch.admin.errors import (
    AdminError,
    ForkedError,
    NoNodeError,
    RefusedError,
    TlsError,
    UnknownOutcomeError,
    UnreachableError,
    WrongLoopError,
    refusal,
)
from anabranch.admin.lookups import Lookups
from anabranch.admin.namespaces import Namespaces
from anabranch.admin.placements import Placements
from anabranch.admin.scalable_topics import ScalableTopics
from anabranch.admin.tenants import Tenants
from anabranch.core.errors import InvalidInputError

T = TypeVar("T")

NODES: Final = "http://127.0.0.1:8080"
# A node gives up before that, and answers for its own begun operations.
TIMEOUT_S: Final = 60.0
_UNAUTHORIZED: Final = 401
STALE_HEADER: Final = "X-Anabranch-Stale"
_JSON: Final = {"Content-Type": "application/json"}

_logger = logging.getLogger("anabranch.admin")


def _warn_stale() -> None:
    _logger.warning("the node cannot reach the log; its answer may be out of date")


class _Resources(Generic[TransportT]):
    """The groups of operations and the reading of answers, for both faces."""

    def __init__(
        self,
        transport: TransportT,
        nodes: str,
        tls: Tls | None,
        credentials: Credentials | None,
        on_stale: Callable[[], None],
    ) -> None:
        self._nodes = addresses(nodes)
        self._files = files_of(self._nodes, tls)
        self._identity = identity_of(self._nodes, credentials)
        self._on_stale = on_stale
        errors = HomeErrors(ForkedError, WrongLoopError)
        self._home = Home(self, f"the administration of {nodes}", errors)
        self.tenants: Tenants[TransportT] = Tenants(transport)
        self.namespaces: Namespaces[TransportT] = Namespaces(transport)
        self.placements: Placements[TransportT] = Placements(transport)
        self.bundles: Bundles[TransportT] = Bundles(transport)
        self.scalable_topics: ScalableTopics[TransportT] = ScalableTopics(transport)
        self.brokers: Brokers[TransportT] = Brokers(transport)
        self.lookups: Lookups[TransportT] = Lookups(transport)
        self.balance: BalanceQuestions[TransportT] = BalanceQuestions(transport)

    def _context(self) -> ssl.SSLContext | bool:
        """Returns the TLS context for the next connection, True where no node has TLS."""
        return True if self._files is None else self._files.context()

    def _must_be_unsent(self, error: Exception, node: str) -> None:
        """Returns if the next node may be asked, because nothing was sent. Raises AdminError."""
        if node == self._nodes[-1] or not _is_unsent(error, node):
            raise _failure(error, node) from error

    def _result(self, call: Call[T], response: httpx.Response) -> T:
        """Returns the decoded answer. Raises AdminError."""
        if STALE_HEADER in response.headers:  # the node could not reach the log
            self._on_stale()
        if not response.is_success:
            raise _refused(response, self._identity.remedy)
        try:
            return call.decode(response.content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnreachableError(
                f"{_node_of(response.url)} answers {call.verb} {call.path} with what no node of "
                f"this version answers ({error}); is it a node? Name one"
            ) from error


class Admin(_Resources[Blocking]):
    """Administers a cluster through the nodes `http://host:port[,...]`. Any node will do: it asks
    the first one that answers, and follows a node that sends the request on.

    `https://` means TLS. `tls` names the authorities to trust, if not the system's, and the
    client's own certificate. `credentials` (a `Token` or `Basic`) show nodes who asks. `timeout_s`
    is in seconds. It calls `on_stale` for an answer that may be out of date, because the node
    cannot reach the log. The default logs a warning.

    Methods raise AdminError, or InvalidInputError for a malformed name before they send anything.
    Use it from one thread at a time.
    """

    def __init__(
        self,
        nodes: str = NODES,
        *,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
        timeout_s: float = TIMEOUT_S,
        on_stale: Callable[[], None] = _warn_stale,
    ) -> None:
        super().__init__(self, nodes, tls, credentials, on_stale)
        self._timeout_s = timeout_s
        self._verify = self._context()
        self._client = httpx.Client(verify=self._verify, timeout=timeout_s)
        self.answered_by = self._nodes[0]
        """The node of the last answer. It has read its own changes; others may not have yet."""

    def send(self, call: Call[T]) -> T:
        """Sends one call and returns its decoded answer. The groups of operations call it.
        Raises AdminError.
        """
        self._home.check_process()
        self._home.opened(self)
        for node in self._nodes:
            try:
                response = self._asked(node, call)
                break
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                self._must_be_unsent(error, node)
        self.answered_by = _node_of(response.url)
        return self._result(call, response)

    def _asked(self, node: str, call: Call[Any]) -> httpx.Response:
        """Returns the answer of that node or of one that it redirects to.
        It tries twice where the credentials are renewable.
        """
        shown = self._identity.show()
        response = self._followed(node, call, shown)
        if response.status_code == _UNAUTHORIZED and self._identity.is_renewable:
            anew = self._identity.show(refused=shown)
            if anew != shown:
                return self._followed(node, call, anew)
        return response

    def _followed(self, node: str, call: Call[Any], shown: bytes) -> httpx.Response:
        client = self._http()
        following = Follower(_request(client, node, call), self._identity, shown)
        for request in following.requests():
            following.take(client.send(request))
        return following.answer

    def _http(self) -> httpx.Client:
        """Returns a client with what the TLS files hold by now."""
        verify = self._context()
        if verify is not self._verify:
            self._client.close()
            self._verify = verify
            self._client = httpx.Client(verify=verify, timeout=self._timeout_s)
        return self._client

    def close(self) -> None:
        """Closes the connections."""
        self._home.check_process()
        self._client.close()
        self._home.closed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None or not self._home.is_forked:
            self.close()


class AsyncAdmin(_Resources[Awaitable]):
    """`Admin` with coroutines. Any number of them may run at a time, in one event loop."""

    def __init__(
        self,
        nodes: str = NODES,
        *,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
        timeout_s: float = TIMEOUT_S,
        on_stale: Callable[[], None] = _warn_stale,
    ) -> None:
        super().__init__(self, nodes, tls, credentials, on_stale)
        self._timeout_s = timeout_s
        self._verify = self._context()
        self._client = httpx.AsyncClient(verify=self._verify, timeout=timeout_s)
        self._former: list[httpx.AsyncClient] = []  # with former files; requests may be under way

    async def send(self, call: Call[T]) -> T:
        """Sends one call and returns its decoded answer. Raises AdminError."""
        self._home.check()
        self._home.opened(self)
        for node in self._nodes:
            try:
                response = await self._asked(node, call)
                break
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                self._must_be_unsent(error, node)
        return self._result(call, response)

    async def _asked(self, node: str, call: Call[Any]) -> httpx.Response:
        """Returns the answer of that node or of one that it redirects to.
        It tries twice where the credentials are renewable.
        """
        shown = await self._identity.show_async()
        response = await self._followed(node, call, shown)
        if response.status_code == _UNAUTHORIZED and self._identity.is_renewable:
            anew = await self._identity.show_async(refused=shown)
            if anew != shown:
                return await self._followed(node, call, anew)
        return response

    async def _followed(self, node: str, call: Call[Any], shown: bytes) -> httpx.Response:
        client = self._http()
        following = Follower(_request(client, node, call), self._identity, shown)
        for request in following.requests():
            following.take(await client.send(request))
        return following.answer

    def _http(self) -> httpx.AsyncClient:
        """Returns a client with what the TLS files hold by now. It keeps the former one for
        requests that are under way.
        """
        verify = self._context()
        if verify is not self._verify:
            self._former.append(self._client)
            self._verify = verify
            self._client = httpx.AsyncClient(verify=verify, timeout=self._timeout_s)
        return self._client

    async def close(self) -> None:
        """Closes the connections. From another event loop it has their own loop close them."""
        clients, loop = (self._client, *self._former), self._home.loop
        if not self._home.is_elsewhere:
            for client in clients:
                await client.aclose()
        elif loop is not None and loop.is_running():
            for client in clients:
                asyncio.run_coroutine_threadsafe(client.aclose(), loop)
        self._home.closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None or not self._home.is_forked:
            await self.close()


def addresses(nodes: str) -> tuple[str, ...]:
    """Returns the nodes named by `http://host:port[,...]`. The scheme may be left out.

    >>> addresses("http://a:8080,b:8080/")
    ('http://a:8080', 'http://b:8080')

    Raises InvalidInputError.
    """
    found = []
    scheme = "http"
    for each in nodes.split(","):
        before, sep, host = each.strip().rpartition("://")
        scheme = before if sep else scheme
        if scheme not in ("http", "https") or not host.strip("/"):
            raise InvalidInputError(
                f"{nodes!r} is no node's address: write http://host:port, with its webServicePort"
            )
        found.append(f"{scheme}://{host.rstrip('/')}")
    return tuple(found)


def _request(client: httpx.Client | httpx.AsyncClient, node: str, call: Call[Any]) -> httpx.Request:
    """Returns the call as a request to that node."""
    body = None if call.body is None else msgspec.json.encode(call.body)
    return client.build_request(
        call.verb,
        node + call.path,
        params=call.query or None,
        content=body,
        headers=None if body is None else _JSON,
    )


def _node_of(url: httpx.URL) -> str:
    """Returns the node's part of an address."""
    return f"{url.scheme}://{url.netloc.decode()}"


def _refused(response: httpx.Response, remedy: str) -> AdminError:
    status = response.status_code
    try:
        said = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        return UnreachableError(
            f"{_node_of(response.url)} answers {status} without JSON; is it a node? Name one"
        )
    reason = said.get("reason", said) if isinstance(said, dict) else said
    error = refusal(status, str(reason))
    if isinstance(error, RefusedError) and status == _UNAUTHORIZED:
        return type(error)(status, f"{error.reason}. {remedy}")
    return error


def _is_unsent(error: Exception, node: str) -> bool:
    """Returns True if nothing reached the node that was asked first, so that another may
    be asked.
    """
    is_connect = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
    return is_connect and _asked(error, node) == node


def _failure(error: Exception, node: str) -> AdminError:
    """Returns the error for a request without an answer.
    A node may have sent that request on to one that is gone.
    """
    asked = _asked(error, node)
    if asked != node:
        return UnreachableError(
            f"{asked} is in charge of this by the log, and does not answer ({error}); if it is "
            "gone another node takes over within seconds: try again"
        )
    why = tls_reason(error, httpx.URL(asked).host)
    if why is not None:
        return TlsError(f"{asked} cannot be reached by TLS: {why}")
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout | httpx.PoolTimeout):
        return UnknownOutcomeError(
            f"{asked} did not answer in time; what was asked may yet be done, so look before you "
            "try again"
        )
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        ports = (
            "webServicePortTls; does it ask for a certificate, and trust one that is shown?"
            if asked.startswith("https:")
            else "webServicePort (8080), or with https:// its webServicePortTls"
        )
        return UnreachableError(
            f"what answers at {asked} does not speak HTTP, or ended just now ({error}): a node's "
            f"address does not have Kafka's port or the clients', but its {ports}"
        )
    return NoNodeError(f"no node answers at {asked} ({error}){_port_meant(asked)}")


def _port_meant(asked: str) -> str:
    """Returns a hint for an address without a port, "" for one with a port."""
    url = urlsplit(asked)
    if url.port is not None:
        return ""
    of_tls = url.scheme == "https"
    port, setting = (443, "webServicePortTls") if of_tls else (80, "webServicePort, 8080")
    return f": without a port that is {port}, so name the node's ({setting})"


def _asked(error: Exception, node: str) -> str:
    """Returns the node that did not answer: `node` as it was given, or the one that it
    sent on to.
    """
    try:
        asked = _node_of(error.request.url)  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):
        return node
    return node if asked == _node_of(httpx.URL(node)) else asked  # httpx has a spelling of its own
