"""The errors of those who ask for permits; each message says what a rule says, then a remedy."""

from __future__ import annotations

from anabranch.core.errors import AnabranchError


class PermitAcquireError(AnabranchError):
    """Root: the permits were not given, and nothing is held for the request."""


class PermitAcquireQueueFullError(PermitAcquireError):
    """As many requests wait as may; asking again at once would make it worse."""


class PermitAcquireTimeoutError(PermitAcquireError):
    """The request has waited for as long as it may."""


class PermitAcquireCancelledError(PermitAcquireError):
    """The request's own cancel flag said that nobody wants the permits any more."""


class PermitAcquireAlreadyClosedError(PermitAcquireError):
    """The semaphore gives no permits any more."""


class InvalidPermitsError(PermitAcquireError, ValueError):
    """Permits that no semaphore of these limits could give, or a permit that is another's."""
