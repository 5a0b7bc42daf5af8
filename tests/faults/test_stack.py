"""The whole cluster of docker/compose.yaml: up by one command, used, asked, stopped, and gone."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import pytest

from anabranch.devkit import ports
from faults.leftovers import stack_name, uninterrupted
from support.metrics_page import ROOT
from support.queries import of_alerts, of_dashboards

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1_800), pytest.mark.usefixtures("engine")]

_SCRIPT: Final = ROOT / "docker" / "stack.sh"
_NODES: Final = ("node-1", "node-2", "node-3")
_LOOKUP: Final = "/lookup/v2/topic/persistent/public/default/orders"
_AUDIT_S: Final = 15
_WAIT_S: Final = 400.0
_SHOWN_S: Final = 1_800
# What a cluster that is well has nothing to show for.
_EMPTY_WHEN_WELL: Final = (
    "health: Alerts by name A",
    "clients: Subscriptions that expire A",
    "clients: Buckets that wait B",
    # For moments only, which a scrape may miss.
    "clients: Buckets that wait A",
    "clients: Drained together A",
)
# What a cluster that asks nobody who they are has nothing to show for.
_EMPTY_WHEN_OPEN: Final = (
    "clients: Who came A",
    "clients: Kept out B",
    "clients: Kept out C",
    "clients: Ended with their right A",
    "clients: Changes of Kafka's ACLs A",
    "clients: Changes of Kafka's ACLs B",
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A stack of its own name, at ports of its own."""

    name: str
    environment: dict[str, str]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(_SCRIPT), *command],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def url(self, variable: str) -> str:
        return f"http://127.0.0.1:{self.environment[variable]}"

    def query(self, promql: str) -> list[Any]:
        """The series that Prometheus has for it now."""
        return self._asked("query", query=promql)

    def shown(self, promql: str) -> bool:
        """Whether a panel has had anything to draw since the stack was started."""
        now = time.time()
        times = {"start": str(now - _SHOWN_S), "end": str(now), "step": "15"}
        return bool(self._asked("query_range", query=promql, **times))

    def _asked(self, how: str, **what: str) -> list[Any]:
        answer = _json(f"{self.url('STACK_PROMETHEUS')}/api/v1/{how}?{urlencode(what)}")
        found: list[Any] = answer["data"]["result"]
        return found

    def left(self, *kind: str) -> list[str]:
        """What is there of a kind, with this stack's label."""
        label = f"label=org.anabranch.stack={self.name}"
        return _docker(*kind, "--quiet", "--filter", label).split()


def _docker(*command: str) -> str:
    return subprocess.run(["docker", *command], capture_output=True, text=True, check=True).stdout


def _json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def _await(holds: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(1)


@pytest.fixture(scope="module")
def cluster(engine: None) -> Iterator[Cluster]:
    names = [f"STACK_NODE_{at}_{port}" for at in (1, 2, 3) for port in ("HTTP", "BINARY")]
    names += [f"STACK_KAFKA_{at}" for at in (1, 2, 3)]
    names += ["STACK_PROXY_HTTP", "STACK_PROXY_BINARY"]
    names += ["STACK_SPARK", "STACK_AUDITS", "STACK_PROMETHEUS"]
    name = stack_name()
    taken = {each: str(ports.free_port("127.0.0.1")) for each in names}
    told = {"STACK": name, "STACK_AUDIT_SECONDS": str(_AUDIT_S)}
    found = Cluster(name, {**os.environ, **taken, **told})
    try:
        started = found.run("up")
        assert started.returncode == 0, started.stdout + started.stderr
        for each in ("STACK_NODE_1_HTTP", "STACK_PROXY_HTTP"):
            assert f"http://localhost:{taken[each]}" in started.stdout
        yield found
    finally:
        with uninterrupted():
            found.run("down")


def test_every_node_names_the_same_owner(cluster: Cluster) -> None:
    urls = [cluster.url(f"STACK_NODE_{at}_HTTP") for at in (1, 2, 3)]
    owners = [_json(url + _LOOKUP)["httpUrl"] for url in urls]
    assert owners[0] in {f"http://{node}:8080" for node in _NODES}
    assert owners == [owners[0]] * 3


def test_the_proxy_leads_from_this_machine_to_the_nodes(cluster: Cluster) -> None:
    """Nothing that it answers has a name that only the stack's network knows."""
    web = f"http://localhost:{cluster.environment['STACK_PROXY_HTTP']}"
    binary = f"pulsar://localhost:{cluster.environment['STACK_PROXY_BINARY']}"
    found = _json(web + _LOOKUP)
    assert (found["httpUrl"], found["brokerUrl"]) == (web, binary)
    (proxy,) = cluster.query('anabranch_proxy_nodes_answering{job="proxies"}')
    assert proxy["value"][1] == str(len(_NODES))


def test_the_demo_s_load_arrives_once_and_in_order(cluster: Cluster) -> None:
    done = cluster.run("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every message arrived once and in its key's order" in done.stdout


def test_the_cluster_s_own_spark_finds_the_log_sound(cluster: Cluster) -> None:
    """Also of what the demo made: the audit that is waited for began after it."""
    end = float(cluster.query("max(anabranch_log_next_offset)")[0]["value"][1])
    url = cluster.url("STACK_AUDITS")

    def audited() -> bool:
        try:
            return bool(_json(f"{url}/audit.json")["log"]["next_offset"] >= end)
        except urllib.error.HTTPError as error:
            error.close()
            return False

    _await(audited, lambda: "no audit of the whole log")
    report = _json(f"{url}/audit.json")
    assert report["sound"], json.dumps(report["checks"], indent=1)
    assert report["log"]["archived_until"] > 0
    examined = {check["name"]: check["examined"] for check in report["checks"]}
    assert examined["ownership"] > 0
    assert examined["seals"] > 0


def test_every_panel_has_data_and_every_rule_is_evaluated(cluster: Cluster) -> None:
    def empty() -> set[str]:
        shown = {place for place, query in of_dashboards().items() if cluster.shown(query)}
        return of_dashboards().keys() - shown - {*_EMPTY_WHEN_WELL, *_EMPTY_WHEN_OPEN}

    _await(lambda: not empty(), lambda: f"panels stay empty: {sorted(empty())}")
    groups = _json(f"{cluster.url('STACK_PROMETHEUS')}/api/v1/rules")["data"]["groups"]
    rules = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
    assert rules == dict.fromkeys(of_alerts(), "ok")
    assert cluster.query('ALERTS{alertstate="firing",severity="page"}') == []


@pytest.mark.parametrize(
    "service",
    [
        "audits",
        "archive",
        "prometheus",
        "proxy",
        "node-1",
        "kafka-1",
        "spark-worker-1",
        "spark-master",
    ],
)
def test_docker_stop_ends_it_with_status_0_in_its_own_time(cluster: Cluster, service: str) -> None:
    labels = (f"com.docker.compose.project={cluster.name}", f"com.docker.compose.service={service}")
    filters = [each for label in labels for each in ("--filter", f"label={label}")]
    (container,) = _docker("ps", "--quiet", *filters).split()
    _docker("stop", container)
    assert _docker("inspect", "--format", "{{ .State.ExitCode }}", container).strip() == "0"


def test_down_leaves_nothing(cluster: Cluster) -> None:
    assert cluster.left("volume", "ls")
    assert cluster.run("down").returncode == 0
    for kind in (("ps", "--all"), ("volume", "ls"), ("network", "ls")):
        assert cluster.left(*kind) == []


def test_without_an_engine_the_remedy_is_told() -> None:
    told = subprocess.run(
        [str(_SCRIPT), "up"],
        env={**os.environ, "DOCKER_HOST": "unix:///nonexistent/docker.sock"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 2
    assert "No Docker engine answers. Install one" in told.stderr
