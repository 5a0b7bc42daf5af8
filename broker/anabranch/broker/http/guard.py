"""ASGI middleware around every route: bounded bodies, and no failure without an answer."""

from __future__ import annotations

import secrets
from collections.abc import MutableMapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch.broker.http.errors import refusal
from anabranch.broker.log import get_logger

BODY_BYTES_MAX: Final = 1 << 20

_log = get_logger()


class Guard:
    """Refuses bodies that are too large, and answers 500 with an error id that is in the log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False
        received = 0

        async def receive_bounded() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > BODY_BYTES_MAX:
                raise HTTPException(
                    413, f"the body has more than {BODY_BYTES_MAX} bytes; nothing here needs that"
                )
            return message

        async def send_watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive_bounded, send_watched)
        except Exception as error:
            error_id = _report(scope, error)
            if started:
                raise
            answer = refusal(
                500,
                "the node failed to serve this request; its log has the cause under error id "
                f"{error_id}",
            )
            await answer(scope, receive, send)


def _report(scope: MutableMapping[str, Any], error: Exception) -> str:
    error_id = secrets.token_hex(6)
    _log.error(
        "http.request_failed",
        error_id=error_id,
        method=scope["method"],
        path=scope["path"],
        exc_info=error,
    )
    return error_id
