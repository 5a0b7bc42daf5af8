"""Who a client is: asked when it connects, and again when what it has shown is over."""

from __future__ import annotations

from typing import Protocol

import msgspec

from anabranch.core.security.principal import Principal
from anabranch.wire.anabranch_pb2 import AuthData, CommandConnect


class AdmittedPeer(msgspec.Struct, frozen=True):
    """Who asks on a connection. `seconds`: for which that counts; None: for ever."""

    principal: Principal
    seconds: float | None = None


class Visitor(Protocol):
    """A client, as whoever admits it sees it."""

    @property
    def host(self) -> str:
        """Its address, without the port."""
        ...

    @property
    def principal(self) -> Principal:
        """Who it was until now; nobody before it is admitted."""
        ...

    @property
    def certificate(self) -> dict[str, object] | None:
        """The certificate that it has shown to TLS, verified; None for none."""
        ...

    def ask_anew(self) -> None:
        """Lets it show once more who it is: what it has shown may not count any more."""
        ...


class Admission(Protocol):
    """Whoever admits clients."""

    async def admit(self, connect: CommandConnect, visitor: Visitor) -> AdmittedPeer:
        """Who it is by its CONNECT. Raises RefusedError, with what to tell it."""
        ...

    async def admit_again(self, shown: AuthData, visitor: Visitor) -> AdmittedPeer:
        """The same by what it shows anew; it must be who it was. Raises RefusedError."""
        ...
