"""Errors as answers: a status, a reason for people, and never a stack trace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Match

from anabranch.broker.errors import (
    ConflictError,
    DeadlineExceededError,
    ElsewhereError,
    ForbiddenError,
    KafkaFailedError,
    NotFoundError,
    PreconditionError,
    TooManyRequestsError,
    UnavailableError,
)
from anabranch.broker.http.docs.description import PROBLEM
from anabranch.broker.http.routing import mark_if_stale
from anabranch.broker.security.credentials import CredentialsError, RefusalReason
from anabranch.core.errors import AnabranchError, InvalidInputError

# A request that ran out of time may still be done later: 504, like any gateway that cannot know.
STATUS_OF: Final[dict[type[AnabranchError], int]] = {
    InvalidInputError: 412,
    NotFoundError: 404,
    ForbiddenError: 403,
    TooManyRequestsError: 429,
    ConflictError: 409,
    PreconditionError: 412,
    UnavailableError: 503,
    DeadlineExceededError: 504,
    KafkaFailedError: 500,
}
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
_NAMED_MAX: Final = 5  # of all that is wrong with a request
_REASON_MAX: Final = 3_000  # characters: some repeat names that were sent
_METHODS: Final = ("DELETE", "GET", "POST", "PUT")

Responses = dict[int | str, dict[str, Any]]


def problems(*statuses: int) -> Responses:
    """The refusals that a route documents."""
    # With the model FastAPI would make, and keep, a validator for each of hundreds.
    return {status: {"content": PROBLEM} for status in statuses}


def refusal(status: int, reason: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """The answer to a request that is not served."""
    # A reason may repeat half a character that was sent, which JSON text cannot hold.
    told = reason[:_REASON_MAX].encode("utf-8", "replace").decode()
    return JSONResponse({"reason": told}, status_code=status, headers=headers)


def answer_errors(app: FastAPI) -> None:
    """Makes every error of the application an answer of ours."""
    for kind in STATUS_OF:
        app.add_exception_handler(kind, _known)
    app.add_exception_handler(CredentialsError, _known)
    app.add_exception_handler(ElsewhereError, _elsewhere)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _routing)


async def _known(request: Request, error: Exception) -> JSONResponse:
    told = answer(error)
    await mark_if_stale(request, told)
    return told


async def _elsewhere(request: Request, error: Exception) -> JSONResponse:
    """The same request, to the node that can do it."""
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
    status = next(STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF)
    headers = {"Retry-After": _RETRY_SECONDS} if status == HTTPStatus.SERVICE_UNAVAILABLE else None
    if isinstance(error, TooManyRequestsError):
        headers = {"Retry-After": str(max(1, math.ceil(error.wait_s)))}
    return refusal(status, str(error), headers)


async def _malformed(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, RequestValidationError):
        return answer(error)
    if isinstance(error.body, bytes):  # FastAPI did not even try to read it as JSON
        return refusal(415, "the body must be JSON: send it with Content-Type: application/json")
    # A value of a wrong type in a path names nothing; neither does an unknown word of a fixed few.
    wrong = error.errors()
    nothing = any(found["loc"][0] == "path" or found["type"] == "enum" for found in wrong)
    said = "; ".join(map(_sentence, wrong[:_NAMED_MAX]))
    if len(wrong) > _NAMED_MAX:
        said += f"; and {len(wrong) - _NAMED_MAX} more are wrong"
    return refusal(HTTPStatus.NOT_FOUND if nothing else HTTPStatus.BAD_REQUEST, said)


_PLACES: Final = {"query": "query parameter", "path": "path parameter", "header": "header"}


def _sentence(found: dict[str, Any]) -> str:
    place: Sequence[str | int] = found["loc"]
    if found["type"] == "json_invalid":
        why = found.get("ctx", {}).get("error", "it ends too early")
        return f"the body is not JSON (at character {place[-1]}): {why}; send valid JSON"
    names = ".".join(f"{part!s:.100}" for part in place[1:])
    where = _PLACES.get(str(place[0]), "the body")
    what = f"{where} {names!r}" if names else where
    match found["type"]:
        case "extra_forbidden":
            return f"{what} is not known; leave it out"
        case "missing":
            return f"{what} is missing"
        case _:
            return f"{what} is {found.get('input')!r:.200}: {found['msg']}"


async def _routing(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        return answer(error)
    path, method = request.url.path, request.method
    if error.status_code == HTTPStatus.NOT_FOUND and path.startswith(_PULSARS_OWN):
        reason = (
            f"there is no path {path}: the topics of this cluster are scalable ones, on Kafka; see "
            "/admin/v2/scalable, and /openapi.json for all paths"
        )
    elif error.status_code == HTTPStatus.NOT_FOUND:
        reason = f"there is no path {path}; /docs and /openapi.json list all there are"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(_methods_at(request))
        reason = f"{method} is not served at {path}; use {allowed}"
        return refusal(error.status_code, reason, {"Allow": allowed})
    else:
        reason = str(error.detail)
    return refusal(error.status_code, reason)


def _methods_at(request: Request) -> list[str]:
    def served(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    return [method for method in _METHODS if served(method)]
