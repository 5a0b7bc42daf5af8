"""ASGI middleware that authenticates the sender of a request before anything else.

A sender that shows something wrong is refused. A sender that shows nothing is NOBODY, or the
anonymous role. The routes check rights (`http/routing.py`), so a probe of the node's health
needs no token.
"""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch.broker.http.errors import answer
from anabranch.broker.requester import asked_by
from anabranch.broker.security.authenticator import Admitted, Authenticator
from anabranch.broker.security.credentials import (
    CERTIFICATE_KEY,
    Credentials,
    CredentialsError,
    RefusalReason,
)
from anabranch.broker.settings.security import TOKEN
from anabranch.core.security.principal import NOBODY, Principal

_AUTHORIZATION: Final = b"authorization"
_ORIGINAL: Final = b"x-original-principal"
_SCHEMES: Final = {"bearer": TOKEN}


PRINCIPAL_KEY: Final = "anabranch.principal"


def principal_of(scope: Scope) -> Principal:
    """Returns the sender of the request."""
    found: Principal = scope.get(PRINCIPAL_KEY, NOBODY)
    return found


def host_of(scope: Scope) -> str:
    """The address that the request comes from, without the port."""
    client = scope.get("client")
    return client[0] if client else "?"


class AuthenticationMiddleware:
    """Hands requests on to `app` with their sender, which may be NOBODY."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self._app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            principal = (await self._admitted(scope)).principal
        except CredentialsError as error:
            await answer(error)(scope, receive, send)
            return
        scope[PRINCIPAL_KEY] = principal
        with asked_by(principal):
            await self._app(scope, receive, send)

    async def _admitted(self, scope: Scope) -> Admitted:
        try:
            shown, original = _credentials(scope)
        except CredentialsError as error:
            self._authenticator.note(error, "", host_of(scope))
            raise
        return await self._authenticator.admit(shown, host_of(scope), original)


def _credentials(scope: Scope) -> tuple[Credentials, str]:
    """Returns a request's credentials, and the principal that it asks for.
    Raises CredentialsError.
    """
    said = original = None
    for name, value in scope["headers"]:
        if (name == _AUTHORIZATION and said is not None) or (
            name == _ORIGINAL and original is not None
        ):
            raise CredentialsError(
                RefusalReason.MALFORMED,
                "the header Authorization or X-Original-Principal came twice: send one",
            )
        if name == _AUTHORIZATION:
            said = value
        elif name == _ORIGINAL:
            original = value
    try:
        named = (original or b"").decode()
    except UnicodeDecodeError:  # or two names that are none could be taken for one
        raise CredentialsError(
            RefusalReason.MALFORMED, "the header X-Original-Principal is not UTF-8"
        ) from None
    scheme, _, data = (said or b"").partition(b" ")
    method = _SCHEMES.get(scheme.decode("latin-1").lower(), "?") if scheme else ""
    return Credentials(method, data.strip(), scope.get(CERTIFICATE_KEY)), named
