"""What all routes share: names in their paths, refusals that hold, and the mark of staleness."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute

from anabranch.core import names
from anabranch.core.names import Namespace

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
STALE_HEADER: Final = "X-Anabranch-Stale"


class DecidingRoute(APIRoute):
    """Every route of the node is one: a request that is refused is decided once more when this node
    has read all that the log held when it came (`Proposals.decided`).
    """

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def decided(request: Request) -> Response:
            answer: Response = await request.app.state.operations.decided(lambda: handle(request))
            return answer

        return decided


async def mark_if_stale(request: Request, response: Response) -> None:
    """Marks the answer while this node is cut off from the log: what it says may have changed."""
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
