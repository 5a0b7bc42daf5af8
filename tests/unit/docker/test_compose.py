"""What docker/compose.yaml tells its containers can be used, and what is asked of them is there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from anabranch.broker.settings import load_settings
from anabranch.proxy.settings import BINARY, WEB, ProxySettings, load_proxy_settings
from support.metrics_page import ROOT

_DOCKER: Final = ROOT / "docker"
_VARIABLE: Final = re.compile(r"\$\{(\w+):?-([^}]*)\}")
_NODES: Final = ("node-1", "node-2", "node-3")


def _filled_in(told: Any, variables: Mapping[str, str]) -> Any:
    """As Compose reads it, where no variable is set but those."""
    if isinstance(told, str):
        return _VARIABLE.sub(lambda found: variables.get(found[1], found[2]), told)
    if isinstance(told, list):
        return [_filled_in(each, variables) for each in told]
    if isinstance(told, dict):
        return {name: _filled_in(each, variables) for name, each in told.items()}
    return told


def services(variables: Mapping[str, str] = {}) -> dict[str, Any]:
    """Each service, by its name."""
    stack = yaml.safe_load((_DOCKER / "compose.yaml").read_text("utf-8"))
    found: dict[str, Any] = _filled_in(stack["services"], variables)
    return found


def of_the_image() -> dict[str, str]:
    """The variables that the image of nodes sets."""
    lines = (_DOCKER / "Dockerfile").read_text("utf-8")
    image = lines.partition(" AS node\n")[2].partition("\nFROM ")[0]
    said = re.findall(r"^ENV (.*)$", image, re.MULTILINE)
    return dict(each.split("=", 1) for line in said for each in line.split())


def environment(service: Mapping[str, Any]) -> dict[str, str]:
    """What a process of the image of nodes is told in that service."""
    told = {name: str(value) for name, value in service["environment"].items()}
    return of_the_image() | told


def proxy(variables: Mapping[str, str] = {}) -> ProxySettings:
    return load_proxy_settings(None, environment(services(variables)["proxy"]), {})


def test_the_nodes_of_the_stack_can_use_their_settings() -> None:
    for name in _NODES:
        found = load_settings(None, environment(services()[name]), {})
        assert (found.advertised_address, str(found.data_dir)) == (name, "/var/lib/anabranch")


def test_the_proxy_of_the_stack_knows_every_node() -> None:
    assert proxy().web_nodes == tuple(f"{node}:8080" for node in _NODES)


def test_the_proxy_tells_the_ports_at_which_this_machine_has_it() -> None:
    moved = {"STACK_PROXY_HTTP": "18080", "STACK_PROXY_BINARY": "16650"}
    for variables in ({}, moved):
        told = proxy(variables)
        ports = dict(each.split(":")[1:][::-1] for each in services(variables)["proxy"]["ports"])
        assert told.url_of(WEB) == f"http://localhost:{ports[str(told.web_service_port)]}"
        assert told.url_of(BINARY) == f"pulsar://localhost:{ports[str(told.service_port)]}"
    assert proxy(moved).url_of(BINARY) == "pulsar://localhost:16650"


def test_prometheus_asks_every_node_and_proxy_of_the_stack() -> None:
    asked = yaml.safe_load((_DOCKER / "prometheus" / "prometheus.yml").read_text("utf-8"))
    targets = {
        job["job_name"]: {each for group in job["static_configs"] for each in group["targets"]}
        for job in asked["scrape_configs"]
    }
    serving = {
        name: service["command"][0] if "command" in service else "node"
        for name, service in services().items()
        if service["image"].startswith("anabranch-node:")
    }
    assert targets["anabranch"] == {f"{n}:8080" for n, what in serving.items() if what == "node"}
    assert targets["proxies"] == {f"{n}:8080" for n, what in serving.items() if what == "proxy"}
    assert {each.partition(":")[0] for job in targets.values() for each in job} <= set(services())


def test_the_addresses_that_are_printed_are_those_of_services_with_ports() -> None:
    script = (_DOCKER / "stack.sh").read_text("utf-8")
    printed = set(re.findall(r"local_port ([a-z][-\w]*) (\d+)", script))
    ports = {
        (name, each.rpartition(":")[2])
        for name, service in services().items()
        for each in service.get("ports", ())
    }
    assert printed <= ports
    assert ("proxy", "8080") in printed


_CHECKED_BY_THEIR_IMAGES: Final = ("anabranch-node:", "anabranch-prometheus:")


def test_every_container_is_bounded_watched_and_started_again() -> None:
    """What docs/containers.md says of all of them."""
    found = services()
    for name, service in found.items():
        assert service["restart"] == "unless-stopped", name
        assert service["mem_limit"], name
        assert service["labels"] == {"org.anabranch.stack": "anabranch"}, name
        if "ports" in service:
            by_image = service["image"].startswith(_CHECKED_BY_THEIR_IMAGES)
            assert by_image or "test" in service["healthcheck"], name
            assert all(each.startswith("127.0.0.1:") for each in service["ports"]), name
    stack = yaml.safe_load((_DOCKER / "compose.yaml").read_text("utf-8"))
    kept = {each.partition(":")[0] for one in found.values() for each in one.get("volumes", ())}
    assert {each for each in kept if not each.startswith("./")} == set(stack["volumes"])
    for kind in ("volumes", "networks"):
        assert all(each["labels"] for each in stack[kind].values())


def test_every_variable_of_the_stack_is_told() -> None:
    page = (ROOT / "docs" / "containers.md").read_text("utf-8")
    used = set(re.findall(r"\bSTACK(?:_[A-Z0-9]+)*", (_DOCKER / "compose.yaml").read_text("utf-8")))
    told = set(re.findall(r"`(STACK(?:_[A-Z0-9]+)*)`", page))
    of_a_row = {re.sub(r"_[123](?=_|$)", "_1", each) for each in used}
    assert of_a_row - told == set()
    assert told - of_a_row == set()
