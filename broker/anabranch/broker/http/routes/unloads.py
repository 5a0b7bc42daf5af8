"""Moves of a topic's bundle: `/admin/v2/{domain}/{tenant}/{namespace}/{topic}/unload`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from anabranch.broker.http.errors import problems
from anabranch.broker.http.models.cluster import Authoritative
from anabranch.broker.http.routes.bundles import broker_of
from anabranch.broker.http.routing import DecidingRoute, Home
from anabranch.broker.operations import Operations
from anabranch.broker.requester import requester
from anabranch.broker.security.guard import AccessGuard
from anabranch.core import names
from anabranch.core.security.resources import namespace_resource
from anabranch.core.security.table import PLACING_BUNDLES


class TopicDomain(StrEnum):
    """The first part of a topic's path."""

    PERSISTENT = "persistent"
    NON_PERSISTENT = "non-persistent"
    SCALABLE = "scalable"


def router(operations: Operations, guard: AccessGuard | None) -> APIRouter:
    """The one route. `guard`: checks the right to name a bundle's next owner; None: there is no
    check.
    """
    routes = APIRouter(route_class=DecidingRoute, prefix="/admin/v2", tags=["bundles"])

    @routes.put(
        "/{domain}/{tenant}/{namespace}/{topic}/unload",
        status_code=204,
        responses=problems(403, 404, 409, 412, 503, 504),
    )
    async def unload_topic(
        domain: TopicDomain,
        home: Home,
        topic: Annotated[str, Path(description="The topic's local name.")],
        destinationBroker: Annotated[
            str,
            Query(description="Broker id, host:port, that shall own it; if left, the next asked."),
        ] = "",
        authoritative: Authoritative = False,
    ) -> Response:
        """Takes the topic's bundle, with all of its topics, from its owner, or transfers it.

        To name the broker needs what moving a bundle needs, a superuser.
        """
        scheme = names.SCALABLE_DOMAIN if domain is TopicDomain.SCALABLE else domain.value
        bundle = operations.bundle_of(names.topic(home, topic, scheme), home)
        destination = broker_of(destinationBroker)
        if destination and guard is not None:
            guard.check(
                requester(), PLACING_BUNDLES, namespace_resource(home), "say where a bundle goes"
            )
        await operations.unload(bundle, destination)
        return Response(status_code=204)

    return routes
