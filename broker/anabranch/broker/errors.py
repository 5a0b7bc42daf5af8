"""The errors that a request can end in; each kind has its answer by HTTP and by the wire."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import ClassVar, Final

from anabranch.core.errors import AnabranchError, InvalidInputError
from anabranch.core.topic_lists.errors import PermitAcquireError
from anabranch.core.topic_lists.selection import PatternError
from anabranch.wire.anabranch_pb2 import ServerError

_LISTED_MAX: Final = 10


class OperationError(AnabranchError):
    """Root of the family. `reason`: a sentence for people."""

    status: ClassVar = HTTPStatus.INTERNAL_SERVER_ERROR
    code: ClassVar = ServerError.UnknownError

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NotFoundError(OperationError):
    """The tenant, namespace, topic, segment or subscription does not exist."""

    status = HTTPStatus.NOT_FOUND
    code = ServerError.TopicNotFound


class ForbiddenError(OperationError):
    """The principal that asks may not do this."""

    status = HTTPStatus.FORBIDDEN
    code = ServerError.AuthorizationError


class ConflictError(OperationError):
    """The state of the cluster forbids it."""

    status = HTTPStatus.CONFLICT
    code = ServerError.NotAllowedError


class PreconditionError(OperationError):
    """The request itself cannot be meant."""

    status = HTTPStatus.PRECONDITION_FAILED
    code = ServerError.NotAllowedError


class UnavailableError(OperationError):
    """It needs the log, and this node has no hold on it now; another try may succeed."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = ServerError.ServiceNotReady


class OverloadedError(UnavailableError):
    """Too much of it is asked for at once; another node, or another time, may do."""

    code = ServerError.TooManyRequests


class ElsewhereError(UnavailableError):
    """Another node does this; the URLs are its addresses, "" for a port that it does not
    have.
    """

    def __init__(self, reason: str, web_url: str, web_url_tls: str) -> None:
        super().__init__(reason)
        self.web_url = web_url
        self.web_url_tls = web_url_tls


class KafkaFailedError(OperationError):
    """Kafka refused a part of the request, so it was undone."""

    code = ServerError.NotAllowedError  # for good, so clients must not try again


class DeadlineExceededError(OperationError):
    """It was begun and is not known to be done; it may yet happen, as behind any gateway."""

    status = HTTPStatus.GATEWAY_TIMEOUT
    code = ServerError.ServiceNotReady


class StartError(AnabranchError):
    """The node cannot start or go on; the message names the thing and the remedy."""


def no_namespace(name: str) -> NotFoundError:
    """Returns the error for a namespace that does not exist."""
    return NotFoundError(f"Namespace {name} does not exist")


def stopping() -> UnavailableError:
    """Sends a client of a node that has ended, or is about to, to another one."""
    return UnavailableError("this node is stopping; ask another")


def listed(things: Sequence[object]) -> str:
    """For a sentence: the first ten, none at length, and how many more there are."""
    more = f" and {len(things) - _LISTED_MAX} more" if len(things) > _LISTED_MAX else ""
    return ", ".join(f"{each!s:.255}" for each in things[:_LISTED_MAX]) + more


_CODES_OF_CORE: Final = (
    (PermitAcquireError, ServerError.TooManyRequests),
    (PatternError, ServerError.NotAllowedError),
    (InvalidInputError, ServerError.InvalidTopicName),
)


def code_of(error: AnabranchError) -> ServerError:
    """The protocol's number for an error of this node."""
    if isinstance(error, OperationError):
        return error.code
    codes = (code for kind, code in _CODES_OF_CORE if isinstance(error, kind))
    return next(codes, ServerError.UnknownError)
