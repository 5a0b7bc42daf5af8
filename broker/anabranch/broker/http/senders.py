"""The sender of a request and its address, from the ASGI scope."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from anabranch.broker.security.authenticator import Admitted
from anabranch.core.security.principal import NOBODY, Principal

PRINCIPAL_KEY: Final = "anabranch.principal"
CALLER_KEY: Final = "anabranch.caller"
TURN_KEY: Final = "anabranch.turn"  # of a request that has had its sender's turn already


class Caller:
    """The sender of a connection's last request, which mostly sends the next one, too.

    `shown`: its credentials, byte for byte. `generation`: the keys and users by which it counted.
    """

    __slots__ = ("admitted", "generation", "shown")

    def __init__(self) -> None:
        self.shown: tuple[bytes, bytes] | None = None
        self.generation = 0
        self.admitted: Admitted | None = None


def principal_of(scope: Scope) -> Principal:
    """Returns the sender of the request."""
    found: Principal = scope.get(PRINCIPAL_KEY, NOBODY)
    return found


def host_of(scope: Scope) -> str:
    """The address that the request comes from, without the port."""
    client = scope.get("client")
    return client[0] if client else "?"
