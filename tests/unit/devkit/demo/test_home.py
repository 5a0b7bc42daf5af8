"""The demo's tenant and namespace on a cluster of somebody else: made by those who may."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.admin import AsyncAdmin, ForbiddenError, NotFoundError
from anabranch.devkit.demo.home import HOME, TENANT, make_home
from support.answering import Answer, node


def asked_of(there: set[str], refusing: int = 0) -> tuple[list[str], Exception | None]:
    """The things that a cluster, where these are, is asked to make, and the error at the end."""
    made: list[str] = []

    def answer(verb: str, path: str) -> Answer:
        if path.endswith("/clusters"):
            return 200, {}, ["standalone"]
        name = path.split("/", 4)[4]
        if verb == "PUT":
            if refusing:
                return refusing, {}, {"reason": f"{name} is not for you"}
            made.append(name)
            return 204, {}, None
        if name not in there:
            return 404, {}, {"reason": f"{name} does not exist, or is not for you to see"}
        if "/" in name:
            bundles = {"boundaries": [], "numBundles": 1}
            return 200, {}, {"bundles": bundles, "replication_clusters": []}
        return 200, {}, {"adminRoles": [], "allowedClusters": []}

    async def make(url: str) -> None:
        async with AsyncAdmin(url) as admin:
            await make_home(admin)

    error = None
    with node(answer) as url:
        try:
            asyncio.run(make(url))
        except (ForbiddenError, NotFoundError) as found:
            error = found
    return made, error


def test_what_is_there_is_not_made() -> None:
    assert asked_of({TENANT, HOME}) == ([], None)


def test_the_tenant_s_administrator_makes_the_namespace_alone() -> None:
    assert asked_of({TENANT}) == ([HOME], None)


def test_a_superuser_makes_both() -> None:
    assert asked_of(set()) == ([TENANT, HOME], None)


@pytest.mark.parametrize("status", [403, 404])
def test_who_may_not_make_the_tenant_is_told_what_somebody_else_has_to_do(status: int) -> None:
    made, error = asked_of(set(), status)
    assert made == []
    assert "is not for you. The demo needs the tenant demo" in str(error)
    assert "anabranch tenants create demo --admin-role ROLE" in str(error)
