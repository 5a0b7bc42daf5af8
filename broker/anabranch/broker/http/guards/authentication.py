"""ASGI middleware that authenticates the sender of a request before anything else.

A sender that shows something wrong is refused. A sender that shows nothing is NOBODY, or the
anonymous role. The routes check rights (`http/routing.py`), so a probe of the node's health
needs no token.
"""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch.broker.errors import TooManyRequestsError
from anabranch.broker.http.errors import answer
from anabranch.broker.http.senders import PRINCIPAL_KEY, host_of
from anabranch.broker.requester import asked_by
from anabranch.broker.security.authenticator import Admitted, Authenticator
from anabranch.broker.security.credentials import (
    CERTIFICATE_KEY,
    Credentials,
    CredentialsError,
    RefusalReason,
)
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.settings.security import TOKEN

_AUTHORIZATION: Final = b"authorization"
_ORIGINAL: Final = b"x-original-principal"
_SCHEMES: Final = {"bearer": TOKEN}


class AuthenticationMiddleware:
    """Hands requests on to `app` with their sender, which may be NOBODY."""

    def __init__(
        self, app: ASGIApp, authenticator: Authenticator, guard: AccessGuard | None = None
    ) -> None:
        """`guard`: knows how often each role may ask; None: any number of times."""
        self._app = app
        self._authenticator = authenticator
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            principal = (await self._admitted(scope)).principal
            if self._guard is not None:
                self._guard.must_have_turn(principal)
        except (CredentialsError, TooManyRequestsError) as error:
            if self._guard is not None and isinstance(error, TooManyRequestsError):
                self._guard.note(error, scope["method"], host_of(scope))
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
