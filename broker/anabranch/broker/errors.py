"""The errors that a request can end in; `reason` is a sentence for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from anabranch.core.errors import AnabranchError

_LISTED_MAX: Final = 10


class OperationError(AnabranchError):
    """Root of the family; each kind has one HTTP status."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NotFoundError(OperationError):
    """The tenant, namespace, topic, segment or subscription does not exist (404)."""


class ForbiddenError(OperationError):
    """The principal that asks may not do this (403)."""


class TooManyRequestsError(OperationError):
    """The principal has asked too often (429); it may ask again in `wait_s` seconds."""

    def __init__(self, reason: str, wait_s: float) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class ConflictError(OperationError):
    """The state of the cluster forbids it (409)."""


class PreconditionError(OperationError):
    """The request itself cannot be meant (412)."""


class UnavailableError(OperationError):
    """It needs the log, and this node has no hold on it now (503); another try may succeed."""


class OverloadedError(UnavailableError):
    """Too much of it is asked for at once (503); another node, or another time, may do."""


class ElsewhereError(UnavailableError):
    """Another node does this (307); the URLs are its addresses, "" for a port that it does not
    have.
    """

    def __init__(self, reason: str, web_url: str, web_url_tls: str) -> None:
        super().__init__(reason)
        self.web_url = web_url
        self.web_url_tls = web_url_tls


class KafkaFailedError(OperationError):
    """Kafka refused a part of the request, so it was undone (500)."""


class DeadlineExceededError(OperationError):
    """It was begun and is not known to be done; it may yet happen (504)."""


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
