"""The mark on answers of a node that cannot reach the log: what they say may have changed."""

from __future__ import annotations

from typing import Final

from fastapi import Depends, Request, Response

STALE_HEADER: Final = "X-Anabranch-Stale"


async def _mark(request: Request, response: Response) -> None:
    if request.app.state.operations.position().lease_remaining_ms == 0:
        response.headers[STALE_HEADER] = "true"


Marked: Final = Depends(_mark)
