"""The administration of a cluster: each operation of the REST interface is a method here."""

from __future__ import annotations

import logging
import ssl
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final, Generic, Self, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from anabranch.access import Credentials, Tls
from anabranch.access.home import Home, HomeErrors
from anabranch.admin.access import SHOWN, files_of, identity_of, stay_encrypted, tls_reason
from anabranch.admin.calls import Awaitable, Blocking, Call, Decode, TransportT
from anabranch.admin.cluster import BalanceQuestions, Brokers, Placements
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
from anabranch.admin.namespaces import Bundles, Lookups, Namespaces, Tenants
from anabranch.admin.scalable_topics import ScalableTopics
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
        nodes: str = NODES,
        *,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
        timeout_s: float = TIMEOUT_S,
        on_stale: Callable[[], None] = _warn_stale,
    ) -> None:
        self._nodes = addresses(nodes)
        self._timeout_s = timeout_s
        self._files = files_of(self._nodes, tls)
        self._identity = identity_of(self._nodes, credentials)
        self._on_stale = on_stale
        self._verify = self._context()
        self._client: Any = self._made()
        self._former: list[Any] = []  # clients with former TLS files
        errors = HomeErrors(ForkedError, WrongLoopError)
        self._home = Home(self, f"the administration of {nodes}", errors)
        self.answered_by = self._nodes[0]
        """The node of the last answer. It has read its own changes; others may not have yet."""
        transport: Any = self
        self.tenants: Tenants[TransportT] = Tenants(transport)
        self.namespaces: Namespaces[TransportT] = Namespaces(transport)
        self.placements: Placements[TransportT] = Placements(transport)
        self.bundles: Bundles[TransportT] = Bundles(transport)
        self.scalable_topics: ScalableTopics[TransportT] = ScalableTopics(transport)
        self.brokers: Brokers[TransportT] = Brokers(transport)
        self.lookups: Lookups[TransportT] = Lookups(transport)
        self.balance: BalanceQuestions[TransportT] = BalanceQuestions(transport)

    @abstractmethod
    def _made(self) -> httpx.Client | httpx.AsyncClient:
        """Returns a client of HTTP for the present TLS context."""

    def _context(self) -> ssl.SSLContext | bool:
        """Returns the TLS context for the next connection, True where no node has TLS."""
        return True if self._files is None else self._files.context()

    def _request(
        self, client: httpx.Client | httpx.AsyncClient, node: str, call: Call[Any], shown: bytes
    ) -> httpx.Request:
        """Returns the call as a request to that node."""
        body = None if call.body is None else msgspec.json.encode(call.body)
        return client.build_request(
            call.verb,
            node + call.path,
            params=call.query or None,
            content=body,
            headers=None if body is None else _JSON,
            extensions={SHOWN: shown},
        )

    def _is_again(self, response: httpx.Response) -> bool:
        """Returns True if what was shown was refused, and may have changed since."""
        return response.status_code == _UNAUTHORIZED and self._identity.is_renewable

    def _must_be_unsent(self, error: Exception, node: str) -> None:
        """Returns if the next node may be asked, because nothing was sent. Raises AdminError."""
        if node == self._nodes[-1] or not _is_unsent(error, node):
            raise _failure(error, node) from error

    def _result(self, call: Call[T], decode: Decode[T], response: httpx.Response) -> T:
        """Returns the decoded answer. Raises AdminError."""
        self.answered_by = _node_of(response.url)
        if STALE_HEADER in response.headers:  # the node could not reach the log
            self._on_stale()
        if not response.is_success:
            raise _refused(response, self._identity.remedy)
        try:
            return decode(response.content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnreachableError(
                f"{_node_of(response.url)} answers {call.verb} {call.path} with what no node of "
                f"this version answers ({error}); is it a node? Name one"
            ) from error


class Admin(_Resources[Blocking]):
    """Administers a cluster through the nodes `http://host:port[,...]`. Any node will do: it asks
    the first one that answers, and follows a node that sends the request on.

    `https://` means TLS. `tls` names the authorities to trust, if not the system's, and the
    client's own certificate. `credentials` (a `Token`) show nodes who asks. `timeout_s`
    is in seconds. It calls `on_stale` for an answer that may be out of date, because the node
    cannot reach the log. The default logs a warning.

    Methods raise AdminError, or InvalidInputError for a malformed name before they send anything.
    Use it from one thread at a time.
    """

    _client: httpx.Client

    def send(self, call: Call[T], decode: Decode[T]) -> T:
        """Sends one call and returns its decoded answer. The groups of operations call it.
        Raises AdminError.
        """
        self._home.check_process()
        self._home.opened(self)
        shown = self._identity.show()
        response = self._answer(call, shown)
        if self._is_again(response):
            anew = self._identity.show(refused=shown)
            response = self._answer(call, anew) if anew != shown else response
        return self._result(call, decode, response)

    def _answer(self, call: Call[Any], shown: bytes) -> httpx.Response:
        """Returns the answer of the first node that can be asked."""
        verify = self._context()  # what the TLS files hold by now
        if verify is not self._verify:
            self._client.close()
            self._verify = verify
            self._client = self._made()
        for node in self._nodes:
            try:
                return self._client.send(self._request(self._client, node, call, shown))
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                self._must_be_unsent(error, node)
        raise AssertionError(self._nodes)  # the failure of the last one was raised

    def _made(self) -> httpx.Client:
        return httpx.Client(
            verify=self._verify,
            timeout=self._timeout_s,
            follow_redirects=True,
            event_hooks={"request": [self._identity.put_on], "response": [stay_encrypted]},
        )

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

    _client: httpx.AsyncClient

    async def send(self, call: Call[T], decode: Decode[T]) -> T:
        """Sends one call and returns its decoded answer. Raises AdminError."""
        self._home.check()
        self._home.opened(self)
        shown = await self._identity.show_async()
        response = await self._answer(call, shown)
        if self._is_again(response):
            anew = await self._identity.show_async(refused=shown)
            response = await self._answer(call, anew) if anew != shown else response
        return self._result(call, decode, response)

    async def _answer(self, call: Call[Any], shown: bytes) -> httpx.Response:
        """Returns the answer of the first node that can be asked."""
        verify = self._context()
        if verify is not self._verify:
            self._former.append(self._client)  # requests may be under way by it
            self._verify = verify
            self._client = self._made()
        for node in self._nodes:
            try:
                return await self._client.send(self._request(self._client, node, call, shown))
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                self._must_be_unsent(error, node)
        raise AssertionError(self._nodes)  # the failure of the last one was raised

    def _made(self) -> httpx.AsyncClient:
        async def put_on(request: httpx.Request) -> None:
            self._identity.put_on(request)

        async def stay(response: httpx.Response) -> None:
            stay_encrypted(response)

        return httpx.AsyncClient(
            verify=self._verify,
            timeout=self._timeout_s,
            follow_redirects=True,
            event_hooks={"request": [put_on], "response": [stay]},
        )

    async def close(self) -> None:
        """Closes the connections. Raises WrongLoopError."""
        self._home.check()
        for client in (self._client, *self._former):
            await client.aclose()
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
    if isinstance(error, httpx.TooManyRedirects):
        return UnreachableError("nodes send the request to one another; try again in a moment")
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
