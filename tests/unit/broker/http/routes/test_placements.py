"""Isolation policies, failure domains, anti-affinity groups: over HTTP and by commands."""

from __future__ import annotations

import json
from typing import Any

from support.commands import ran
from support.http import HttpNode, on_nodes
from support.memory_cluster import MemoryCluster
from support.scalable import refused

CLUSTER = "/admin/v2/clusters/standalone"
GOLD = f"{CLUSTER}/namespaceIsolationPolicies/gold"
EAST = f"{CLUSTER}/failureDomains/east"
GROUP = "/admin/v2/namespaces/public/default/antiAffinity"
POLICY: dict[str, Any] = {
    "namespaces": ["acme/.*"],
    "primary": ["b[1-9]", r"node\.[12]:.*"],
    "secondary": ["node.3"],
    "auto_failover_policy": {
        "policy_type": "min_available",
        "parameters": {"min_limit": 1, "usage_threshold": 80},
    },
}


@on_nodes(2)
async def test_an_isolation_policy_is_set_shown_replaced_and_deleted_on_any_node(
    nodes: list[HttpNode], cluster: MemoryCluster
) -> None:
    one, other = nodes[0].http, nodes[1].http
    # Pulsar's clients write the numbers as text.
    texts = {"min_limit": "1", "usage_threshold": "80"}
    failover = {**POLICY["auto_failover_policy"], "parameters": texts}
    answer = await one.post(GOLD, json={**POLICY, "auto_failover_policy": failover})
    assert (answer.status_code, answer.content) == (204, b"")
    assert (await other.get(GOLD)).json() == POLICY
    before = len(cluster.entries)
    assert (await other.post(GOLD, json=POLICY)).status_code == 204
    assert len(cluster.entries) == before  # it says so already
    assert (await other.post(GOLD, json={"namespaces": ["a"], "primary": ["b"]})).status_code == 204
    found = (await other.get(f"{CLUSTER}/namespaceIsolationPolicies")).json()
    assert found["gold"]["auto_failover_policy"]["parameters"] == {
        "min_limit": 0,
        "usage_threshold": 100,
    }
    assert (await one.delete(GOLD)).status_code == 204
    refused(await one.get(GOLD), 404, "gold does not exist")
    assert (await other.delete(GOLD)).status_code == 404


@on_nodes()
async def test_what_no_policy_can_say_is_refused_by_name(node: HttpNode) -> None:
    before = len(node.cluster.entries)
    for change, said in (
        ({"namespaces": []}, "namespaces with 0 patterns"),
        ({"primary": ["(a+"]}, "missing )"),
        ({"secondary": ["a{995}"] * 11}, "more than 10000 steps"),
        ({"auto_failover_policy": {"policy_type": "none"}}, "policy_type"),
        ({"auto_failover_policy": {"parameters": {"min_limit": -1}}}, "min_limit -1"),
        ({"auto_failover_policy": {"parameters": {"usage_threshold": "x"}}}, "usage_threshold"),
        ({"unload_scope": "all"}, "unknown field `unload_scope`"),
    ):
        refused(await node.http.post(GOLD, json={**POLICY, **change}), 400, said)
    assert len(node.cluster.entries) == before


@on_nodes()
async def test_names_and_clusters_that_are_not_there_are_refused(node: HttpNode) -> None:
    http = node.http
    elsewhere = GOLD.replace("standalone", "elsewhere")
    assert (await http.get(elsewhere)).status_code == 404
    assert (await http.post(elsewhere, json=POLICY)).status_code == 412
    refused(await http.post(GOLD.replace("gold", "a%20b"), json=POLICY), 412, "'a b' is not valid")


@on_nodes()
async def test_what_policies_say_of_brokers_is_told(node: HttpNode) -> None:
    http = node.http
    await http.post(GOLD, json=POLICY)
    found = (await http.get(f"{CLUSTER}/namespaceIsolationPolicies/brokers")).json()
    serving = (await http.get("/admin/v2/brokers")).json()
    assert [each["brokerName"] for each in found] == serving


@on_nodes(2)
async def test_a_failure_domain_has_brokers_that_no_other_one_has(nodes: list[HttpNode]) -> None:
    http = nodes[0].http
    first, second, *_ = (await http.get("/admin/v2/brokers")).json()
    assert (await http.post(EAST, json={"brokers": [second, first]})).status_code == 204
    assert (await http.get(EAST)).json() == {"brokers": sorted((first, second))}
    west = EAST.replace("east", "west")
    refused(await http.post(west, json={"brokers": [first]}), 409, "in failure domain east already")
    assert (await http.post(EAST, json={"brokers": [second]})).status_code == 204
    assert (await http.post(west, json={"brokers": [first]})).status_code == 204
    found = (await http.get(f"{CLUSTER}/failureDomains")).json()
    assert found == {"east": {"brokers": [second]}, "west": {"brokers": [first]}}
    for brokers, said in (
        (["nobody:1"], "nobody:1 have never been"),
        ([], "0 brokers"),
        ([first, first], "once each"),
        (["x"], "host:webPort"),
    ):
        refused(await http.post(EAST, json={"brokers": brokers}), 412, said)
    assert (await http.delete(EAST)).status_code == 204
    assert (await http.get(EAST)).status_code == 404


@on_nodes()
async def test_a_namespace_is_put_into_a_group_and_keeps_what_else_was_set(node: HttpNode) -> None:
    http = node.http
    scale = GROUP.replace("antiAffinity", "scalableTopicAutoScalePolicy")
    assert (await http.post(scale, json={"enabled": False})).status_code == 204
    assert (await http.get(GROUP)).status_code == 204
    json_text = {"Content-Type": "application/json"}
    for body in (b'"Apart"', b"Apart"):  # Pulsar's Java client sends no quotes
        assert (await http.post(GROUP, content=body, headers=json_text)).status_code == 204
    assert (await http.get(GROUP)).text == "Apart"
    assert (await http.post(scale, json={"enabled": True})).status_code == 204
    assert (await http.get(GROUP)).text == "Apart"
    for bad, status in ((b"", 400), (b'""', 412), (b"a b", 412), (b'"a', 400), (b"\xff", 400)):
        answer = await http.post(GROUP, content=bad, headers=json_text)
        assert answer.status_code == status, bad
    assert (await http.delete(GROUP)).status_code == 204
    assert (await http.get(GROUP)).status_code == 204
    assert (await http.get(scale)).json() == {"enabled": True}
    assert (await http.post(GROUP.replace("default", "nothing"), content=b'"x"')).status_code == 404


@on_nodes()
async def test_the_commands_set_and_show_them(node: HttpNode) -> None:
    url = str(node.http.base_url)
    broker = (await node.http.get("/admin/v2/brokers")).json()[0]
    done = await ran(
        url,
        "isolation set gold --namespace acme/.* --primary node-1 --secondary node-2",
        "isolation list",
        "isolation list --json",
        "isolation brokers",
        f"domains set east {broker}",
        "domains list",
        "domains list --json",
        "namespaces anti-affinity public/default apart",
        "namespaces anti-affinity public/default",
        "namespaces anti-affinity public/default --remove",
        "isolation delete gold",
        "domains delete east",
    )
    assert [each for each in done if each.exit_code] == []
    texts = [each.output for each in done]
    assert texts[0] == "isolation policy gold is set\n"
    assert texts[1].splitlines()[1].split() == ["gold", "acme/.*", "node-1", "node-2", "0"]
    assert json.loads(texts[2])["gold"]["primary"] == ["node-1"]
    assert texts[5].splitlines()[1].split() == ["east", broker]
    assert json.loads(texts[6]) == {"east": {"brokers": [broker]}}
    assert texts[7:10] == [
        "public/default is in anti-affinity group apart\n",
        "public/default is in anti-affinity group apart\n",
        "public/default is in no group\n",
    ]
    [both] = await ran(url, "namespaces anti-affinity public/default apart --remove")
    assert both.exit_code == 2
