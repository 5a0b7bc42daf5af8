"""Auto-scale policies: topics' and namespaces' overrides of the node's settings (PIP-483)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response
from fastapi.responses import JSONResponse

from anabranch.broker.http.errors import problems
from anabranch.broker.http.routing import DecidingRoute, Home, Marked, TopicName
from anabranch.broker.topics.policies import AutoScalePolicies
from anabranch.core.autoscale.policy import OVERRIDE_FIELDS, Override

_Override = Annotated[
    dict[str, Any],
    Body(description="Fields to override; all may be left out: " + ", ".join(OVERRIDE_FIELDS)),
]
_FOUND: dict[int | str, dict[str, Any]] = {
    200: {"description": "The overrides."},
    204: {"description": "There are none."},
}


def router(policies: AutoScalePolicies) -> APIRouter:
    """The routes of both levels."""
    routes = APIRouter(route_class=DecidingRoute, prefix="/admin/v2", tags=["auto-scale policies"])
    _topics(routes, policies)
    _namespaces(routes, policies)
    return routes


def _answer(override: Override) -> Response:
    return JSONResponse(dict(override)) if override else Response(status_code=204)


def _topics(routes: APIRouter, policies: AutoScalePolicies) -> None:
    path = "/scalable/{tenant}/{namespace}/{topic}/autoScalePolicy"
    refusals = problems(307, 404, 412, 503, 504)

    @routes.get(path, dependencies=[Marked], responses={**_FOUND, **refusals})
    async def get_auto_scale_policy(name: TopicName) -> Response:
        """The topic's overrides of its namespace's policy, as its controller has changed them."""
        return _answer(await policies.of_topic(name))

    @routes.post(path, status_code=204, responses=refusals)
    async def set_auto_scale_policy(name: TopicName, override: _Override) -> None:
        """Replaces the topic's overrides, as a whole."""
        await policies.set_topic(name, override)

    @routes.delete(path, status_code=204, responses=refusals)
    async def remove_auto_scale_policy(name: TopicName) -> None:
        """Lets the namespace's policy apply to the topic again."""
        await policies.set_topic(name, {})


def _namespaces(routes: APIRouter, policies: AutoScalePolicies) -> None:
    path = "/namespaces/{tenant}/{namespace}/scalableTopicAutoScalePolicy"
    refusals = problems(404, 412, 503, 504)

    @routes.get(path, dependencies=[Marked], responses={**_FOUND, **problems(404, 412)})
    async def get_namespace_auto_scale_policy(home: Home) -> Response:
        """The namespace's overrides of the nodes' settings."""
        return _answer(policies.of_namespace(home))

    @routes.post(path, status_code=204, responses=refusals)
    async def set_namespace_auto_scale_policy(home: Home, override: _Override) -> None:
        """Replaces the namespace's overrides, as a whole."""
        await policies.set_namespace(home, override)

    @routes.delete(path, status_code=204, responses=refusals)
    async def remove_namespace_auto_scale_policy(home: Home) -> None:
        """Lets the nodes' settings apply to the namespace again."""
        await policies.set_namespace(home, {})
