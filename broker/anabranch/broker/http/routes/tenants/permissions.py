"""Roles' rights on a namespace or a topic: `.../permissions`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path

from anabranch.broker.http.errors import problems
from anabranch.broker.http.models.wanted import Texts
from anabranch.broker.http.routing import DecidingRoute, Home, Marked, TopicName
from anabranch.broker.tenants.permissions import GrantedActions, RolePermissions
from anabranch.core.security.actions import Action

_Role = Annotated[str, Path(description="The role; slashes may stand as they are.")]
_Actions = Annotated[
    Texts,
    Body(description=f"All that the role may do there: some of {', '.join(Action)}."),
]
_ROLE = "/{role:text}"  # as `configuration` has settings' values


def router(permissions: RolePermissions) -> APIRouter:
    """The routes of both levels."""
    routes = APIRouter(route_class=DecidingRoute, prefix="/admin/v2", tags=["permissions"])
    _namespaces(routes, permissions)
    _topics(routes, permissions)
    return routes


def _namespaces(routes: APIRouter, permissions: RolePermissions) -> None:
    path = "/namespaces/{tenant}/{namespace}/permissions"
    refusals = problems(403, 404, 409, 412, 503, 504)

    @routes.get(path, dependencies=[Marked], responses=problems(404, 412))
    async def get_namespace_permissions(home: Home) -> GrantedActions:
        """Each role's actions on all topics of the namespace."""
        return permissions.of_namespace(home)

    @routes.post(path + _ROLE, status_code=204, responses=refusals)
    async def grant_on_namespace(home: Home, role: _Role, actions: _Actions) -> None:
        """Lets a role do this on all topics of the namespace, and nothing else."""
        await permissions.grant(home, role, actions)

    @routes.delete(path + _ROLE, status_code=204, responses=refusals)
    async def revoke_on_namespace(home: Home, role: _Role) -> None:
        """Takes away a role's grants on the namespace, but not those on its topics."""
        await permissions.revoke(home, role)


def _topics(routes: APIRouter, permissions: RolePermissions) -> None:
    path = "/scalable/{tenant}/{namespace}/{topic}/permissions"
    refusals = problems(403, 404, 409, 412, 503, 504)

    @routes.get(path, dependencies=[Marked], responses=problems(404, 412))
    async def get_topic_permissions(name: TopicName) -> GrantedActions:
        """Each role's actions on the topic, granted on it or on its namespace."""
        return permissions.of_topic(name)

    @routes.post(path + _ROLE, status_code=204, responses=refusals)
    async def grant_on_topic(name: TopicName, role: _Role, actions: _Actions) -> None:
        """Lets a role do this on the topic, besides its actions on the namespace."""
        await permissions.grant(name, role, actions)

    @routes.delete(path + _ROLE, status_code=204, responses=refusals)
    async def revoke_on_topic(name: TopicName, role: _Role) -> None:
        """Takes away a role's grants on the topic, but not those on its namespace."""
        await permissions.revoke(name, role)
