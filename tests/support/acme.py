"""A tenant of a node that asks who comes, and what is granted to whom there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from support.secured import ROOT, SecuredNode, bearer, secured_node, tokens_alone

ADMIN: Final = "/admin/v2"
TOPIC: Final = f"{ADMIN}/scalable/acme/shop/orders"
# What was granted to each role: on acme/shop, on its topic, or as acme's administrator.
ON_NAMESPACE: Final = {"consumer": ["consume"], "viewer": ["view"], "scaler": ["scale"]}
ON_TOPIC: Final = {"producer": ["produce"]}
BOSS: Final = "boss"
STRANGER: Final = "stranger"


def settings(folder: Path) -> dict[str, object]:
    return tokens_alone(
        folder,
        authorizationEnabled=True,
        superuserRoles=ROOT,
        authenticateMetricsEndpoint=True,
    )


@asynccontextmanager
async def furnished_node(folder: Path) -> AsyncIterator[SecuredNode]:
    """A tenant with an administrator, a namespace, a topic, and what is granted on them."""
    async with secured_node(**settings(folder)) as node:
        await _furnish(node)
        yield node


async def _furnish(node: SecuredNode) -> None:
    root = bearer(ROOT)
    tenant = {"adminRoles": [BOSS], "allowedClusters": ["standalone"]}
    assert (await node.ask("PUT", f"{ADMIN}/tenants/acme", root, tenant)).status_code == 204
    boss = bearer(BOSS)
    assert (await node.ask("PUT", f"{ADMIN}/namespaces/acme/shop", boss)).status_code == 204
    assert (await node.ask("PUT", TOPIC, boss)).status_code == 204
    for home, granted in ((f"{ADMIN}/namespaces/acme/shop", ON_NAMESPACE), (TOPIC, ON_TOPIC)):
        for role, actions in granted.items():
            path = f"{home}/permissions/{role}"
            assert (await node.ask("POST", path, boss, actions)).status_code == 204
