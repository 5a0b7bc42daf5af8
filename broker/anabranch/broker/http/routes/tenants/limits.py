"""How many things a namespace lets a tenant have: `/admin/v2/namespaces/.../max...`."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Body

from anabranch.broker.http.errors import problems
from anabranch.broker.http.routing import DecidingRoute, Home, Marked
from anabranch.broker.tenants.limits import LIMIT_OF, TenantLimits
from anabranch.core.tenants.limits import TenantLimit

_NONE: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The number; `null` where the cluster's setting counts."}
}


def router(limits: TenantLimits) -> APIRouter:
    """The routes of each limit that a namespace can have itself."""
    routes = APIRouter(
        route_class=DecidingRoute, prefix="/admin/v2/namespaces", tags=["namespaces"]
    )
    for setting, what in LIMIT_OF.items():
        _add(routes, limits, setting, what)
    return routes


def _add(routes: APIRouter, limits: TenantLimits, setting: str, what: TenantLimit) -> None:
    place, name = f"/{{tenant}}/{{namespace}}/{setting}", what.name.lower()

    @routes.get(
        place,
        name=f"get_{name}",
        dependencies=[Marked],
        responses={**_NONE, **problems(404, 412)},
    )
    async def get_limit(home: Home) -> int | None:
        """What the namespace says itself."""
        return limits.own(home, what)

    @routes.post(
        place, name=f"set_{name}", status_code=204, responses=problems(400, 404, 412, 503, 504)
    )
    async def set_limit(home: Home, limit: Annotated[int, Body()]) -> None:
        """Lets the namespace say so itself, whatever the cluster's setting is; 0: any number.

        What is there already stays.
        """
        await limits.set(home, what, limit)

    @routes.delete(
        place, name=f"remove_{name}", status_code=204, responses=problems(404, 412, 503, 504)
    )
    async def remove_limit(home: Home) -> None:
        """Lets the cluster's setting count again."""
        await limits.set(home, what, None)
