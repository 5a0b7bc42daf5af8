"""Errors as answers: a status, a reason for people, and never a stack trace."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse

from anabranch.broker.errors import (
    ElsewhereError,
    NotFoundError,
    OperationError,
)
from anabranch.broker.security.credentials import CredentialsError, RefusalReason
from anabranch.core.errors import AnabranchError

_RETRY_SECONDS: Final = "1"
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="anabranch"'}
_OF_CREDENTIALS: Final = {
    RefusalReason.BUSY: HTTPStatus.SERVICE_UNAVAILABLE,
    RefusalReason.PROXY: HTTPStatus.FORBIDDEN,
}
# Topics whose messages are with Pulsar's brokers, and what belongs to those.
_PULSARS_OWN: Final = tuple(
    f"/admin/{rest}/"
    for rest in ("v2/persistent", "v2/non-persistent", "v2/schemas", "v3/transactions")
)
_REASON_MAX: Final = 3_000  # characters: some repeat names that were sent


class MalformedError(AnabranchError):
    """A request that is not of its form.

    A value of a wrong type in a path names nothing; neither does an unknown word of a fixed few.
    """

    def __init__(self, reason: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(reason)
        self.status = status


class NoPathError(NotFoundError):
    """Nothing is served at that path."""

    def __init__(self, path: str) -> None:
        hint = "look into /docs or /openapi.json, which list all there are"
        if path.startswith(_PULSARS_OWN):
            hint = (
                "the topics of this cluster are scalable ones, on Kafka; see /admin/v2/scalable, "
                "and /openapi.json for all paths"
            )
        super().__init__(f"there is no path {path}; {hint}")


def refusal(status: int, reason: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """The answer to a request that is not served."""
    # A reason may repeat half a character that was sent, which JSON text cannot hold.
    told = reason[:_REASON_MAX].encode("utf-8", "replace").decode()
    return JSONResponse({"reason": told}, status_code=status, headers=headers)


def answer_to(request: Request, error: Exception) -> JSONResponse:
    """The answer to a request that an error of ours ends, a redirect included."""
    if not isinstance(error, ElsewhereError):
        return answer(error)
    # The redirect keeps TLS, or others could read it, or a port without TLS would refuse it.
    url = error.web_url_tls if request.scope["scheme"] == "https" else error.web_url
    if not url:
        return answer(error)
    query = f"?{request.url.query}" if request.url.query else ""
    path = request.scope["raw_path"].decode("ascii")
    location = f"{url}{path}{query}"
    return refusal(HTTPStatus.TEMPORARY_REDIRECT, str(error), {"Location": location})


def answer(error: Exception) -> JSONResponse:
    """The answer that an error of ours ends a request with."""
    if isinstance(error, CredentialsError):
        refused = _OF_CREDENTIALS.get(error.kind, HTTPStatus.UNAUTHORIZED)
        challenge = _CHALLENGE if refused is HTTPStatus.UNAUTHORIZED else None
        return refusal(refused, str(error), challenge)
    if isinstance(error, MalformedError):
        return refusal(error.status, str(error))
    status = HTTPStatus.PRECONDITION_FAILED  # for input that is not sound
    if isinstance(error, OperationError):
        status = error.status
    headers = {"Retry-After": _RETRY_SECONDS} if status == HTTPStatus.SERVICE_UNAVAILABLE else None
    return refusal(status, str(error), headers)


def method_refused(request: Request, allowed: list[str]) -> JSONResponse:
    """The answer to a method that is not served at the request's path."""
    words = ", ".join(allowed)
    reason = f"{request.method} is not served at {request.scope['path']}; use {words}"
    return refusal(HTTPStatus.METHOD_NOT_ALLOWED, reason, {"Allow": words})
