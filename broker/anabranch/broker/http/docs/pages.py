"""`/docs` and `/openapi.json`, which anybody may ask for: made once, and bytes from then on.

So a stranger who asks again and again costs no more than a probe of the node's health.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from fastapi import FastAPI, Response

from anabranch.broker.http.docs.page import CONTENT_POLICY, docs_page

_KEPT: Final = {"Cache-Control": "max-age=60"}  # another release may serve here then


class DocumentationPages:
    """The pages of one application, once all of its routes are there."""

    def __init__(self, api: FastAPI) -> None:
        self._api = api
        self._making = asyncio.Lock()
        self._both: tuple[bytes, bytes] | None = None  # description and page

    async def page(self) -> Response:
        """The page for people."""
        _, page = await self._made()
        headers = {**_KEPT, "Content-Security-Policy": CONTENT_POLICY}
        return Response(page, media_type="text/html", headers=headers)

    async def description(self) -> Response:
        """The description for programs."""
        description, _ = await self._made()
        return Response(description, media_type="application/json", headers=_KEPT)

    async def _made(self) -> tuple[bytes, bytes]:
        async with self._making:  # it takes long, so the loop goes on, and nobody makes it twice
            if self._both is None:
                self._both = await asyncio.to_thread(self._make)
        return self._both

    def _make(self) -> tuple[bytes, bytes]:
        found = self._api.openapi()
        self._api.openapi_schema = None  # it is of no use from now on
        return msgspec.json.encode(found), docs_page(found).encode()
