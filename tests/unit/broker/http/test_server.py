"""What all routes have in common: errors, limits, probes, description; and the server itself."""

import io
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.broker.errors import StartError
from anabranch.broker.http.server import bind
from anabranch.broker.logging import configure_logging
from anabranch.broker.node.metrics import measure_node
from anabranch.broker.settings import load_settings
from anabranch.core.security.actions import (
    ANYONE,
    CONSUMING,
    PUBLIC,
    SCALING,
    SUPERUSER,
    TENANT_ADMIN,
    VIEWING,
)
from anabranch.core.security.table import REST
from support.http import PLACES, HttpNode, on_nodes
from support.memory_cluster import until
from support.raw_http import connected
from support.scalable import refused

# As docs/rest.md names them.
RIGHTS = {
    PUBLIC: "none",
    ANYONE: "any",
    VIEWING: "view",
    CONSUMING: "consume",
    SCALING: "scale",
    TENANT_ADMIN: "admin",
    SUPERUSER: "super",
}

SCALABLE = "/admin/v2/scalable/{tenant}/{namespace}/{topic}"
CLUSTER = "/admin/v2/clusters/{cluster}"


@on_nodes()
async def test_the_page_and_the_description_have_the_same_routes(node: HttpNode) -> None:
    text = (Path(__file__).parents[4] / "docs" / "rest.md").read_text()
    told = [
        (*said.split(), path)
        for path, verbs in re.findall(r"^\| `(/[^`]+)` \| ([^|]+) \|", text, re.MULTILINE)
        for said in verbs.split(", ")
    ]
    rows = [(verb, path) for verb, _, path in told]
    found = (await node.http.get("/openapi.json")).json()["paths"]
    routes = [(verb.upper(), path) for path, verbs in found.items() for verb in verbs]
    assert sorted(rows) == sorted(routes)
    assert {f"{verb} {path}": right for verb, right, path in told} == {
        route: RIGHTS[rule.need]
        for route, rule in REST.items()
        if route not in ("GET /docs", "GET /openapi.json")
    }
    for path, verbs in found.items():
        for verb, route in verbs.items():
            assert route.get("description"), f"{verb} {path} says nothing of itself"


@on_nodes()
async def test_refusals_are_described_as_what_they_are(node: HttpNode) -> None:
    found = (await node.http.get("/openapi.json")).json()
    refused = await node.http.get("/admin/v2/tenants/nobody")
    assert refused.headers["content-type"] == "application/json"
    form = found["components"]["schemas"]["Problem"]
    assert refused.json().keys() == form["properties"].keys() == set(form["required"])
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for verbs in found["paths"].values():
        for route in verbs.values():
            assert route["responses"]["default"]["content"] == content


@on_nodes()
async def test_every_request_that_can_be_malformed_is_answered_400(node: HttpNode) -> None:
    described = (await node.http.get("/openapi.json")).json()
    for path, verbs in described["paths"].items():
        for verb, route in verbs.items():
            for wrong, status, named in _malformed(route):
                sent = await node.http.request(verb, path.format(**PLACES), **wrong)
                assert sent.status_code == status, (verb, path, wrong, sent.text)
                assert named in sent.json()["reason"]


def _malformed(route: dict[str, Any]) -> Iterator[tuple[dict[str, Any], int, str]]:
    content = route.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    if schema.keys() - {"description"}:  # a group's name may be bare text
        for body, kind, status, named in (
            (b"{", "application/json", 400, "the body is not"),
            (b"{}", "text/plain", 415, "Content-Type: application/json"),
            (b"[" * 100_000, "application/json", 400, "body"),
        ):
            yield {"content": body, "headers": {"Content-Type": kind}}, status, named
    asked = [each for each in route.get("parameters", ()) if each["in"] == "query"]
    needed = {each["name"]: "1" for each in asked if each.get("required")}
    for each in asked:
        if each["schema"].get("type") in ("boolean", "integer"):
            yield {"params": {**needed, each["name"]: "{}"}}, 400, each["name"]


@on_nodes()
async def test_every_documented_get_answers_in_the_documented_way(node: HttpNode) -> None:
    await until(lambda: bool(node.node.operations.leader()))
    values = {**PLACES, "broker": node.id}
    await node.http.put(SCALABLE.format(**values))
    await node.http.put(f"{SCALABLE}/subscriptions/billing".format(**values))
    policy = {"namespaces": ["acme/.*"], "primary": ["b1"]}
    path = f"{CLUSTER}/namespaceIsolationPolicies/{{policy}}"
    await node.http.post(path.format(**values), json=policy)
    path = f"{CLUSTER}/failureDomains/{{domain}}"
    await node.http.post(path.format(**values), json={"brokers": [node.id]})
    for path, verbs in (await node.http.get("/openapi.json")).json()["paths"].items():
        if "get" in verbs:
            answer = await node.http.get(path.format(**values))
            empty = {
                "topicHashPositions": 412,
                "Policy": 204,
                "antiAffinity": 204,
                "adopt": 400,  # of which Kafka topic
            }
            status = next((empty[name] for name in empty if path.endswith(name)), 200)
            assert answer.status_code == status, path


@on_nodes(3)
async def test_brokers_leader_and_status_agree(nodes: list[HttpNode]) -> None:
    ids = sorted(node.id for node in nodes)
    for node in nodes:
        assert (await node.http.get("/admin/v2/brokers")).json() == ids
        assert (await node.http.get("/admin/v2/brokers/standalone")).json() == ids
        leader = (await node.http.get("/admin/v2/brokers/leaderBroker")).json()
        assert leader == {
            "brokerId": leader["brokerId"],
            "serviceUrl": f"http://{leader['brokerId']}",
        }
        status = (await node.http.get("/admin/v2/brokers/status")).json()
        assert (status["brokerId"], status["mode"]) == (node.id, "serving")
        assert status["leader"] == leader["brokerId"]
        assert status["leaseMillis"] > 0
    refused(await nodes[0].http.get("/admin/v2/brokers/mars"), 404, "mars")
    wrong = await nodes[0].http.get("/admin/v2/brokers/standalone/nobody/ownedNamespaces")
    assert (wrong.status_code, "host:webPort" in wrong.json()["reason"]) == (412, True)


@on_nodes()
async def test_metrics_count_lookups(node: HttpNode) -> None:
    for _number in range(3):
        await node.http.get("/lookup/v2/topic/persistent/public/default/t")
    count = node.node.metrics.fast_lookups
    assert count >= 2
    assert f"anabranch_lookups_cached_total {count}.0" in (await node.http.get("/metrics")).text


@on_nodes()
async def test_metrics_count_the_bundles_of_a_node_and_no_leadership(nodes: list[HttpNode]) -> None:
    async def owned() -> str:
        lines = (await nodes[0].http.get("/metrics")).text.splitlines()
        return next(line for line in lines if line.startswith("anabranch_owned_bundles"))

    node = nodes[0].node
    measure_node(node.runtime, node.operations, node.metrics)
    assert await owned() == "anabranch_owned_bundles 0.0"
    await nodes[0].http.get("/lookup/v2/topic/persistent/public/default/t")
    assert await owned() == "anabranch_owned_bundles 1.0"


@on_nodes()
async def test_unknown_paths_and_methods_are_refused_in_json(node: HttpNode) -> None:
    http = node.http
    refused(await http.get("/admin/v3/tenants"), 404, "/admin/v3/tenants")
    method = await http.patch("/admin/v2/tenants/public")
    assert (method.status_code, method.headers["allow"]) == (405, "DELETE, GET, POST, PUT")
    assert "use DELETE, GET, POST, PUT" in method.json()["reason"]


@on_nodes()
async def test_browsers_take_every_answer_for_what_it_says_it_is(node: HttpNode) -> None:
    lookup = "/lookup/v2/topic/persistent/public/default/t"  # the second time without waiting
    for path in ("/docs", "/metrics", "/admin/v2/tenants", "/nothing", lookup, lookup):
        found = await node.http.get(path)
        assert found.headers.get_list("x-content-type-options") == ["nosniff"], path
    async with connected(node.http.base_url.port or 0) as stranger:
        stranger.send(b"this is no HTTP\r\n\r\n")
        assert b"x-content-type-options: nosniff" in await stranger.ends()


@on_nodes()
async def test_an_unexpected_failure_shows_an_error_id_that_is_in_the_log_and_no_stack(
    node: HttpNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = io.StringIO()

    def broken() -> list[str]:
        raise ZeroDivisionError("secret detail")

    configure_logging(load_settings(None, {}, {"logFormat": "json"}), logged)
    monkeypatch.setattr(node.node.operations.tenancy, "tenants", broken)
    answer = await node.http.get("/admin/v2/tenants")
    assert answer.status_code == 500
    reason = answer.json()["reason"]
    assert "secret" not in reason
    assert "Traceback" not in reason
    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    failure = next(line for line in lines if line["event"] == "http.request_failed")
    assert failure["error_id"] in reason
    assert failure["path"] == "/admin/v2/tenants"
    assert "ZeroDivisionError: secret detail" in failure["trace"]


@on_nodes(leaseMillis=2_000, livenessTimeoutMillis=3_000)
async def test_a_node_that_lost_its_lease_is_alive_but_not_ready(node: HttpNode) -> None:
    assert (await node.http.get("/status.html")).text == "OK"
    node.node.connected = False
    await until(lambda: not node.node.runtime.has_lease)
    assert (await node.http.get("/livez")).text == "ok"
    for path in ("/readyz", "/status.html", "/admin/v2/brokers/health"):
        answer = await node.http.get(path)
        assert answer.status_code == 503
        assert "does not serve" in answer.json()["reason"]


def test_a_port_in_use_is_named_with_the_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=f"port {port} of 127.0.0.1 .* another webServicePort"):
            bind("127.0.0.1", port)


def test_an_address_that_is_not_this_machines_is_named() -> None:
    with pytest.raises(StartError, match=r"203\.0\.113\.1 .*bindAddress"):
        bind("203.0.113.1", 0)
