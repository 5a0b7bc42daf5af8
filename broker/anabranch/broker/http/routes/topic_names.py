"""Names of topics by HTTP: a JSON array, sent in pieces, within the limiter's memory.

A client that reads slowly holds the memory of one piece. What follows on a limited answer is named
by a `Link` header.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

import msgspec
from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from anabranch.broker.errors import OverloadedError
from anabranch.broker.http.errors import answer
from anabranch.core.topic_lists.errors import PermitAcquireError
from anabranch.core.topic_lists.sorted_names import SortedNames, names_of
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter, LimitType

_PIECE_BYTES: Final = 256 << 10  # of memory, of each kind, unless a piece is longer
_AROUND_BYTES: Final = 4 << 10  # of a piece's quotes


class NamesResponse(Response):
    """Names, each piece encoded when the one before it has been taken."""

    media_type = "application/json"

    def __init__(
        self,
        pieces: Sequence[bytes],
        limiter: AsyncDualMemoryLimiter,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(headers=dict(headers))
        del self.headers["content-length"]  # which an empty body has set
        self._pieces = pieces
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it, or, where there is no memory, a refusal."""
        size = max(_PIECE_BYTES, *(len(piece) + _AROUND_BYTES for piece in self._pieces), 0)
        heap = self._limiter.held(size, LimitType.HEAP_MEMORY)
        direct = self._limiter.held(size, LimitType.DIRECT_MEMORY)
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
        for piece in self._pieces:
            array = msgspec.json.encode(names_of(piece))
            await send(
                {"type": "http.response.body", "body": before + array[1:-1], "more_body": True}
            )
            before = b","
        end = b"]" if self._pieces else b"[]"
        await send({"type": "http.response.body", "body": end})


def names_response(
    names: SortedNames,
    limiter: AsyncDualMemoryLimiter,
    request: Request,
    limit: int | None,
    after: str,
    headers: Mapping[str, str],
) -> NamesResponse:
    """All names, or those behind `after`, at most `limit`; then it says where there are more."""
    if limit is None and not after:
        return NamesResponse(names.pieces, limiter, headers)
    pieces = names.pieces_after(after, len(names) if limit is None else limit)
    told = dict(headers)
    last = names_of(pieces[-1])[-1] if pieces else ""
    if last and names.pieces_after(last, 1):
        given = [(k, v) for k, v in request.query_params.multi_items() if k != "after"]
        query = urlencode([*given, ("after", last)])
        told["Link"] = f'<{request.url.path}?{query}>; rel="next"'
    return NamesResponse(pieces, limiter, told)
