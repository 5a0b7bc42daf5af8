"""A client's credentials, and the result of a look at them: a role, or the reason of a refusal.

A reason names the fault and never the credentials: tokens are in no message.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum, unique
from http import HTTPStatus
from typing import Any, Final, Protocol

import msgspec

from anabranch.broker.errors import OperationError
from anabranch.wire.anabranch_pb2 import ServerError

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
    BUSY = "busy"
    ANOTHER = "another"  # a connection has become somebody else's
    PROXY = "proxy"  # a client asks for another and is none


class CredentialsError(OperationError):
    """Somebody is not who they say, or does not say."""

    status = HTTPStatus.UNAUTHORIZED
    code = ServerError.AuthenticationError

    def __init__(self, kind: RefusalReason, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class Credentials:
    """A client's credentials. `method`: Pulsar's name of their kind, or "" if it is not said."""

    __slots__ = ("certificate", "data", "method")

    def __init__(self, method: str, data: bytes, certificate: Certificate | None = None) -> None:
        self.method = method
        self.data = data
        self.certificate = certificate

    def __repr__(self) -> str:
        return f"Credentials({self.method!r}, {len(self.data)} bytes)"


class Verified(msgspec.Struct, frozen=True):
    """The client's role. `ends_at`: seconds since 1970, at which it has to show it anew; None:
    never.
    """

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
        """True if the data alone names the role, whichever connection shows it."""
        ...

    @property
    def generation(self) -> int:
        """A number that changes with its keys; earlier answers count no more then."""
        ...

    def takes(self, shown: Credentials) -> bool:
        """Returns whether the client shows this provider's kind of credentials."""
        ...

    async def verify(self, shown: Credentials) -> Verified:
        """Returns the client's role. Raises CredentialsError."""
        ...

    async def start(self) -> None:
        """Follows its keys, until `stop`."""
        ...

    async def stop(self) -> None:
        """Ends that."""
        ...
