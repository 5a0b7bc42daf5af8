"""What all routes have in common: errors, limits, probes, description; and the server itself."""

import io
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from anabranch.broker.errors import DeadlineExceededError, StartError
from anabranch.broker.http.server import bind
from anabranch.broker.logging import configure_logging
from anabranch.broker.metrics.node import measure_node
from anabranch.broker.settings import load_settings
from support.http import HttpNode, with_http
from support.memory_cluster import MemoryCluster, until

SCALABLE = "/admin/v2/scalable/{tenant}/{namespace}/{topic}"
SEGMENTS = "/admin/v2/segments/{tenant}/{namespace}/{topic}/{descriptor}"
POLICY = {"get", "post", "delete"}
CLUSTER = "/admin/v2/clusters/{cluster}"
ROUTES = {
    "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}": {"get"},
    "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle": {"get"},
    "/admin/v2/clusters": {"get"},
    "/admin/v2/clusters/{cluster}": {"get"},
    f"{CLUSTER}/namespaceIsolationPolicies": {"get"},
    f"{CLUSTER}/namespaceIsolationPolicies/brokers": {"get"},
    f"{CLUSTER}/namespaceIsolationPolicies/brokers/{{broker}}": {"get"},
    f"{CLUSTER}/namespaceIsolationPolicies/{{policy}}": POLICY,
    f"{CLUSTER}/failureDomains": {"get"},
    f"{CLUSTER}/failureDomains/{{domain}}": POLICY,
    "/admin/v2/namespaces/{tenant}/{namespace}/antiAffinity": POLICY,
    "/admin/v2/namespaces/{cluster}/antiAffinity/{group}": {"get"},
    "/admin/v2/tenants": {"get"},
    "/admin/v2/tenants/{tenant}": {"get", "put", "post", "delete"},
    "/admin/v2/namespaces/{tenant}": {"get"},
    "/admin/v2/namespaces/{tenant}/{namespace}": {"get", "put", "delete"},
    "/admin/v2/namespaces/{tenant}/{namespace}/bundles": {"get"},
    "/admin/v2/namespaces/{tenant}/{namespace}/bundles/ownership": {"get"},
    "/admin/v2/namespaces/{tenant}/{namespace}/unload": {"put"},
    "/admin/v2/namespaces/{tenant}/{namespace}/{bundle}/unload": {"put"},
    "/admin/v2/namespaces/{tenant}/{namespace}/{bundle}/split": {"put"},
    "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/unload": {"put"},
    "/admin/v2/namespaces/{tenant}/{namespace}/{bundle}/topicHashPositions": {"get"},
    "/admin/v2/namespaces/{tenant}/{namespace}/{bundle}/clearBacklog": {"post"},
    "/admin/v2/namespaces/{tenant}/{namespace}/{bundle}/clearBacklog/{subscription}": {"post"},
    "/admin/v2/namespaces/{tenant}/{namespace}/{bundle}/unsubscribe/{subscription}": {"post"},
    "/admin/v2/scalable/{tenant}/{namespace}": {"get"},
    "/admin/v2/namespaces/{tenant}/{namespace}/scalableTopicAutoScalePolicy": POLICY,
    f"{SCALABLE}/autoScalePolicy": POLICY,
    "/admin/v2/namespaces/{tenant}/{namespace}/permissions": {"get"},
    "/admin/v2/namespaces/{tenant}/{namespace}/permissions/{role}": {"post", "delete"},
    f"{SCALABLE}/permissions": {"get"},
    f"{SCALABLE}/permissions/{{role}}": {"post", "delete"},
    f"{SCALABLE}/properties": {"get", "put", "delete"},
    f"{SCALABLE}/segments/{{segmentId}}/stats": {"get"},
    f"{SCALABLE}/subscriptions/{{subscription}}/deadLetterPolicy": {"get", "put", "delete"},
    f"{SCALABLE}/subscriptions/{{subscription}}/seek": {"post"},
    f"{SCALABLE}/subscriptions/{{subscription}}/skip-all": {"post"},
    f"{SEGMENTS}/subscription/{{subscription}}": {"put", "delete"},
    f"{SEGMENTS}/subscription/{{subscription}}/backlog": {"get"},
    f"{SEGMENTS}/subscription/{{subscription}}/seek": {"post"},
    f"{SEGMENTS}/subscription/{{subscription}}/skip-all": {"post"},
    f"{SCALABLE}": {"get", "put", "delete"},
    f"{SCALABLE}/stats": {"get"},
    f"{SCALABLE}/split/{{segmentId}}": {"post"},
    f"{SCALABLE}/merge/{{segmentId1}}/{{segmentId2}}": {"post"},
    f"{SCALABLE}/rebucket/{{segmentId}}": {"post"},
    f"{SCALABLE}/relocate/{{segmentId}}": {"post"},
    f"{SCALABLE}/subscriptions/{{subscription}}": {"put", "delete"},
    SEGMENTS: {"put", "delete"},
    f"{SEGMENTS}/terminate": {"post"},
    "/admin/v2/brokers": {"get"},
    "/admin/v2/balance": {"get"},
    "/admin/v2/balance/history": {"get"},
    "/admin/v2/balance/plan": {"post"},
    "/admin/v2/kafka/brokers": {"get"},
    "/admin/v2/kafka/brokers/{brokerId}/drain": {"put", "delete"},
    "/admin/v2/brokers/explain": {"get"},
    "/admin/v2/brokers/health": {"get"},
    "/admin/v2/brokers/ready": {"get"},
    "/admin/v2/brokers/version": {"get"},
    "/admin/v2/brokers/status": {"get"},
    "/admin/v2/brokers/configuration": {"get"},
    "/admin/v2/brokers/configuration/values": {"get"},
    "/admin/v2/brokers/configuration/runtime": {"get"},
    "/admin/v2/brokers/configuration/overrides": {"get"},
    "/admin/v2/brokers/configuration/{setting}/{value}": {"post"},
    "/admin/v2/brokers/configuration/{setting}": {"delete"},
    "/admin/v2/brokers/leaderBroker": {"get"},
    "/admin/v2/brokers/addresses": {"get"},
    "/admin/v2/brokers/{cluster}": {"get"},
    "/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces": {"get"},
    "/livez": {"get"},
    "/readyz": {"get"},
    "/status.html": {"get"},
    "/metrics": {"get"},
}

VALUES = {
    "domain": "persistent",
    "tenant": "public",
    "namespace": "default",
    "topic": "t",
    "bundle": "0x00000000_0x40000000",
    "cluster": "standalone",
    "broker": "b1:8080",
    "segmentId": "0",
    "segmentId1": "0",
    "segmentId2": "1",
    "descriptor": "0000-ffff-0",
    "subscription": "billing",
    "setting": "leaseMillis",
    "value": "1",
    "policy": "gold",
    "group": "apart",
    "brokerId": "1",
    "role": "ada",
}


def test_the_description_lists_every_route() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        found = (await nodes[0].http.get("/openapi.json")).json()
        assert {path: set(verbs) for path, verbs in found["paths"].items()} == ROUTES
        for path, verbs in found["paths"].items():
            for verb, route in verbs.items():
                assert route.get("description"), f"{verb} {path} says nothing of itself"
        assert (await nodes[0].http.get("/docs")).status_code == 200

    with_http(test)


def test_refusals_are_described_as_what_they_are() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        found = (await nodes[0].http.get("/openapi.json")).json()
        refused = await nodes[0].http.get("/admin/v2/tenants/nobody")
        assert refused.headers["content-type"] == "application/json"
        form = found["components"]["schemas"]["Problem"]
        assert refused.json().keys() == form["properties"].keys() == set(form["required"])
        for path, verbs in found["paths"].items():
            for verb, route in verbs.items():
                for status, answer in route["responses"].items():
                    if status >= "400":
                        schema = {"$ref": "#/components/schemas/Problem"}
                        content = {"application/json": {"schema": schema}}
                        assert answer["content"] == content, (verb, path, status)
                        assert answer["description"], (verb, path, status)

    with_http(test)


def test_every_request_that_can_be_malformed_is_answered_400_and_says_so() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        node = nodes[0]
        described = (await node.http.get("/openapi.json")).json()
        assert "422" not in json.dumps(described)
        documented, answered = set(), set()
        for path, verbs in described["paths"].items():
            for verb, route in verbs.items():
                if "400" in route["responses"]:
                    documented.add((verb, path))
                for wrong in _malformed(route):
                    sent = await node.http.request(verb, path.format(**VALUES), **wrong)
                    assert str(sent.status_code) in route["responses"], (verb, path, sent.text)
                    assert "error id" not in sent.text, (verb, path, sent.text)
                    if sent.status_code == 400:
                        answered.add((verb, path))
        described_only = {
            ("post", f"{SCALABLE}/subscriptions/{{subscription}}/skip-all"),  # together with seek
            ("get", "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"),  # in front
        }
        assert documented - described_only == answered

    with_http(test)


def _malformed(route: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {}
    if "requestBody" in route:
        yield {"content": b"{", "headers": {"Content-Type": "application/json"}}
        yield {"content": b"{}", "headers": {"Content-Type": "text/plain"}}
        yield {"content": b"[" * 100_000, "headers": {"Content-Type": "application/json"}}
    for each in route.get("parameters", ()):
        if each["in"] == "query":
            yield {"params": {each["name"]: "{}"}}


def test_every_documented_get_answers_in_the_documented_way() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        node = nodes[0]
        await until(lambda: bool(node.node.operations.leader()))
        values = {**VALUES, "broker": node.id}
        await node.http.put(SCALABLE.format(**values))
        await node.http.put(f"{SCALABLE}/subscriptions/billing".format(**values))
        policy = {"namespaces": ["acme/.*"], "primary": ["b1"]}
        path = f"{CLUSTER}/namespaceIsolationPolicies/{{policy}}"
        await node.http.post(path.format(**values), json=policy)
        path = f"{CLUSTER}/failureDomains/{{domain}}"
        await node.http.post(path.format(**values), json={"brokers": [node.id]})
        for path, verbs in ROUTES.items():
            if "get" in verbs:
                answer = await node.http.get(path.format(**values))
                empty = {"topicHashPositions": 412, "Policy": 204, "antiAffinity": 204}
                status = next((empty[name] for name in empty if path.endswith(name)), 200)
                assert answer.status_code == status, path

    with_http(test)


def test_brokers_leader_and_status_agree() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
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
        unknown = await nodes[0].http.get("/admin/v2/brokers/mars")
        assert (unknown.status_code, "mars" in unknown.json()["reason"]) == (404, True)
        wrong = await nodes[0].http.get("/admin/v2/brokers/standalone/nobody/ownedNamespaces")
        assert (wrong.status_code, "host:webPort" in wrong.json()["reason"]) == (412, True)

    with_http(test, count=3)


def test_metrics_count_lookups() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        for _number in range(3):
            await nodes[0].http.get("/lookup/v2/topic/persistent/public/default/t")
        count = nodes[0].node.metrics.fast_lookups
        assert count >= 2
        text = (await nodes[0].http.get("/metrics")).text
        assert f"anabranch_lookups_cached_total {count}.0" in text

    with_http(test)


def test_metrics_count_the_bundles_that_a_node_owns_and_no_leadership() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        async def owned() -> str:
            lines = (await nodes[0].http.get("/metrics")).text.splitlines()
            return next(line for line in lines if line.startswith("anabranch_owned_bundles"))

        node = nodes[0].node
        measure_node(node.runtime, node.operations, node.metrics)
        assert await owned() == "anabranch_owned_bundles 0.0"
        await nodes[0].http.get("/lookup/v2/topic/persistent/public/default/t")
        assert await owned() == "anabranch_owned_bundles 1.0"

    with_http(test)


def test_unknown_paths_and_methods_are_refused_in_json() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        http = nodes[0].http
        unknown = await http.get("/admin/v3/tenants")
        assert (unknown.status_code, "/admin/v3/tenants" in unknown.json()["reason"]) == (404, True)
        method = await http.patch("/admin/v2/tenants/public")
        assert method.status_code == 405
        assert method.headers["allow"] == "DELETE, GET, POST, PUT"
        assert "use DELETE, GET, POST, PUT" in method.json()["reason"]

    with_http(test)


@pytest.mark.parametrize(
    ("content", "kind", "status", "named"),
    [
        (b"{", "application/json", 400, "not JSON (at character 1)"),
        (b"{}", "text/plain", 415, "Content-Type: application/json"),
        (b"\xff\xfe", "application/json", 400, "body"),
        (b" " * ((1 << 20) + 1), "application/json", 413, "httpMaxRequestSize is 1048576"),
    ],
)
def test_bodies_that_cannot_be_read_are_refused(
    content: bytes, kind: str, status: int, named: str
) -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        answer = await nodes[0].http.put(
            "/admin/v2/tenants/acme", content=content, headers={"content-type": kind}
        )
        assert answer.status_code == status, answer.text
        assert named in answer.json()["reason"]

    with_http(test)


def test_a_request_that_runs_out_of_time_is_504_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        node = nodes[0]

        async def never(*_: object) -> None:
            raise DeadlineExceededError("bundle a/b/c was not handed over in time; try again")

        monkeypatch.setattr(node.node.operations, "unload", never)
        path = "/admin/v2/namespaces/public/default/0x00000000_0x40000000/unload"
        answer = await node.http.put(path)
        assert (answer.status_code, "handed over" in answer.json()["reason"]) == (504, True)

    with_http(test)


def test_an_unexpected_failure_shows_an_error_id_that_is_in_the_log_and_no_stack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logged = io.StringIO()

    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        node = nodes[0]

        def broken() -> list[str]:
            raise ZeroDivisionError("secret detail")

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

    configure_logging(load_settings(None, {}, {"logFormat": "json"}), logged)
    try:
        with_http(test)
    finally:
        structlog.reset_defaults()


def test_a_node_that_lost_its_lease_is_alive_but_not_ready() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        node = nodes[0]
        assert (await node.http.get("/status.html")).text == "OK"
        node.node.connected = False
        await until(lambda: not node.node.runtime.has_lease)
        assert (await node.http.get("/livez")).text == "ok"
        for path in ("/readyz", "/status.html", "/admin/v2/brokers/health"):
            answer = await node.http.get(path)
            assert answer.status_code == 503
            assert "does not serve" in answer.json()["reason"]

    with_http(test, leaseMillis=2_000, livenessTimeoutMillis=3_000)


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


def test_the_documentation_has_every_route_and_no_other() -> None:
    text = (Path(__file__).parents[4] / "docs" / "rest.md").read_text()
    rows = re.findall(r"^\| (GET|PUT|POST|DELETE) `([^`]+)` \|", text, re.MULTILINE)
    documented: dict[str, set[str]] = {}
    for verb, path in rows:
        documented.setdefault(path, set()).add(verb.lower())
    assert documented == ROUTES
