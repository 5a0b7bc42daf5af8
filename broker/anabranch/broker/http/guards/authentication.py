"""ASGI middleware: who sends a request, made sure of before anything else is done with it.

Whoever shows something wrong is refused. Whoever shows nothing is nobody, or the anonymous role;
the routes know who may ask for them (`routing.DecidingRoute`), so that a probe of whether the node
is there needs no password.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

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
from anabranch.broker.settings.security import BASIC, TOKEN

_ORIGINAL: Final = b"x-original-principal"
_SCHEMES: Final = {"bearer": TOKEN, "basic": BASIC}


class AuthenticationMiddleware:
    """Hands on to `app` what comes from somebody, or from nobody, and says from whom."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self._app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            admitted = await self._admitted(scope)
        except CredentialsError as error:
            await answer(error)(scope, receive, send)
            return
        scope[PRINCIPAL_KEY] = admitted.principal
        with asked_by(admitted.principal.role):
            await self._app(scope, receive, send)

    async def _admitted(self, scope: Scope) -> Admitted:
        host = host_of(scope)
        try:
            shown, original = _shown(scope)
        except CredentialsError as error:
            self._authenticator.note(error, "", host)
            raise
        known = self._authenticator.at_once(shown, original)
        return known or await self._authenticator.admit(shown, host, original)


def _shown(scope: Scope) -> tuple[Credentials, str]:
    """What the request shows, and for whom it says to ask. Raises CredentialsError."""
    said: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in (b"authorization", _ORIGINAL):
            if name in said:
                raise CredentialsError(
                    RefusalReason.MALFORMED, f"the header {name.decode()} came twice: send one"
                )
            said[name] = value
    certificate = scope.get(CERTIFICATE_KEY)
    original = said.get(_ORIGINAL, b"").decode("utf-8", "replace")
    scheme, _, rest = said.get(b"authorization", b"").partition(b" ")
    if not scheme:
        return Credentials("", b"", certificate), original
    method = _SCHEMES.get(scheme.decode("latin-1").lower(), "?")
    data = rest.strip()
    if method == BASIC:
        data = _user_and_password(data)
    return Credentials(method, data, certificate), original


def _user_and_password(encoded: bytes) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise CredentialsError(
            RefusalReason.MALFORMED, "what follows Basic is not base64 of user:password"
        ) from None
