"""ASGI middleware that authenticates the sender of a request before anything else.

A sender that shows something wrong is refused. A sender that shows nothing is NOBODY, or the
anonymous role. The routes check rights (`routing.DecidingRoute`), so a probe of the node's health
needs no password.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch.broker.errors import TooManyRequestsError
from anabranch.broker.http.errors import answer
from anabranch.broker.http.senders import CALLER_KEY, PRINCIPAL_KEY, TURN_KEY, Caller, host_of
from anabranch.broker.requester import asked_by
from anabranch.broker.security.authenticator import Admitted, Authenticator
from anabranch.broker.security.credentials import (
    CERTIFICATE_KEY,
    Credentials,
    CredentialsError,
    RefusalReason,
)
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.settings.security import BASIC, TOKEN
from anabranch.core.security.principal import Principal

_AUTHORIZATION: Final = b"authorization"
_ORIGINAL: Final = b"x-original-principal"
_SCHEMES: Final = {"bearer": TOKEN, "basic": BASIC}


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
            admitted = _remembered(self._authenticator, scope) or await self._admitted(scope)
            if self._guard is not None and TURN_KEY not in scope:
                self._must_have_turn(self._guard, scope, admitted.principal)
        except (CredentialsError, TooManyRequestsError) as error:
            await answer(error)(scope, receive, send)
            return
        scope[PRINCIPAL_KEY] = admitted.principal
        with asked_by(admitted.principal):
            await self._app(scope, receive, send)

    async def _admitted(self, scope: Scope) -> Admitted:
        authenticator = self._authenticator
        try:
            said = _said(scope)
            shown, original = _credentials(said, scope)
        except CredentialsError as error:
            authenticator.note(error, "", host_of(scope))
            raise
        generation = authenticator.generation
        try:
            known = authenticator.at_once(shown, original)
        except CredentialsError as error:
            authenticator.note(error, shown.method, host_of(scope))
            raise
        found = known or await authenticator.admit(shown, host_of(scope), original)
        _remember(scope, said, generation, found)
        return found

    @staticmethod
    def _must_have_turn(guard: AccessGuard, scope: Scope, principal: Principal) -> None:
        try:
            guard.must_have_turn(principal)
        except TooManyRequestsError as error:
            guard.note(error, scope["method"], host_of(scope))
            raise


def known_at_once(authenticator: Authenticator, scope: Scope) -> Principal | None:
    """Returns the sender of a request if it is remembered; None if it has to be looked at."""
    remembered = _remembered(authenticator, scope)
    if remembered is not None:
        return remembered.principal
    generation = authenticator.generation
    try:
        said = _said(scope)
        known = authenticator.at_once(*_credentials(said, scope))
    except CredentialsError:
        return None  # the full look says why, and counts it
    if known is None:
        return None
    _remember(scope, said, generation, known)
    return known.principal


def _remembered(authenticator: Authenticator, scope: Scope) -> Admitted | None:
    """Returns the sender if its connection's last request had the same credentials, and they still
    count.
    """
    caller: Caller | None = scope.get(CALLER_KEY)
    if caller is None or caller.admitted is None or _said(scope) != caller.shown:
        return None
    return caller.admitted if authenticator.counts(caller.admitted, caller.generation) else None


def _remember(
    scope: Scope, said: tuple[bytes, bytes] | None, generation: int, found: Admitted
) -> None:
    """For the connection's next request."""
    caller: Caller | None = scope.get(CALLER_KEY)
    if caller is not None:
        caller.shown, caller.generation, caller.admitted = said, generation, found


def _said(scope: Scope) -> tuple[bytes, bytes] | None:
    """Returns a request's credentials, and the principal that it asks for.

    Returns None for a request that names either twice.
    """
    shown = original = None
    for name, value in scope["headers"]:
        if name == _AUTHORIZATION:
            if shown is not None:
                return None
            shown = value
        elif name == _ORIGINAL:
            if original is not None:
                return None
            original = value
    return shown or b"", original or b""


def _credentials(said: tuple[bytes, bytes] | None, scope: Scope) -> tuple[Credentials, str]:
    """The same, as the authenticator takes it. Raises CredentialsError."""
    if said is None:
        raise CredentialsError(
            RefusalReason.MALFORMED,
            "the header Authorization or X-Original-Principal came twice: send one",
        )
    certificate = scope.get(CERTIFICATE_KEY)
    try:
        original = said[1].decode()
    except UnicodeDecodeError:  # or two names that are none could be taken for one
        raise CredentialsError(
            RefusalReason.MALFORMED, "the header X-Original-Principal is not UTF-8"
        ) from None
    scheme, _, rest = said[0].partition(b" ")
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
            RefusalReason.MALFORMED, "the text behind Basic is not base64 of user:password"
        ) from None
