"""A node's own security: who connects by either port, and what they may."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from anabranch.broker.logging import get_logger
from anabranch.broker.metrics.registry import Metrics
from anabranch.broker.security.authenticator import Admitted, Authenticator
from anabranch.broker.security.credentials import Credentials, CredentialsError, RefusalReason
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.settings import Settings
from anabranch.broker.settings.ports import listed_words
from anabranch.broker.settings.security import BASIC, TOKEN
from anabranch.core.log.state import StateReader
from anabranch.wire.admission import AdmittedPeer, Visitor
from anabranch.wire.anabranch_pb2 import AuthData, CommandConnect, ServerError
from anabranch.wire.errors import RefusedError

_NONE: Final = "none"  # as Pulsar's clients call it that they show nothing

_log = get_logger()


class NodeSecurity:
    """`state`: what is folded now. Raises StartError where the settings' files cannot be used."""

    def __init__(self, settings: Settings, state: Callable[[], StateReader]) -> None:
        exempt = tuple(listed_words(settings.per_ip_limit_exempt_addresses))
        self.authenticator = Authenticator(settings, exempt)
        self.guard = AccessGuard(settings, state)
        self.admission = WireAdmission(self.authenticator)
        self._is_plain = bool(settings.web_url or settings.service_url)

    async def start(self) -> None:
        """Follows keys and users until `stop`."""
        await self.authenticator.start()
        told = [each for each in self.authenticator.methods if each in (TOKEN, BASIC)]
        if told and self._is_plain:
            _log.warning(
                "security.not_encrypted",
                methods=",".join(told),
                why="a port without TLS is on: whoever can listen to it can take what is shown",
                remedy="clear webServicePort and brokerServicePort once all clients have TLS",
            )

    async def stop(self) -> None:
        """Follows nothing any more."""
        await self.authenticator.stop()


class WireAdmission:
    """Admits clients of the binary port by what they show in CONNECT and AUTH_RESPONSE."""

    def __init__(self, authenticator: Authenticator, now: Callable[[], float] = time.time) -> None:
        self._authenticator = authenticator
        self._now = now

    async def admit(self, connect: CommandConnect, visitor: Visitor) -> AdmittedPeer:
        method = connect.auth_method_name
        return await self._admitted(
            "" if method == _NONE else method,
            connect.auth_data,
            visitor,
            connect.original_principal,
        )

    async def admit_again(self, shown: AuthData, visitor: Visitor) -> AdmittedPeer:
        before = visitor.principal
        method = shown.auth_method_name or before.method
        original = before.role if before.proxied_by else ""
        found = await self._admitted(method, shown.auth_data, visitor, original)
        now = found.principal
        if (now.role, now.proxied_by) != (before.role, before.proxied_by):
            raise self._refused(
                CredentialsError(
                    RefusalReason.ANOTHER,
                    f"this connection is {before.role}'s: connect anew to be somebody else",
                ),
                method,
                visitor,
            )
        return found

    async def _admitted(
        self, method: str, data: bytes, visitor: Visitor, original: str
    ) -> AdmittedPeer:
        shown = Credentials(method, data, visitor.certificate)
        try:
            found = await self._authenticator.admit(shown, visitor.host, original)
        except CredentialsError as error:
            raise RefusedError(ServerError.AuthenticationError, str(error)) from None
        if not found.principal.role:
            missing = CredentialsError(
                RefusalReason.MISSING,
                "say who you are in CONNECT: this node takes "
                f"{', '.join(self._authenticator.methods)}",
            )
            raise self._refused(missing, method, visitor)
        return AdmittedPeer(found.principal, self._seconds(found))

    def _refused(self, error: CredentialsError, method: str, visitor: Visitor) -> RefusedError:
        self._authenticator.note(error, method, visitor.host)
        return RefusedError(ServerError.AuthenticationError, str(error))

    def _seconds(self, found: Admitted) -> float | None:
        return None if found.ends_at is None else max(0.0, found.ends_at - self._now())


def node_security(settings: Settings, state: Callable[[], StateReader]) -> NodeSecurity | None:
    """As the settings say; None where nobody has to say who they are. Raises StartError."""
    return NodeSecurity(settings, state) if settings.authentication_enabled else None


def measure_security(security: NodeSecurity | None, metrics: Metrics) -> None:
    """Registers what is counted of who comes: nothing without `security`, as nobody is asked."""
    nobody: Mapping[str, int] = {}
    metrics.totals(
        "anabranch_authentications",
        "Requests and connections of somebody who has shown who they are.",
        "method",
        lambda: nobody if security is None else security.authenticator.admitted,
    )
    metrics.totals(
        "anabranch_authentication_refusals",
        "Requests and connections of somebody who is not who they say, or does not say.",
        "reason",
        lambda: nobody if security is None else security.authenticator.refused,
    )
    metrics.totals(
        "anabranch_authorization_refusals",
        "Requests of somebody without the right to them; hidden: answered as not there.",
        "reason",
        lambda: nobody if security is None else security.guard.refused,
    )
