"""`anabranch tenants` and `anabranch namespaces` against a node's real HTTP interface."""

from __future__ import annotations

import json

from support.commands import Done, ran
from support.http import HttpNode, on_nodes


def outputs(found: list[Done]) -> list[str]:
    assert [each for each in found if each.exit_code] == []
    return [each.output for each in found]


@on_nodes()
async def test_a_tenant_is_created_shown_changed_and_deleted(node: HttpNode) -> None:
    *done, again, deleted, gone = await ran(
        str(node.http.base_url),
        "tenants create acme --admin-role ada",
        "tenants list",
        "tenants show acme",
        "tenants update acme --admin-role bob",
        "tenants show acme --json",
        "tenants create acme",
        "tenants delete acme",
        "tenants show acme",
    )
    *words, shown = outputs(done)
    assert words == [
        "tenant acme is created\n",
        "acme\npublic\n",
        "admin roles: ada\nallowed clusters: standalone\n",
        "tenant acme is updated\n",
    ]
    assert json.loads(shown) == {"adminRoles": ["bob"], "allowedClusters": ["standalone"]}
    assert (again.exit_code, "anabranch: 409: " in again.errors) == (1, True)
    assert deleted.output == "tenant acme is deleted\n"
    assert (gone.exit_code, "404: Tenant acme does not exist" in gone.errors) == (1, True)


@on_nodes()
async def test_a_namespace_is_created_divided_unloaded_and_deleted(node: HttpNode) -> None:
    found = await ran(
        str(node.http.base_url),
        "namespaces create public/shop --bundles 2",
        "namespaces list",
        "namespaces show public/shop",
        "bundles split public/shop 0x80000000_0xffffffff --at 3221225472",
        "bundles unload public/shop 0xc0000000_0xffffffff",
        "namespaces unload public/shop",
        "namespaces delete public/shop",
        "namespaces show public/shop",
    )
    gone = found.pop()
    assert outputs(found) == [
        "namespace public/shop is created\n",
        "public/default\npublic/shop\n",
        "bundles: 2, 0x00000000, 0x80000000, 0xffffffff\nclusters: standalone\n",
        (
            "bundle 0x80000000_0xffffffff is split into 2 parts: 0x80000000_0xc0000000, "
            "0xc0000000_0xffffffff\n"
        ),
        "bundle 0xc0000000_0xffffffff of public/shop is unloaded\n",
        "all bundles of public/shop are unloaded\n",
        "namespace public/shop is deleted\n",
    ]
    said = "anabranch: 404: Namespace public/shop does not exist\n"
    assert (gone.exit_code, gone.errors) == (1, said)
