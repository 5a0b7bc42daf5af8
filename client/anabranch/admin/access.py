"""How requests reach nodes: by TLS or not, and as whom; both faces of administration use it."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterator
from typing import Final

import httpx

from anabranch.access import Credentials, Tls, TlsFiles
from anabranch.access import CredentialsError as NothingToShowError
from anabranch.access.credentials import NOTHING_SHOWN
from anabranch.access.tls import reason_of
from anabranch.admin.errors import CredentialsError, UnreachableError
from anabranch.core.errors import InvalidInputError

_REDIRECTS_MAX: Final = 20

_logger = logging.getLogger("anabranch.admin")


class ShownIdentity:
    """What requests show of who asks: a function's word is kept until it is refused."""

    def __init__(self, credentials: Credentials | None) -> None:
        self._credentials = credentials
        self._known = b""
        self._asking = asyncio.Lock()

    @property
    def is_renewable(self) -> bool:
        """Whether it may be another one once it was refused."""
        return self._credentials is not None and self._credentials.is_renewable

    @property
    def remedy(self) -> str:
        """What to do where it is refused."""
        return NOTHING_SHOWN if self._credentials is None else self._credentials.renewal

    def show(self, refused: bytes = b"") -> bytes:
        """What is to be shown now, other than that if there is. Raises CredentialsError."""
        if self._credentials is None:
            return b""
        if not self._is_kept(self._credentials, refused):
            try:
                self._known = self._credentials.show_waiting()
            except NothingToShowError as error:
                raise CredentialsError(str(error)) from error
        return self._known

    async def show_async(self, refused: bytes = b"") -> bytes:
        """The same; of several at a time one asks."""
        if self._credentials is None:
            return b""
        async with self._asking:
            if not self._is_kept(self._credentials, refused):
                try:
                    self._known = await self._credentials.show()
                except NothingToShowError as error:
                    raise CredentialsError(str(error)) from error
            return self._known

    def put_on(self, request: httpx.Request, shown: bytes) -> None:
        """Has the request show it."""
        if self._credentials is not None:
            request.headers["Authorization"] = self._credentials.header(shown)

    def _is_kept(self, credentials: Credentials, refused: bytes) -> bool:
        return credentials.is_asked_for and self._known not in (b"", refused)


def identity_of(nodes: tuple[str, ...], credentials: Credentials | None) -> ShownIdentity:
    """Of who asks those nodes. Raises InvalidInputError."""
    if not isinstance(credentials, Credentials | None):
        raise InvalidInputError(
            f"credentials= is a Token or Basic, not a {type(credentials).__name__}"
        )
    if credentials is not None and any(node.startswith("http:") for node in nodes):
        _logger.warning("what shows who asks goes unencrypted to %s", ", ".join(nodes))
    return ShownIdentity(credentials)


def files_of(nodes: tuple[str, ...], tls: Tls | None) -> TlsFiles | None:
    """The TLS to those nodes; None where none has it. Raises InvalidInputError."""
    if not isinstance(tls, Tls | None):
        raise InvalidInputError(f"tls= is a Tls, not a {type(tls).__name__}")
    plain = [node for node in nodes if node.startswith("http:")]
    if tls is not None and plain:
        raise InvalidInputError(
            f"{plain[0]} is without TLS, and it is said whom to trust by TLS, or what to show: "
            "write https://, with nodes' webServicePortTls"
        )
    return TlsFiles(tls or Tls()) if len(plain) < len(nodes) else None


class Follower:
    """Follows one request from node to node. Raises UnreachableError.

    httpx would not show the next node who asks: to it that is another site.
    """

    def __init__(self, request: httpx.Request, identity: ShownIdentity, shown: bytes) -> None:
        self._request: httpx.Request | None = request
        self._identity = identity
        self._shown = shown
        self._response: httpx.Response | None = None

    @property
    def answer(self) -> httpx.Response:
        """The last one's."""
        if self._response is None:
            raise UnreachableError("nothing was asked: ask first")
        return self._response

    def requests(self) -> Iterator[httpx.Request]:
        """Each one that is to be sent; `take` its answer before the next one."""
        for _ in range(_REDIRECTS_MAX):
            request, self._request = self._request, None
            if request is None:
                return
            self._identity.put_on(request, self._shown)
            yield request
        raise UnreachableError("nodes send the request to one another; try again in a moment")

    def take(self, response: httpx.Response) -> None:
        """The answer to the last one."""
        self._response = response
        following = response.next_request
        if following is None:
            return
        if response.url.scheme == "https" and following.url.scheme != "https":
            raise UnreachableError(
                f"{response.url.netloc.decode()} sends the request on to "
                f"{following.url.netloc.decode()}, which is without TLS: give every node "
                "a webServicePortTls"
            )
        self._request = following


def tls_reason(error: BaseException, host: str) -> str | None:
    """Why there is no TLS with that host; None if it is not for that."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return reason_of(cause, host)
        cause = cause.__cause__ or cause.__context__
    return None
