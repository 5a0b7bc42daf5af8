"""The sender of a request and its address, from the ASGI scope."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from anabranch.core.security.principal import NOBODY, Principal

PRINCIPAL_KEY: Final = "anabranch.principal"


def principal_of(scope: Scope) -> Principal:
    """Returns the sender of the request."""
    found: Principal = scope.get(PRINCIPAL_KEY, NOBODY)
    return found


def host_of(scope: Scope) -> str:
    """The address that the request comes from, without the port."""
    client = scope.get("client")
    return client[0] if client else "?"
