"""ASGI middleware around every route: bounded bodies, and no failure without an answer."""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch.broker.http.errors import refusal
from anabranch.broker.logging import get_logger
from anabranch.broker.settings.ports import HttpLimits

_BODIES_BYTES_MAX: Final = 1 << 26  # of all requests under way

_log = get_logger()


class GuardMiddleware:
    """Refuses bodies that are too large, and answers 500 with an error id that is in the log."""

    def __init__(self, app: ASGIApp, limits: HttpLimits) -> None:
        self._app = app
        self._limits = limits
        self._bodies_bytes = 0  # of all requests under way

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = is_whole = False
        received = 0
        until = asyncio.get_running_loop().time() + self._limits.request_s_max

        async def receive_bounded() -> Message:
            nonlocal is_whole, received
            try:
                async with asyncio.timeout_at(None if is_whole else until):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(
                    408,
                    f"the request was not there within {self._limits.request_s_max:g} s",
                    {"Connection": "close"},
                ) from None
            is_whole = not message.get("more_body", False)
            count = len(message.get("body", b""))
            received += count
            self._bodies_bytes += count
            self._check(received)
            return message

        async def send_watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive_bounded, send_watched)
        except HTTPException as error:  # of its own, where no route has made an answer of it
            if started:
                raise
            told = refusal(error.status_code, error.detail, dict(error.headers or {}))
            await told(scope, receive, send)
        except Exception as error:
            answer = failed(scope, error)
            if started:
                raise
            await answer(scope, receive, send)
        finally:
            self._bodies_bytes -= received

    def _check(self, received: int) -> None:
        most = self._limits.body_bytes_max
        if received > most:
            raise HTTPException(413, f"the body has more than {most} bytes")
        together = max(_BODIES_BYTES_MAX, most)
        if self._bodies_bytes > together:
            raise HTTPException(
                503, f"the bodies of requests have {together} bytes already; try again"
            )


def failed(scope: Scope, error: Exception) -> JSONResponse:
    """The answer to a request in which something failed that should not; the log has its cause."""
    error_id = secrets.token_hex(6)
    _log.error(
        "http.request_failed",
        error_id=error_id,
        method=scope["method"],
        path=scope["path"],
        exc_info=error,
    )
    return refusal(
        500,
        f"the node failed to serve this request; its log has the cause under error id {error_id}",
    )
