"""Admission to the binary protocol, and the metrics and warnings of both ports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final
from weakref import WeakSet

from anabranch.broker.logging import get_logger
from anabranch.broker.metrics.shown import ShownValues
from anabranch.broker.security.authenticator import Admitted, Authenticator
from anabranch.broker.security.credentials import Credentials, CredentialsError, RefusalReason
from anabranch.broker.settings.security import TOKEN
from anabranch.wire.anabranch_pb2 import AuthData, CommandConnect, ServerError
from anabranch.wire.errors import RefusedError
from anabranch.wire.server.identity import AdmittedPeer, Visitor
from anabranch.wire.supervised import kept_going

_LOOK_S: Final = 1.0  # between two looks at whether keys have changed
_AT_ONCE: Final = 100  # clients that are asked anew before others have their turn
# These refusals ask a client that may have good credentials to come again, like `http.errors`.
_PASSING: Final = {
    RefusalReason.BUSY: ServerError.ServiceNotReady,
}
_NONE: Final = "none"  # as Pulsar's clients call it that they show nothing

_log = get_logger()


class WireAdmission:
    """Admits clients of the binary port by their credentials in CONNECT and AUTH_RESPONSE."""

    def __init__(self, authenticator: Authenticator, now: Callable[[], float] = time.time) -> None:
        self._authenticator = authenticator
        self._now = now
        self._admitted_ones: WeakSet[Visitor] = WeakSet()
        self._seen = self._generations()
        self._following: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Asks those anew, until `stop`, who have shown what by now may not count any more."""
        self._following = kept_going(self.follow, "admission")

    async def stop(self) -> None:
        """Asks no client anew."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def follow(self) -> None:
        """Goes on with the work that `start` begins, as a task."""
        while True:
            await asyncio.sleep(_LOOK_S)
            seen = self._generations()
            changed = {each for each, number in seen.items() if number != self._seen[each]}
            if not changed:
                continue
            asked = [each for each in self._admitted_ones if each.principal.method in changed]
            for number, visitor in enumerate(asked):
                visitor.ask_anew()
                if number % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(0)
            self._seen = seen  # only now: after a fault all of them are asked

    def _generations(self) -> dict[str, int]:
        return {each.method: each.generation for each in self._authenticator.providers}

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
            raise RefusedError(_code_of(error), str(error)) from None
        if not found.principal.role:
            missing = CredentialsError(
                RefusalReason.MISSING,
                "say who you are in CONNECT: this node takes "
                f"{', '.join(self._authenticator.methods)}",
            )
            raise self._refused(missing, method, visitor)
        self._admitted_ones.add(visitor)
        return AdmittedPeer(found.principal, self._seconds(found))

    def _refused(self, error: CredentialsError, method: str, visitor: Visitor) -> RefusedError:
        self._authenticator.note(error, method, visitor.host)
        return RefusedError(_code_of(error), str(error))

    def _seconds(self, found: Admitted) -> float | None:
        return None if found.ends_at is None else max(0.0, found.ends_at - self._now())


def _code_of(error: CredentialsError) -> ServerError:
    return _PASSING.get(error.kind, ServerError.AuthenticationError)


def warn_of_plain_ports(authenticator: Authenticator, *ports: str) -> None:
    """Says that tokens may come by these ports, which have no TLS."""
    if TOKEN in authenticator.methods:
        _log.warning(
            "security.not_encrypted",
            methods=TOKEN,
            why="a port without TLS is on: a listener can take the credentials",
            remedy=f"clear {' and '.join(ports)} once all clients have TLS",
        )


def measure_authentication(authenticator: Authenticator | None, shown: ShownValues) -> None:
    """Registers metrics of authentication: none if requests need no credentials."""
    nobody: Mapping[str, int] = {}
    shown.totals(
        "anabranch_authentications",
        "Requests and connections with accepted credentials.",
        "method",
        lambda: nobody if authenticator is None else authenticator.admitted,
    )
    shown.totals(
        "anabranch_authentication_refusals",
        "Requests and connections with wrong or missing credentials.",
        "reason",
        lambda: nobody if authenticator is None else authenticator.refused,
    )
