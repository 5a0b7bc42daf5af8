"""A namespace's limits on a tenant's things: `/admin/v2/namespaces/.../max...`."""

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
        """The namespace's own limit."""
        return limits.own(home, what)

    @routes.post(
        place, name=f"set_{name}", status_code=204, responses=problems(400, 404, 412, 503, 504)
    )
    async def set_limit(home: Home, limit: Annotated[int, Body()]) -> None:
        """Sets the namespace's own limit, which goes before the cluster's setting; 0: any number.

        Things that are there already stay.
        """
        await limits.set(home, what, limit)

    @routes.delete(
        place, name=f"remove_{name}", status_code=204, responses=problems(404, 412, 503, 504)
    )
    async def remove_limit(home: Home) -> None:
        """Lets the cluster's setting count again."""
        await limits.set(home, what, None)
