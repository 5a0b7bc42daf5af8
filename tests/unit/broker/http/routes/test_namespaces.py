"""Tenants, namespaces, clusters."""

import json
from pathlib import Path
from typing import Any, Final

from support.http import HttpNode, on_nodes
from support.scalable import refused

TENANT = {"adminRoles": ["admin"], "allowedClusters": ["standalone"]}
ADMIN = "/admin/v2"
# What the Java admin client of these versions of Pulsar sends to create namespaces, recorded.
RECORDED: Final = json.loads(
    (Path(__file__).parents[4] / "data" / "pulsar_namespaces.json").read_text()
)


async def put(node: HttpNode, path: str, body: Any, status: int) -> str:
    answer = await node.http.put(ADMIN + path, json=body)
    assert answer.status_code == status, answer.text
    return str(answer.json()["reason"]) if answer.content else ""


async def get(node: HttpNode, path: str) -> Any:
    answer = await node.http.get(ADMIN + path)
    assert answer.status_code == 200, answer.text
    return answer.json()


@on_nodes()
async def test_the_tenant_and_the_namespace_of_every_cluster_are_there(node: HttpNode) -> None:
    assert await get(node, "/tenants") == ["public"]
    assert await get(node, "/clusters") == ["standalone"]
    assert await get(node, "/namespaces/public") == ["public/default"]
    policies = await get(node, "/namespaces/public/default")
    assert policies["bundles"]["numBundles"] == 4
    assert policies["replication_clusters"] == ["standalone"]


@on_nodes()
async def test_what_a_tenant_cannot_be_is_refused(node: HttpNode) -> None:
    assert "already exists" in await put(node, "/tenants/public", TENANT, 409)
    assert "can not be empty" in await put(node, "/tenants/a", {}, 412)
    assert "elsewhere" in await put(node, "/tenants/a", {"allowedClusters": ["elsewhere"]}, 412)
    assert "unknown field `roles`" in await put(node, "/tenants/a", {"roles": []}, 400)
    assert "adminRoles" in await put(node, "/tenants/a", {"adminRoles": "x"}, 400)
    nobody = {**TENANT, "adminRoles": ["bob", " ada"]}
    assert "role ' ada' is not valid" in await put(node, "/tenants/a", nobody, 412)
    refused(await node.http.post(f"{ADMIN}/tenants/public", json=nobody), 412, "role ' ada'")
    assert "tenant name 'a:b'" in await put(node, "/tenants/a:b", TENANT, 412)
    refused(await node.http.post(f"{ADMIN}/tenants/a", json=TENANT), 404, "a does not exist")
    assert (await node.http.delete(f"{ADMIN}/tenants/a")).status_code == 404
    refused(await node.http.delete(f"{ADMIN}/tenants/public"), 409, "namespaces")


@on_nodes()
async def test_what_pulsars_java_client_sends_makes_a_namespace(node: HttpNode) -> None:
    sent = (
        *(("5.0.0-M1", "bundles", 8), ("5.0.0-M1", "boundaries", 4), ("5.0.0-M1", "clusters", 4)),
        *(("5.0.0-M1", "policies", 4), ("4.0.4", "bundles", 8), ("4.0.4", "policies", 4)),
    )
    for number, (version, call, count) in enumerate(sent):
        home = f"/namespaces/public/n{number}"
        await put(node, home, RECORDED[version][call], 204)
        assert (await get(node, f"{home}/bundles"))["numBundles"] == count
    halves = ["0x00000000", "0x80000000", "0xffffffff"]
    await put(node, "/namespaces/public/halves", {"bundles": {"boundaries": halves}}, 204)
    assert (await get(node, "/namespaces/public/halves/bundles"))["boundaries"] == halves


@on_nodes()
async def test_each_policy_that_pulsars_java_client_sets_is_refused(node: HttpNode) -> None:
    """Those alone: the body holds all the others, too, at what they are when nobody sets them."""
    plain = RECORDED["5.0.0-M1"]["policies"]
    known = {"replication_clusters", "allowed_clusters"}
    for name, unset in plain.items():
        if name in known:
            continue
        body = {**plain, name: {"other": 7} if isinstance(unset, dict) else "other"}
        said = await put(node, "/namespaces/public/n", body, 412)
        assert said == f"policies {name} are not supported by this version; leave them out"
    said = await put(node, "/namespaces/public/n", RECORDED["5.0.0-M1"]["unsupported"], 412)
    assert said.startswith("policies deduplicationEnabled, message_ttl_in_seconds are not")


@on_nodes()
async def test_a_namespaces_policies_carry_its_auto_scale_policy(node: HttpNode) -> None:
    path = "/namespaces/public/n"
    assert "scalableTopicAutoScalePolicy" not in await get(node, "/namespaces/public/default")
    given = {"enabled": False, "mergeWindow": "10m", "maxSegments": None}
    wrong = {"maxSegments": 2, "minSegments": 3}
    for bad, said in (({"windows": 1}, "'windows' is no field"), (wrong, "maxSegments must")):
        body = {"numBundles": 2, "scalableTopicAutoScalePolicy": bad}
        assert said in await put(node, path, body, 412)
    assert (await node.http.get(ADMIN + path)).status_code == 404  # nothing is made
    await put(node, path, {"numBundles": 2, "scalableTopicAutoScalePolicy": given}, 204)
    override = {"enabled": False, "mergeWindowSeconds": 600}
    body = await get(node, path)
    assert (body["scalableTopicAutoScalePolicy"], body["bundles"]["numBundles"]) == (override, 2)
    assert await get(node, f"{path}/scalableTopicAutoScalePolicy") == override
    policy = f"{ADMIN}{path}/scalableTopicAutoScalePolicy"
    assert (await node.http.delete(policy)).status_code == 204
    assert "scalableTopicAutoScalePolicy" not in await get(node, path)


BAD_POLICIES: list[tuple[Any, int, str]] = [
    ({"numBundles": 0}, 412, "Invalid number of bundles 0"),
    ({"numBundles": 65_537}, 412, "Invalid number of bundles 65537"),
    ({"numBundles": "4"}, 400, "numBundles"),
    ({"numBundles": 2, "bundles": {"numBundles": 3}}, 412, "2 and for 3"),
    ({"bundles": {"boundaries": ["0x00000000", "0x10000000", "0xffffffff"]}}, 412, "unequal"),
    ({"retention_policies": {"size": 1}}, 412, "retention_policies"),
    ({"replication_clusters": ["mars"]}, 412, "mars"),
    ({"allowed_clusters": ["standalone", "mars"]}, 412, "clusters mars are unknown"),
    ({"deep": json.loads('{"a":' * 500 + "1" + "}" * 500)}, 400, "more than 8 levels"),
    ([1], 400, "the body"),
]


@on_nodes()
async def test_a_namespace_that_cannot_be_made_so_is_refused(node: HttpNode) -> None:
    for body, status, named in BAD_POLICIES:
        assert named in await put(node, "/namespaces/public/n", body, status), body
    assert await get(node, "/namespaces/public") == ["public/default"]


@on_nodes()
async def test_namespaces_that_are_there_or_have_no_tenant_are_refused(node: HttpNode) -> None:
    assert "already exists" in await put(node, "/namespaces/public/default", {}, 409)
    assert "nobody" in await put(node, "/namespaces/nobody/n", {}, 404)
    assert "namespace name 'a b'" in await put(node, "/namespaces/public/a%20b", {}, 412)
    assert (await node.http.get(f"{ADMIN}/namespaces/nobody")).status_code == 404
    assert (await node.http.get(f"{ADMIN}/namespaces/public/n/bundles")).status_code == 404
    assert (await node.http.delete(f"{ADMIN}/namespaces/public/n")).status_code == 404


@on_nodes()
async def test_a_namespace_in_use_is_unloaded_and_deleted(node: HttpNode) -> None:
    await put(node, "/namespaces/public/n", None, 204)
    assert (await node.http.get("/lookup/v2/topic/persistent/public/n/t")).status_code == 200
    assert (await node.http.delete(f"{ADMIN}/namespaces/public/n")).status_code == 204
    assert await get(node, "/namespaces/public") == ["public/default"]
