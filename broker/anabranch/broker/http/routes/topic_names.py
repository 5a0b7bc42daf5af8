"""Names of topics by HTTP: a JSON array, sent in pieces, within the limiter's memory.

A client that reads slowly holds the memory of one piece, and nothing of the list. Each piece begins
behind the last name of the piece before, in the list as it is by then. So a topic that is there all
the while is told once, and a topic that comes or goes meanwhile once or not at all. An answer with
a limit is one piece, and a `Link` header names the next one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from anabranch.broker.errors import OverloadedError
from anabranch.broker.http.errors import answer
from anabranch.core.topic_lists.errors import PermitAcquireError
from anabranch.core.topic_lists.sorted_names import SortedNames, names_of
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter, LimitType

PIECE_BYTES: Final = 256 << 10  # of memory, of each kind, and of a piece at most
_AROUND_NAME: Final = 3  # its quotes and comma
_NAMES_AT_ONCE: Final = 1_024  # of an answer without a limit

Find = Callable[[], Awaitable[SortedNames]]
"""Finds the list as it is now."""


class NamesResponse(Response):
    """Names, each piece looked for and encoded when the one before it has been taken."""

    media_type = "application/json"

    def __init__(
        self,
        pieces: AsyncIterator[list[str]],
        limiter: AsyncDualMemoryLimiter,
        headers: Mapping[str, str],
        piece_bytes: int,
    ) -> None:
        super().__init__(headers=dict(headers))
        del self.headers["content-length"]  # the empty body has set it
        self._pieces = pieces
        self._limiter = limiter
        self._piece_bytes = piece_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it, or, where there is no memory, a refusal."""
        heap = self._limiter.held(self._piece_bytes, LimitType.HEAP_MEMORY)
        direct = self._limiter.held(self._piece_bytes, LimitType.DIRECT_MEMORY)
        try:
            async with heap, direct:
                await self._send(send)
        except PermitAcquireError as error:
            await answer(OverloadedError(str(error)))(scope, receive, send)

    async def _send(self, send: Send) -> None:
        start = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        await send(start)
        before = b"["
        async for names in self._pieces:
            body = before + msgspec.json.encode(names)[1:-1]
            await send({"type": "http.response.body", "body": body, "more_body": True})
            before = b","
        end = b"[]" if before == b"[" else b"]"
        await send({"type": "http.response.body", "body": end})


async def names_response(
    find: Find,
    limiter: AsyncDualMemoryLimiter,
    request: Request,
    limit: int | None,
    after: str,
    piece_bytes: int = PIECE_BYTES,
) -> NamesResponse:
    """All names, or those behind `after`, at most `limit`; then it says where there are more."""
    if limit is None:
        return NamesResponse(_walk(find, after, piece_bytes), limiter, {}, piece_bytes)
    names = await find()
    page = _first(names, after, limit, piece_bytes)
    told = {}
    if page and names.pieces_after(page[-1], 1):
        given = [(k, v) for k, v in request.query_params.multi_items() if k != "after"]
        query = urlencode([*given, ("after", page[-1])])
        told["Link"] = f'<{request.url.path}?{query}>; rel="next"'
    return NamesResponse(_one(page), limiter, told, piece_bytes)


async def _walk(find: Find, after: str, piece_bytes: int) -> AsyncIterator[list[str]]:
    """The names behind this one, some at a time, of the list as it is by then.

    Between two pieces it keeps the last name, and no list.
    """
    while names := _first(await find(), after, _NAMES_AT_ONCE, piece_bytes):
        after = names[-1]
        yield names


async def _one(names: list[str]) -> AsyncIterator[list[str]]:
    if names:
        yield names


def _first(names: SortedNames, after: str, count: int, piece_bytes: int) -> list[str]:
    """The first `count` names behind this one, or as many of them as there is memory for."""
    pieces = names.pieces_after(after, count)
    while count > 1 and sum(map(len, pieces)) + count * _AROUND_NAME > piece_bytes:
        count //= 2
        pieces = names.pieces_after(after, count)
    return [name for piece in pieces for name in names_of(piece)]
