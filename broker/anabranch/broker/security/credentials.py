"""What a client shows of who it is, and what comes of it: a role, or a reason why not.

A reason names what is wrong and never what was shown: tokens and passwords are in no message.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum, unique
from typing import Any, Final, Protocol

import msgspec

from anabranch.broker.errors import OperationError

CREDENTIAL_BYTES_MAX: Final = 16_384  # more is not looked at

CERTIFICATE_KEY: Final = "anabranch.certificate"  # in the scope of a request over TLS

Certificate = Mapping[str, Any]  # as `ssl` describes one that it has verified


@unique
class RefusalReason(StrEnum):
    """Why somebody is not who they say; a counter's label."""

    MISSING = "missing"  # nothing was shown
    METHOD = "method"  # one that is not taken here
    SIZE = "size"
    MALFORMED = "malformed"
    ALGORITHM = "algorithm"
    UNKNOWN_KEY = "unknown_key"
    SIGNATURE = "signature"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    ISSUER = "issuer"
    AUDIENCE = "audience"
    ROLE = "role"  # there is none in it, or one that cannot be
    PASSWORD = "password"  # noqa: S105 - or the user
    GUESSES = "guesses"  # too many were wrong of late
    BUSY = "busy"
    ANOTHER = "another"  # a connection has become somebody else's
    PROXY = "proxy"  # who asks for another is none


class CredentialsError(OperationError):
    """Somebody is not who they say, or does not say (401)."""

    def __init__(self, kind: RefusalReason, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class Credentials:
    """What a client shows. `method`: Pulsar's name of how; "" where it does not say."""

    __slots__ = ("certificate", "data", "method")

    def __init__(self, method: str, data: bytes, certificate: Certificate | None = None) -> None:
        self.method = method
        self.data = data
        self.certificate = certificate

    def __repr__(self) -> str:
        return f"Credentials({self.method!r}, {len(self.data)} bytes)"


class Verified(msgspec.Struct, frozen=True):
    """Who it is. `ends_at`: in seconds since 1970, when it has to be shown anew; None: never."""

    role: str
    ends_at: float | None = None


class Provider(Protocol):
    """One way to say who one is."""

    @property
    def method(self) -> str:
        """Pulsar's name of it."""
        ...

    @property
    def goes_by_data(self) -> bool:
        """Whether the data that is shown says who it is, whichever connection shows it."""
        ...

    @property
    def generation(self) -> int:
        """Another one after its keys or users have changed: what it said before counts no more."""
        ...

    def takes(self, shown: Credentials) -> bool:
        """Whether this is what the client shows."""
        ...

    async def verify(self, shown: Credentials) -> Verified:
        """Who it is. Raises CredentialsError."""
        ...

    async def start(self) -> None:
        """Follows what it depends on, until `stop`."""
        ...

    async def stop(self) -> None:
        """Ends that."""
        ...
