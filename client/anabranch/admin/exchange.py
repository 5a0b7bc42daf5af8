"""What a request and its answer mean; the clients add the I/O."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import httpx
import msgspec

from anabranch.admin.calls import Call
from anabranch.admin.errors import (
    AdminError,
    NoNodeError,
    UnknownOutcomeError,
    UnreachableError,
    refusal,
)
from anabranch.core.errors import InvalidInputError

T = TypeVar("T")

STALE_HEADER: Final = "X-Anabranch-Stale"
_JSON: Final = {"Content-Type": "application/json"}


def addresses(nodes: str) -> tuple[str, ...]:
    """The nodes named by `http://host:port[,...]`, whose scheme may be left out.

    >>> addresses("http://a:8080,b:8080/")
    ('http://a:8080', 'http://b:8080')

    Raises InvalidInputError.
    """
    found = []
    scheme = "http"
    for each in nodes.split(","):
        before, sep, host = each.strip().rpartition("://")
        scheme = before if sep else scheme
        if scheme not in ("http", "https") or not host.strip("/"):
            raise InvalidInputError(
                f"{nodes!r} is no node's address: write http://host:port, with its webServicePort"
            )
        found.append(f"{scheme}://{host.rstrip('/')}")
    return tuple(found)


def request(client: httpx.Client | httpx.AsyncClient, node: str, call: Call[Any]) -> httpx.Request:
    """The call as a request to that node."""
    body = None if call.body is None else msgspec.json.encode(call.body)
    return client.build_request(
        call.verb,
        node + call.path,
        params=call.query or None,
        content=body,
        headers=None if body is None else _JSON,
    )


def node_of(url: httpx.URL) -> str:
    """The node's part of an address."""
    return f"{url.scheme}://{url.netloc.decode()}"


def is_stale(response: httpx.Response) -> bool:
    """Whether the node could not reach the log when it answered."""
    return STALE_HEADER in response.headers


def result(call: Call[T], response: httpx.Response) -> T:
    """What was answered. Raises AdminError."""
    if not response.is_success:
        raise _refused(response)
    try:
        return call.decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreachableError(
            f"{node_of(response.url)} answers {call.verb} {call.path} with what no node of this "
            f"version answers ({error}); is it a node?"
        ) from error


def _refused(response: httpx.Response) -> AdminError:
    status = response.status_code
    try:
        said = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        return UnreachableError(
            f"{node_of(response.url)} answers {status} without JSON; is it a node?"
        )
    reason = said.get("reason", said) if isinstance(said, dict) else said
    return refusal(status, str(reason))


def is_unsent(error: Exception, node: str) -> bool:
    """Whether nothing reached the node that was asked first, so that another may be asked."""
    return isinstance(error, httpx.ConnectError | httpx.ConnectTimeout) and (
        _asked(error, node) == node
    )


def failure(error: Exception, node: str) -> AdminError:
    """What to say where no answer came; a request may have been sent on to a node that is gone."""
    asked = _asked(error, node)
    if asked != node:
        return UnreachableError(
            f"{asked} is in charge of this by the log, and does not answer ({error}); if it is "
            "gone another node takes over within seconds: try again"
        )
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout | httpx.PoolTimeout):
        return UnknownOutcomeError(
            f"{asked} did not answer in time; what was asked may yet be done, so look before you "
            "try again"
        )
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        return UnreachableError(
            f"what answers at {asked} does not speak HTTP, or ended just now ({error}): a node's "
            "address has its webServicePort (8080), not Kafka's port or the clients'"
        )
    return NoNodeError(f"no node answers at {asked} ({error})")


def _asked(error: Exception, node: str) -> str:
    try:
        return node_of(error.request.url)  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):
        return node
