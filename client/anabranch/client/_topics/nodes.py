"""Where the nodes are: the client's URL, and a connection to whichever of them answers."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from google.protobuf.message import Message

from anabranch.client._errors import NodesUnreachableError
from anabranch.core.errors import InvalidInputError
from anabranch.core.names import PORT_MAX
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.client import connect
from anabranch.wire.errors import ConnectError

_SCHEMES: Final = ("pulsar", "anabranch")
_DEFAULT_PORT: Final = 6650
_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:]+)\]|([-.\w]+))(?::(\d{1,5}))?")


Push = Callable[[BaseCommand], None]


class NodeConnection(Protocol):
    """What watches and sessions need of a connection to a node, be it theirs alone or not."""

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
    """Makes one, on which the handshake is done. Raises ConnectError."""

    async def __call__(
        self, host: str, port: int, *, on_push: Push, timeout_s: float
    ) -> NodeConnection: ...


class Address(NamedTuple):
    """Where a node listens for the binary protocol."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_url(url: str) -> tuple[Address, ...]:
    """The addresses in `pulsar://host:port[,host:port...]`. Raises InvalidInputError.

    >>> parse_url("pulsar://one:6650,two")
    (Address(host='one', port=6650), Address(host='two', port=6650))
    """
    scheme, sep, rest = url.partition("://")
    if not sep or scheme not in _SCHEMES:
        raise InvalidInputError(
            f"{url!r} is not the URL of a cluster: write pulsar://host:port[,host:port]"
        )
    found = []
    for part in rest.rstrip("/").split(","):
        match = _ADDRESS.fullmatch(part.strip())
        port = int(match[3] or _DEFAULT_PORT) if match else 0
        if match is None or not 0 < port <= PORT_MAX:
            raise InvalidInputError(f"{part!r} in {url!r} is not an address: write host:port")
        found.append(Address(match[1] or match[2], port))
    return tuple(dict.fromkeys(found))


class Nodes:
    """Tries the addresses in turn, beginning at a random one, so that clients spread out."""

    def __init__(self, url: str, connecting: Connect = connect) -> None:
        self.url = url
        self._connecting = connecting
        self._addresses = parse_url(url)
        self._next = itertools.count(random.randrange(len(self._addresses)))

    async def connect(self, on_push: Push, timeout_s: float, avoid: str = "") -> NodeConnection:
        """A connection to the first node that answers; to `avoid` only if no other one does.

        Raises NodesUnreachableError, which says of each address what happened.
        """
        first = next(self._next) % len(self._addresses)
        turn = [*self._addresses[first:], *self._addresses[:first]]
        turn.sort(key=lambda address: str(address) == avoid)
        failures = []
        for address in turn:
            try:
                return await self._connecting(
                    address.host, address.port, on_push=on_push, timeout_s=timeout_s
                )
            except ConnectError as error:
                failures.append(str(error))
        raise NodesUnreachableError(f"no node of {self.url} answers: " + "; ".join(failures))
