"""What a call can end in, other than its answer."""

from __future__ import annotations

from typing import Final

from anabranch.core.errors import AnabranchError


class AdminError(AnabranchError):
    """Root of the family."""


class RefusedError(AdminError):
    """A node refused, and nothing was done; `reason` is its own sentence, with the remedy."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class InvalidRequestError(RefusedError):
    """The request is not of the form that the node takes (400, 405, 413, 415, 431)."""


class ForbiddenError(RefusedError):
    """Whoever asks has no right to this (403)."""


class AuthenticationError(ForbiddenError):
    """The node does not take who asks for who they say, or they do not say (401)."""


class NotFoundError(RefusedError):
    """A tenant, namespace, topic, segment or subscription does not exist (404)."""


class ConflictError(RefusedError):
    """The state forbids it: it exists already, is in use, or is being changed (409)."""


class PreconditionError(RefusedError):
    """The request cannot be meant: a malformed name, no such bundle, a sealed segment (412)."""


class NodeFailedError(RefusedError):
    """Kafka refused what the request needs, and the change is undone; or a fault (500)."""


class UnavailableError(RefusedError):
    """The node has no hold on the log now (503): try again, or ask another one."""


class UnknownOutcomeError(AdminError, TimeoutError):
    """It was begun and is not known to be done; look before trying again."""


class UnreachableError(AdminError):
    """What was asked does not answer, or is no node."""


class TlsError(UnreachableError):
    """What was asked is not who it should be by its certificate, or does not take one's own."""


class CredentialsError(AdminError):
    """What is to be shown cannot be had: its file cannot be read, or its function failed."""


class ForkedError(AdminError):
    """It was made in another process, from which this one was forked: make one here."""


class WrongLoopError(AdminError):
    """It was used on another event loop before: make one in each `asyncio.run`."""


class NoNodeError(UnreachableError):
    """No node answers at any address given; nothing was sent."""


_KINDS: Final[dict[int, type[RefusedError]]] = {
    401: AuthenticationError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    412: PreconditionError,
    500: NodeFailedError,
    503: UnavailableError,
}
_TIMED_OUT: Final = 504


def refusal(status: int, reason: str) -> AdminError:
    """The error that an answer stands for.

    >>> refusal(404, "Tenant acme does not exist")
    NotFoundError('Tenant acme does not exist')
    """
    if status == _TIMED_OUT:
        return UnknownOutcomeError(reason)
    kind = _KINDS.get(status, InvalidRequestError if status < 500 else RefusedError)
    return kind(status, reason)
