"""The addresses of nodes in the client's URL, and connections to them (`NodeAccess`), or to any
that answers (`Nodes`).

A client with a `pulsar+ssl://` URL uses only the TLS ports of the addresses that nodes tell.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from google.protobuf.message import Message

from anabranch.access import Credentials, Tls, TlsFiles
from anabranch.access import CredentialsError as NothingToShowError
from anabranch.client._errors import (
    AuthenticationError,
    CredentialsError,
    NodesUnreachableError,
    TlsError,
)
from anabranch.core.errors import InvalidInputError
from anabranch.core.names import PORT_MAX
from anabranch.wire import clock
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from anabranch.wire.client import ClientConnection, connect
from anabranch.wire.errors import AuthenticationError as RefusedAuthenticationError
from anabranch.wire.errors import ConnectError
from anabranch.wire.errors import TlsError as WireTlsError
from anabranch.wire.logging import get_logger

# Answers of a node that another attempt, elsewhere or later, may improve.
PASSING: Final = frozenset(
    {
        ServerError.UnknownError,
        ServerError.MetadataError,
        ServerError.PersistenceError,
        ServerError.ServiceNotReady,
        ServerError.TooManyRequests,
    }
)
_SCHEMES: Final = {"pulsar": False, "anabranch": False, "pulsar+ssl": True, "anabranch+ssl": True}
_DEFAULT_PORT: Final = 6650
_DEFAULT_TLS_PORT: Final = 6651
_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:]+)\]|([-.\w]+))(?::(\d{1,5}))?")
_REFUSED_S: Final = 2.0  # a refusal holds for so long
_GOODBYE_S_MAX: Final = 1.0

_logger = get_logger(__name__)


Push = Callable[[BaseCommand], None]


class NodeConnection(Protocol):
    """The interface to a connection with a node, for watches and sessions. They may share it."""

    @property
    def address(self) -> str: ...
    @property
    def closed(self) -> asyncio.Future[str]: ...
    @property
    def is_open(self) -> bool: ...
    def send(self, message: Message) -> None: ...
    async def request(self, message: Message, timeout_s: float) -> BaseCommand: ...
    def close(self, why: str) -> None: ...
    def abort(self, why: str) -> None: ...


class Connect(Protocol):
    """Makes a connection and does its handshake.
    Raises ConnectError, AuthenticationError, CredentialsError.
    """

    async def __call__(
        self, host: str, port: int, *, on_push: Push, timeout_s: float
    ) -> NodeConnection: ...


class Address(NamedTuple):
    """The address of a node's port for the binary protocol."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def is_tls(url: str) -> bool:
    """Returns True if the URL asks for TLS. Raises InvalidInputError."""
    scheme, sep, _ = url.partition("://")
    if not sep or scheme not in _SCHEMES:
        raise InvalidInputError(
            f"{url!r} is not the URL of a cluster: write pulsar://host:port[,host:port], or "
            "pulsar+ssl:// for ports with TLS"
        )
    return _SCHEMES[scheme]


def parse_url(url: str) -> tuple[Address, ...]:
    """Returns the addresses in `pulsar[+ssl]://host:port[,host:port...]`. Raises InvalidInputError.

    >>> parse_url("pulsar://one:6650,two")
    (Address(host='one', port=6650), Address(host='two', port=6650))
    """
    default_port = _DEFAULT_TLS_PORT if is_tls(url) else _DEFAULT_PORT
    rest = url.partition("://")[2]
    found = []
    for part in rest.rstrip("/").split(","):
        match = _ADDRESS.fullmatch(part.strip())
        port = int(match[3] or default_port) if match else 0
        if match is None or not 0 < port <= PORT_MAX:
            raise InvalidInputError(f"{part!r} in {url!r} is not an address: write host:port")
        found.append(Address(match[1] or match[2], port))
    return tuple(dict.fromkeys(found))


class Nodes:
    """Tries the addresses in turn, beginning at a random one, so that clients spread out."""

    def __init__(self, url: str, connecting: Connect = connect) -> None:
        self.url = url
        self.is_tls = is_tls(url)
        self.connecting = connecting
        self._addresses = parse_url(url)
        self._next = itertools.count(random.randrange(len(self._addresses)))

    async def connect(self, on_push: Push, timeout_s: float, avoid: str = "") -> NodeConnection:
        """Returns a connection to the first node that answers. It tries `avoid` last.

        Raises NodesUnreachableError with the failure of each address, TlsError if no certificate is
        right, AuthenticationError and CredentialsError.
        """
        first = next(self._next) % len(self._addresses)
        turn = [*self._addresses[first:], *self._addresses[:first]]
        turn.sort(key=lambda address: str(address) == avoid)
        failures: list[ConnectError] = []
        for address in turn:
            try:
                return await self.connecting(
                    address.host, address.port, on_push=on_push, timeout_s=timeout_s
                )
            except ConnectError as error:
                failures.append(error)
        why = "; ".join(map(str, failures))
        if all(isinstance(error, WireTlsError) for error in failures):
            raise TlsError(f"no node of {self.url} can be trusted: {why}")
        raise NodesUnreachableError(f"no node of {self.url} answers: {why}")

    def one_of(self, url: str, url_tls: str) -> str:
        """Returns the one of a node's two URLs that this client connects to, "" if the node has
        none.
        """
        return url_tls if self.is_tls else url


class NodeAccess:
    """Makes a client's connections, with TLS and credentials. Raises InvalidInputError.

    A client that was refused does not ask again at once. Else each of its parts would, and nodes
    delay an address that shows many wrong credentials.
    """

    def __init__(
        self,
        url: str,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
        now: Callable[[], float] = clock.now,
    ) -> None:
        if not isinstance(tls, Tls | None):
            raise InvalidInputError(f"tls= is a Tls, not a {type(tls).__name__}")
        if not isinstance(credentials, Credentials | None):
            raise InvalidInputError(f"credentials= is a Token, not a {type(credentials).__name__}")
        wants_tls = is_tls(url)
        if tls is not None and not wants_tls:
            raise InvalidInputError(
                f"{url} is without TLS, and it is said whom to trust by TLS, or what to show: "
                "write pulsar+ssl://, with nodes' brokerServicePortTls"
            )
        if credentials is not None and not wants_tls:
            _logger.warning("client.not_encrypted", url=url)
        self._files = TlsFiles(tls or Tls()) if wants_tls else None
        self._credentials = credentials
        self._now = now
        self._refusal: RefusedAuthenticationError | None = None
        self._refused_until = 0.0
        self._made: set[ClientConnection] = set()  # those that are not over

    async def connect(
        self, host: str, port: int, *, on_push: Push, timeout_s: float
    ) -> ClientConnection:
        """Returns a connection after its handshake.

        Raises ConnectError, AuthenticationError, CredentialsError.
        """
        try:
            if self._refusal is not None and self._now() < self._refused_until:
                raise self._refusal
            made = await connect(
                host,
                port,
                on_push=on_push,
                timeout_s=timeout_s,
                tls=self._files,
                credentials=self._credentials,
            )
        except RefusedAuthenticationError as error:
            if error is not self._refusal:
                self._refusal, self._refused_until = error, self._now() + _REFUSED_S
            may_pass = self._credentials is not None and self._credentials.is_renewable
            raise AuthenticationError(str(error), may_pass=may_pass) from None
        except NothingToShowError as error:
            raise CredentialsError(str(error)) from error
        self._made.add(made)
        made.closed.add_done_callback(lambda _: self._made.discard(made))
        return made

    async def end(self) -> None:
        """Ends the connections that nobody has closed, and returns once nothing of them is left.

        With TLS a closed connection waits for the other side's goodbye. A program whose event loop
        ends before that would leave the socket to the collector.
        """
        made = list(self._made)
        if not made:
            return
        for connection in made:
            connection.close("the client was closed")
        over = [connection.closed for connection in made]
        await asyncio.wait(over, timeout=_GOODBYE_S_MAX)
        for connection in made:
            connection.abort("the client was closed")
        await asyncio.wait(over)
