"""The common part of all routes: names in paths, refusals that hold, and the mark of staleness."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from anabranch.broker.errors import OperationError
from anabranch.broker.http.bodies import BODIES, ORDINARY, LimitedRequest
from anabranch.broker.http.senders import host_of, principal_of
from anabranch.broker.security.guard import AccessGuard
from anabranch.core import names
from anabranch.core.names import Namespace
from anabranch.core.security.table import REST, resource_of

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
STALE_HEADER: Final = "X-Anabranch-Stale"


class DecidingRoute(APIRoute):
    """The class of every route of the node: it checks the asker's right before anything is done.

    It decides a refused request once more when this node has read all that the log held when the
    request came (`Proposals.decided`).
    """

    def get_route_handler(self) -> Handler:
        handle = _freed(super().get_route_handler())
        requests = {method: f"{method} {self.path_format}" for method in self.methods or ()}
        missing = requests.values() - REST.keys()
        if missing:
            raise KeyError(missing)  # a new route needs a row in the table

        async def decided(given: Request) -> Response:
            asked = requests[given.method]
            request = LimitedRequest(given.scope, given.receive, BODIES.get(asked, ORDINARY))
            guard: AccessGuard | None = request.app.state.guard
            if guard is None:
                return await _decided(request, lambda: handle(request))
            principal, rule = principal_of(request.scope), guard.rule_of(asked)
            on = resource_of(rule, request.path_params)

            async def ask() -> Response:
                guard.check(principal, rule.need, on)
                answer = await handle(request)
                if request.method == "GET":  # the answer may be newer than the loss of a right
                    guard.check(principal, rule.need, on)
                return answer

            try:
                guard.must_be_somebody(principal, rule.need)
                return await _decided(request, ask)
            except OperationError as error:
                guard.note(error, asked, host_of(request.scope))
                raise

        return decided


def _freed(handle: Handler) -> Handler:
    """Raises FastAPI's errors without their frames: FastAPI keeps them, which makes a circle."""

    async def freed(request: Request) -> Response:
        try:
            return await handle(request)
        except (RequestValidationError, HTTPException) as error:
            error.__cause__ = error.__context__ = None
            raise error.with_traceback(None)  # noqa: B904 - it is the same

    return freed


async def _decided(request: Request, ask: Callable[[], Awaitable[Response]]) -> Response:
    answer: Response = await request.app.state.operations.decided(ask)
    return answer


async def mark_if_stale(request: Request, response: Response) -> None:
    """Marks the answer while this node is cut off from the log: the state may have changed."""
    if request.app.state.operations.topics.is_stale:
        response.headers[STALE_HEADER] = "true"


async def _home(tenant: str, namespace: str) -> Namespace:
    return names.namespace(tenant, namespace)


async def _name(tenant: str, namespace: str, topic: str) -> str:
    return names.scalable_topic(tenant, namespace, topic)


Marked: Final = Depends(mark_if_stale)
# Names are checked before anything else is looked at.
Home = Annotated[Namespace, Depends(_home)]  # of `{tenant}/{namespace}`
TopicName = Annotated[str, Depends(_name)]  # of `{tenant}/{namespace}/{topic}`
