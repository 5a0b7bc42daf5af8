"""TLS and identity of requests to nodes, for both faces of administration."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Final

import httpx

from anabranch.access import Credentials, Tls, TlsFiles
from anabranch.access import CredentialsError as NothingToShowError
from anabranch.access.credentials import NOTHING_SHOWN
from anabranch.access.tls import reason_of
from anabranch.admin.errors import CredentialsError, UnreachableError
from anabranch.core.errors import InvalidInputError

SHOWN: Final = "anabranch.shown"  # the extension of a request with what it shows

_logger = logging.getLogger("anabranch.admin")


class ShownIdentity:
    """Shows nodes who asks. It keeps what a function returned until a node refuses it."""

    def __init__(self, credentials: Credentials | None) -> None:
        self._credentials = credentials
        self._known = b""
        self._asking = asyncio.Lock()

    @property
    def is_renewable(self) -> bool:
        """True where the next `show` may differ after a refusal."""
        return self._credentials is not None and self._credentials.is_renewable

    @property
    def remedy(self) -> str:
        """The advice for a user whose request a node refused (401)."""
        return NOTHING_SHOWN if self._credentials is None else self._credentials.renewal

    def show(self, refused: bytes = b"") -> bytes:
        """Returns the credentials to send now, b"" for none. It asks again for those that are
        `refused`. Raises CredentialsError.
        """
        if self._credentials is None:
            return b""
        if not self._is_kept(self._credentials, refused):
            try:
                self._known = self._credentials.show_waiting()
            except NothingToShowError as error:
                raise CredentialsError(str(error)) from error
        return self._known

    async def show_async(self, refused: bytes = b"") -> bytes:
        """`show` as a coroutine. Only one of several callers at a time asks for new credentials."""
        if self._credentials is None:
            return b""
        async with self._asking:
            if not self._is_kept(self._credentials, refused):
                try:
                    self._known = await self._credentials.show()
                except NothingToShowError as error:
                    raise CredentialsError(str(error)) from error
            return self._known

    def put_on(self, request: httpx.Request) -> None:
        """Adds the header with what its call shows to the request, also to one that is sent on.

        httpx drops the header at each redirect, because another node is another site to it.
        """
        if self._credentials is not None:
            shown = request.extensions[SHOWN]
            request.headers["Authorization"] = self._credentials.header(shown)

    def _is_kept(self, credentials: Credentials, refused: bytes) -> bool:
        return credentials.is_asked_for and self._known not in (b"", refused)


def identity_of(nodes: tuple[str, ...], credentials: Credentials | None) -> ShownIdentity:
    """Checks the type of `credentials`, and warns where they go unencrypted.
    Raises InvalidInputError.
    """
    if not isinstance(credentials, Credentials | None):
        raise InvalidInputError(f"credentials= is a Token, not a {type(credentials).__name__}")
    if credentials is not None and any(node.startswith("http:") for node in nodes):
        _logger.warning("what shows who asks goes unencrypted to %s", ", ".join(nodes))
    return ShownIdentity(credentials)


def files_of(nodes: tuple[str, ...], tls: Tls | None) -> TlsFiles | None:
    """Returns the TLS files for those nodes, None where no node has TLS.
    Raises InvalidInputError.
    """
    if not isinstance(tls, Tls | None):
        raise InvalidInputError(f"tls= is a Tls, not a {type(tls).__name__}")
    plain = [node for node in nodes if node.startswith("http:")]
    if tls is not None and plain:
        raise InvalidInputError(
            f"{plain[0]} is without TLS, and it is said whom to trust by TLS, or what to show: "
            "write https://, with nodes' webServicePortTls"
        )
    return TlsFiles(tls or Tls()) if len(plain) < len(nodes) else None


def stay_encrypted(response: httpx.Response) -> None:
    """Refuses to follow a node by TLS to one without. Raises UnreachableError."""
    if not response.has_redirect_location:
        return
    following = response.url.join(response.headers["Location"])
    if response.url.scheme == "https" and following.scheme != "https":
        raise UnreachableError(
            f"{response.url.netloc.decode()} sends the request on to "
            f"{following.netloc.decode()}, which is without TLS: give every node "
            "a webServicePortTls"
        )


def tls_reason(error: BaseException, host: str) -> str | None:
    """Returns the reason of a failed TLS handshake with that host, None for another error."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return reason_of(cause, host)
        cause = cause.__cause__ or cause.__context__
    return None
