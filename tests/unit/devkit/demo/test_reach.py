"""How the demo reaches a cluster of somebody else's: as whom, and what it makes there by whose."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from anabranch.access import Tls, Token
from anabranch.admin import Admin, ForbiddenError, NotFoundError
from anabranch.core.errors import InvalidInputError
from anabranch.devkit.demo.homes import make_homes
from anabranch.devkit.demo.reach import Reach, checked
from anabranch.devkit.demo.trace import NAMESPACES
from support.answering import Answer, node

TENANTS = {home.partition("/")[0] for home in NAMESPACES}


def asked_of(there: set[str], refusing: int = 0) -> tuple[list[str], Exception | None]:
    """What a cluster with these tenants and namespaces is asked to make, and what that ends in."""
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

    error = None
    with node(answer) as url, Admin(url) as admin:
        try:
            make_homes(admin)
        except (ForbiddenError, NotFoundError) as found:
            error = found
    return made, error


def test_what_is_there_is_not_made() -> None:
    assert asked_of({*TENANTS, *NAMESPACES}) == ([], None)


def test_a_tenant_s_administrator_makes_namespaces_alone() -> None:
    assert asked_of(TENANTS) == (list(NAMESPACES), None)


def test_a_superuser_makes_all() -> None:
    made, _ = asked_of(set())
    assert set(made) == {*TENANTS, *NAMESPACES}


@pytest.mark.parametrize("status", [403, 404])
def test_who_may_not_make_a_tenant_is_told_what_somebody_else_has_to_do(status: int) -> None:
    made, error = asked_of(set(), status)
    assert made == []
    assert "is not for you. The demo needs tenant planning" in str(error)
    assert "anabranch tenants create TENANT --admin-role ROLE" in str(error)


def test_who_asks_is_shown_to_the_node_that_a_request_is_sent_on_to() -> None:
    reach, shown = Reach(credentials=Token("abc.def.ghi")), list[str]()

    async def test(first: str) -> None:
        async def note(request: httpx.Request) -> None:
            shown.append(request.headers["Authorization"])

        async with reach.http((first,), follow_redirects=True) as http:
            http.event_hooks["request"].append(note)
            assert checked(await http.get(f"{first}/x")).json() == "here"

    def here(_verb: str, _path: str) -> Answer:
        return 200, {}, "here"

    with node(here) as second, node(lambda _v, path: (307, {"Location": second + path}, 1)) as one:
        asyncio.run(test(one))
    assert shown == ["Bearer abc.def.ghi"] * 2


def test_what_a_node_refuses_is_told_in_its_words() -> None:
    with pytest.raises(ForbiddenError, match="ada may not"):
        checked(httpx.Response(403, json={"reason": "ada may not"}))
    with pytest.raises(NotFoundError, match="nothing here"):
        checked(httpx.Response(404, text="nothing here"))


def test_nodes_without_tls_are_not_asked_where_it_is_said_whom_to_trust(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="without TLS"):
        Reach(tls=Tls(ca_file=tmp_path / "ca.pem")).http(("http://node-1:8080",))
