"""The errors of administration calls."""

from __future__ import annotations

from typing import Final

from anabranch.core.errors import AnabranchError


class AdminError(AnabranchError):
    """The base class of all errors of administration."""


class RefusedError(AdminError):
    """A node refused, and did nothing.
    `reason` is the node's sentence, with the remedy; `status` is the HTTP status.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class InvalidRequestError(RefusedError):
    """The request does not have the form that the node takes (400, 405, 413, 415, 431)."""


class ForbiddenError(RefusedError):
    """The role that asks has no right to this (403)."""


class AuthenticationError(ForbiddenError):
    """The request shows no credentials, or the node does not accept those that it shows (401)."""


class NotFoundError(RefusedError):
    """A tenant, namespace, topic, segment or subscription does not exist (404)."""


class ConflictError(RefusedError):
    """The state forbids it: the thing exists already, is in use, or is being changed (409)."""


class PreconditionError(RefusedError):
    """The request makes no sense: a malformed name, no such bundle, a sealed segment (412)."""


class NodeFailedError(RefusedError):
    """Kafka refused a step, and the node undid the change; or the node has a fault (500)."""


class UnavailableError(RefusedError):
    """The node has no hold on the log now (503). Try again, or ask another node."""


class UnknownOutcomeError(AdminError, TimeoutError):
    """The operation began, and its end is not known. Look at the state before you try again."""


class UnreachableError(AdminError):
    """The address does not answer, or is not a node's."""


class TlsError(UnreachableError):
    """The certificate of the node does not fit its address, or the node rejects the client's own
    certificate.
    """


class CredentialsError(AdminError):
    """The credentials cannot be read from their file, or their function failed."""


class ForkedError(AdminError):
    """The object belongs to another process, from which this one was forked.
    Make a new one here.
    """


class WrongLoopError(AdminError):
    """The object belongs to another event loop. Make one in each `asyncio.run`."""


class NoNodeError(UnreachableError):
    """No node answers at any of the addresses. Nothing was sent."""


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
    """Returns the error for an answer's HTTP status.

    >>> refusal(404, "Tenant acme does not exist")
    NotFoundError('Tenant acme does not exist')
    """
    if status == _TIMED_OUT:
        return UnknownOutcomeError(reason)
    kind = _KINDS.get(status, InvalidRequestError if status < 500 else RefusedError)
    return kind(status, reason)
