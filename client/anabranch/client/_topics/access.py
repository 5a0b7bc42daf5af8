"""`NodeAccess`: the connections of a client to nodes, with their TLS and credentials.

A client that was refused does not ask again at once. Else each of its parts would, and nodes delay
an address that shows many wrong credentials.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from anabranch.access import Credentials, Tls, TlsFiles
from anabranch.access import CredentialsError as NothingToShowError
from anabranch.client._errors import AuthenticationError, CredentialsError
from anabranch.client._topics.nodes import Push, is_tls
from anabranch.core.errors import InvalidInputError
from anabranch.wire import clock
from anabranch.wire.client import ClientConnection, connect
from anabranch.wire.errors import AuthenticationError as RefusedAuthenticationError
from anabranch.wire.logging import get_logger

# A refusal holds for so long: that of the same text, or that of a function, unasked.
_REFUSED_S: Final = 10.0
_REFUSED_ASKED_S: Final = 2.0
_GOODBYE_S_MAX: Final = 1.0

_logger = get_logger(__name__)


class NodeAccess:
    """Makes a client's connections. Raises InvalidInputError."""

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
        self._refused = b""  # the refused credentials
        self._refused_until = 0.0
        self._made: set[ClientConnection] = set()  # those that are not over

    async def connect(
        self, host: str, port: int, *, on_push: Push, timeout_s: float
    ) -> ClientConnection:
        """Returns a connection after its handshake.

        Raises ConnectError, AuthenticationError, CredentialsError.
        """
        try:
            if self._refusal is not None and await self._is_the_same():
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
            await self._remember(error)
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

    def drop(self) -> None:
        """Ends the connections after their event loop is over."""
        for connection in self._made:
            connection.cut()

    async def _is_the_same(self) -> bool:
        """Returns True if a node would refuse the client again."""
        if self._now() >= self._refused_until:
            self._refusal = None
            return False
        return await self._shown() == self._refused

    async def _remember(self, refusal: RefusedAuthenticationError) -> None:
        if refusal is not self._refusal:
            self._refused = await self._shown()
            shown = self._credentials
            is_asked = shown is not None and shown.is_asked_for
            self._refused_until = self._now() + (_REFUSED_ASKED_S if is_asked else _REFUSED_S)
            self._refusal = refusal

    async def _shown(self) -> bytes:
        """Returns the credentials to show, b"" if only a call of a function could tell."""
        shown = self._credentials
        return await shown.show() if shown is not None and not shown.is_asked_for else b""
