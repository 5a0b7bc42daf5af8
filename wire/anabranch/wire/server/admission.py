"""The identity of a client: asked for when it connects, and again when its credentials are over."""

from __future__ import annotations

from typing import Protocol

import msgspec

from anabranch.core.security.principal import Principal
from anabranch.wire.anabranch_pb2 import AuthData, CommandConnect


class AdmittedPeer(msgspec.Struct, frozen=True):
    """The principal of a connection. It counts for `seconds`, None for ever."""

    principal: Principal
    seconds: float | None = None


class Visitor(Protocol):
    """A client, from the view of its admission."""

    @property
    def host(self) -> str:
        """The client's address, without the port."""
        ...

    @property
    def principal(self) -> Principal:
        """Its principal until now, nobody before it is admitted."""
        ...

    @property
    def certificate(self) -> dict[str, object] | None:
        """The verified certificate that it has shown to TLS, None for none."""
        ...

    def ask_anew(self) -> None:
        """Lets it show its credentials again, because the former ones may not count any more."""
        ...


class Admission(Protocol):
    """Admits clients."""

    async def admit(self, connect: CommandConnect, visitor: Visitor) -> AdmittedPeer:
        """Returns the principal of its CONNECT.
        Raises RefusedError, with the text for the client.
        """
        ...

    async def admit_again(self, shown: AuthData, visitor: Visitor) -> AdmittedPeer:
        """Returns the principal of new credentials, which must be the former one.
        Raises RefusedError.
        """
        ...
