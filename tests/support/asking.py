"""Requests to a node's whole interface, by whoever they name."""

from __future__ import annotations

from typing import Final

import httpx
from starlette.types import Receive, Scope, Send

from anabranch.broker.http.app import create_app
from anabranch.broker.requester import asked_by
from anabranch.core.security.principal import Principal
from support.memory_cluster import WAIT_S, MemoryNode

TENANT: Final = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
ASKED: Final = (
    ("PUT", "/tenants/acme", TENANT),
    ("POST", "/tenants/acme", TENANT),
    ("PUT", "/namespaces/acme/shop", {"bundles": {"numBundles": 1}}),
    ("POST", "/namespaces/acme/shop/antiAffinity", "apart"),
    ("POST", "/namespaces/acme/shop/scalableTopicAutoScalePolicy", {"enabled": False}),
    ("POST", "/namespaces/acme/shop/permissions/eve", ["view"]),
    ("POST", "/clusters/standalone/failureDomains/east", {"brokers": ["b1:8080"]}),
    ("POST", "/brokers/configuration/lookupTimeoutMillis/4321", None),
    ("PUT", "/scalable/acme/shop/orders", None),
    ("PUT", "/scalable/acme/shop/orders/properties", {"team": "shop"}),
    ("POST", "/scalable/acme/shop/orders/permissions/eve", ["view"]),
    ("POST", "/scalable/acme/shop/orders/autoScalePolicy", {"maxSegments": 9}),
    ("POST", "/scalable/acme/shop/orders/split/0", None),
    ("POST", "/scalable/acme/shop/orders/merge/1/2", None),
    ("PUT", "/scalable/acme/shop/orders/unload", None),
    ("PUT", "/scalable/acme/shop/orders/subscriptions/billing", None),
    ("POST", "/scalable/acme/shop/orders/subscriptions/billing/skip-all", None),
    ("DELETE", "/scalable/acme/shop/orders/subscriptions/billing", None),
    ("PUT", "/namespaces/acme/shop/unload", None),
    ("DELETE", "/scalable/acme/shop/orders/permissions/eve", None),
    ("DELETE", "/scalable/acme/shop/orders", None),
    ("DELETE", "/namespaces/acme/shop", None),
    ("DELETE", "/tenants/acme", None),
)
"""One after the other: each needs what those before it have made."""


def asking(node: MemoryNode) -> httpx.AsyncClient:
    """A client of the node's whole interface, where the headers `who` and `by` say who asks, and by
    which proxy.
    """
    app = create_app(node.operations, node.settings, node.metrics)

    async def known(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        who, by = (headers.get(name, b"").decode() for name in (b"who", b"by"))
        with asked_by(Principal(who, by)):
            await app(scope, receive, send)

    transport = httpx.ASGITransport(app=known)
    return httpx.AsyncClient(transport=transport, base_url="http://node", timeout=WAIT_S)
