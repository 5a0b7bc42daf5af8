"""Bounds the body of a request by its route, so that no body takes the loop for long.

`httpMaxRequestSize` bounds the bytes that are read of any request. An operation needs far less. The
server looks for faults in a body value by value, and each value takes microseconds.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, NamedTuple

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope

from anabranch.core.entities.placement_policy import BROKERS_MAX, PATTERNS_MAX
from anabranch.core.ring import CUTS_MAX


class BodyLimit(NamedTuple):
    """The bounds of a body. `values_max`: the sum of fields' values and lists' elements."""

    bytes_max: int
    values_max: int


ORDINARY: Final = BodyLimit(16 << 10, 100)
_TENANT: Final = BodyLimit(512 << 10, 2_100)  # its administrators and clusters, 1,000 each
_PROPERTIES: Final = BodyLimit(512 << 10, 500)  # 64 KiB of text, which JSON may write longer
# Most of it is a text for each bundle; a larger number of bundles needs none.
_NAMESPACE: Final = BodyLimit(64 << 10, 2_000)
BODIES: Final[Mapping[str, BodyLimit]] = {
    "PUT /admin/v2/tenants/{tenant}": _TENANT,
    "POST /admin/v2/tenants/{tenant}": _TENANT,
    "PUT /admin/v2/namespaces/{tenant}/{namespace}": _NAMESPACE,
    "PUT /admin/v2/namespaces/{tenant}/{namespace}/{bundle}/split": BodyLimit(
        16 << 10, CUTS_MAX + 1
    ),
    "PUT /admin/v2/scalable/{tenant}/{namespace}/{topic}": _PROPERTIES,
    "PUT /admin/v2/scalable/{tenant}/{namespace}/{topic}/properties": _PROPERTIES,
    "POST /admin/v2/clusters/{cluster}/namespaceIsolationPolicies/{policy}": BodyLimit(
        256 << 10, 3 * PATTERNS_MAX + 10
    ),
    "POST /admin/v2/clusters/{cluster}/failureDomains/{domain}": BodyLimit(
        1 << 20, BROKERS_MAX + 2
    ),
}
"""Bounds by the route's name in the table of rights; all other routes have `ORDINARY` bodies."""


class LimitedRequest(Request):
    """A request whose body is refused, with 413, where it is larger than its route needs."""

    def __init__(self, scope: Scope, receive: Receive, limit: BodyLimit) -> None:
        super().__init__(scope, receive)
        self._limit = limit

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Its body, piece by piece."""
        received, most = 0, self._limit.bytes_max
        async for piece in super().stream():
            received += len(piece)
            if received > most:
                raise HTTPException(
                    413, f"the body has more than {most} bytes, which is all that this needs"
                )
            yield piece

    async def json(self) -> Any:
        """Its body, decoded."""
        said, most = await super().json(), self._limit.values_max
        if _has_more(said, most):
            raise HTTPException(
                413, f"the body has more than {most} values, which is all that this takes at once"
            )
        return said


def _has_more(said: object, most: int) -> bool:
    """Returns whether the decoded body has more values than that; it looks at no more of them."""
    found, open_ = 1, [said]
    while open_ and found <= most:
        each = open_.pop()
        if isinstance(each, list | dict):
            found += len(each)
            open_ += each.values() if isinstance(each, dict) else each
    return found > most
