"""Names of topics by HTTP: a JSON array, within the limiter's memory.

An answer holds memory of both kinds for its names until the client has taken them. An answer with a
limit has so many names, and of `PAGE_BYTES`, and a `Link` header names the next ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from anabranch.broker.errors import OverloadedError
from anabranch.broker.http.errors import answer
from anabranch.core.topic_lists.errors import PermitAcquireError
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter, LimitType

PAGE_BYTES: Final = 256 << 10
_AROUND_NAME: Final = 3  # its quotes and comma

Find = Callable[[], Awaitable[list[str]]]
"""Finds the list as it is now, in order."""


class NamesResponse(Response):
    """Names, which are encoded once there is memory for them."""

    def __init__(
        self, names: list[str], limiter: AsyncDualMemoryLimiter, headers: Mapping[str, str]
    ) -> None:
        super().__init__()
        self._names = names
        self._limiter = limiter
        self._told = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it, or, where there is no memory, a refusal."""
        size = _size(self._names)
        heap = self._limiter.held(size, LimitType.HEAP_MEMORY)
        direct = self._limiter.held(size, LimitType.DIRECT_MEMORY)
        try:
            async with heap, direct:
                body = msgspec.json.encode(self._names)
                told = Response(body, headers=dict(self._told), media_type="application/json")
                await told(scope, receive, send)
        except PermitAcquireError as error:
            await answer(OverloadedError(str(error)))(scope, receive, send)


async def names_response(
    find: Find,
    limiter: AsyncDualMemoryLimiter,
    request: Request,
    limit: int | None,
    after: str,
) -> NamesResponse:
    """All names, or those behind `after`, at most `limit`; then it says where there are more."""
    names = await find()
    at = bisect_right(names, after)
    if limit is None:
        return NamesResponse(names[at:], limiter, {})
    page = names[at : at + limit]
    while len(page) > 1 and _size(page) > PAGE_BYTES:
        del page[len(page) // 2 :]
    told = {}
    if page and page[-1] != names[-1]:
        given = [(k, v) for k, v in request.query_params.multi_items() if k != "after"]
        query = urlencode([*given, ("after", page[-1])])
        told["Link"] = f'<{request.url.path}?{query}>; rel="next"'
    return NamesResponse(page, limiter, told)


def _size(names: list[str]) -> int:
    return sum(map(len, names)) + _AROUND_NAME * len(names)
