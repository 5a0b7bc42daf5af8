"""`OutgoingAccess`: a node's or a proxy's credentials for nodes, and the authorities that it
trusts.

It reads a token from its file at the start, and again and again. It does so at once when a node has
asked for the token anew or has refused it. A process that asks for somebody else says so with each
request. Nodes believe that of the roles in their `proxyRoles`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from anabranch.access import Credentials, Tls, TlsFiles, Token
from anabranch.broker.errors import StartError
from anabranch.broker.security.files import ReadAgain, read_file
from anabranch.broker.settings.broker_client import BrokerClientFields
from anabranch.core.errors import InvalidInputError
from anabranch.wire.supervised import kept_going

ORIGINAL_PRINCIPAL: Final = "X-Original-Principal"
UNAUTHORIZED: Final = 401  # a node that does not take what it was shown

_AUTHORIZATION: Final = b"authorization"
_ORIGINAL: Final = ORIGINAL_PRINCIPAL.lower().encode()
_PARAMETERS: Final = "brokerClientAuthenticationParameters"


class OutgoingAccess:
    """One process's access. `check_s`: seconds between two looks at the token's file.

    Raises StartError.
    """

    def __init__(self, settings: BrokerClientFields, check_s: float) -> None:
        self.shows = bool(settings.broker_client_authentication_plugin)
        self.credentials: Credentials | None = None  # beside a certificate
        self._check_s = check_s
        self._token: ReadAgain[bytes] | None = None
        self._following: asyncio.Task[None] | None = None
        tls = Tls(
            ca_file=settings.broker_client_trust_certs_file_path,
            certificate_file=settings.broker_client_certificate_file_path,
            key_file=settings.broker_client_key_file_path,
        )
        self._described = tls
        self._tls = self.new_tls() if tls.files else None  # else of the system, once it is needed
        file = settings.broker_client_token_file
        if file is not None:
            read = ReadAgain("token for nodes", (file,), lambda: _token_in(file))
            self._token = read

            async def shown() -> str:
                await read.look()  # as keys change, a node asks before the next look is due
                return read.current.decode()

            self.credentials = Token(shown)

    @property
    def tls(self) -> TlsFiles:
        """The TLS of the next connection. Raises StartError for the system's own, of no use."""
        if self._tls is None:
            self._tls = self.new_tls()
        return self._tls

    def new_tls(self) -> TlsFiles:
        """Returns the same TLS for a library that changes what it is given. Raises as `tls`."""
        try:
            return TlsFiles(self._described)
        except InvalidInputError as error:
            raise StartError(f"the TLS of questions to nodes, brokerClient...: {error}") from None

    def start(self) -> None:
        """Follows the token's file until `stop`."""
        if (token := self._token) is not None:
            self._following = kept_going(lambda: token.follow(self._check_s), "token for nodes")

    async def stop(self) -> None:
        """Follows nothing any more."""
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    def headers(self, original: str) -> list[tuple[bytes, bytes]]:
        """Returns a request's headers. `original`: the role that it asks for; "" for itself."""
        shown: list[tuple[bytes, bytes]] = []
        if self._token is not None:
            shown.append((_AUTHORIZATION, b"Bearer " + self._token.current))
        if original and self.shows:
            shown.append((_ORIGINAL, original.encode()))
        return shown

    @property
    def generation(self) -> int:
        """Another one after the token has changed."""
        return self._token.generation if self._token is not None else 0

    async def look(self) -> None:
        """Looks at the token's file at once."""
        if self._token is not None:
            await self._token.look()


def _token_in(file: Path) -> bytes:
    """The token in the file. Raises StartError."""
    try:
        token = read_file(file, _PARAMETERS).decode("ascii").strip()
        Token(token)
    except (InvalidInputError, UnicodeDecodeError):
        raise StartError(
            f"{file}, which is {_PARAMETERS}, holds no token; write one there, as `anabranch token "
            "create` prints it"
        ) from None
    return token.encode()
