import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from anabranch.core.ring import parse_range, topic_hash
from support.metrics_page import documented
from support.processes import Dev, dev, free_ports, run

pytestmark = pytest.mark.integration
TOPIC = "persistent://public/default/orders"
PROXY_METRICS = ("anabranch_proxy_", "pulsar_proxy_")  # which no node shows


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    with dev(tmp_path_factory.mktemp("cli"), nodes=2) as running:
        running.await_line("ready")
        yield running


def shown(*arguments: str) -> Any:
    found = run(*arguments, "--json")
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def test_lookup_names_the_owner_and_the_bundle(cluster: Dev) -> None:
    found = shown("lookup", TOPIC, "--url", cluster.url(1))
    assert found["topic"] == TOPIC
    assert topic_hash(TOPIC) in parse_range(found["bundle"])
    text = run("lookup", TOPIC, "--url", cluster.url(0)).stdout
    assert text == f"{TOPIC} is served by {found['httpUrl']} (bundle {found['bundle']})\n"


def test_lookup_of_a_scalable_topic_names_its_controller_or_says_that_there_is_none(
    cluster: Dev,
) -> None:
    url = ("--url", cluster.url(0))
    name = "public/default/looked-up"
    gone = run("lookup", name, *url)
    assert (gone.returncode, gone.stdout) == (1, "")
    assert f"404: Scalable topic not found: topic://{name}" in gone.stderr
    assert run("topics", "create", name, *url).returncode == 0
    found = shown("lookup", name, *url)
    assert (found["topic"], found["httpUrl"][:7]) == (f"topic://{name}", "http://")
    assert run("topics", "delete", name, "--yes", *url).returncode == 0


def test_bundles_and_brokers_agree(cluster: Dev) -> None:
    shown("lookup", TOPIC, "--url", cluster.url(0))
    bundles = shown("bundles", "public/default", "--url", cluster.url(0))["bundles"]
    brokers = shown("brokers", "--url", cluster.url(1))["brokers"]
    assert sum(broker["bundles"] for broker in brokers) == len(
        [bundle for bundle in bundles if bundle["state"] == "OWNED"]
    )
    assert [broker["leader"] for broker in brokers].count(True) == 1
    lines = run("bundles", "--url", cluster.url(0)).stdout.splitlines()
    assert lines[0].split() == ["BUNDLE", "STATE", "BROKER", "VERSION"]
    assert len(lines) == 1 + len(bundles)
    assert "leader" in run("brokers", "--url", cluster.url(0)).stdout


def test_a_node_shows_the_metrics_that_the_page_describes(cluster: Dev) -> None:
    with urlopen(f"{cluster.url(0)}/metrics") as answer:
        shown_types = re.findall(r"^# TYPE (\w+) ", answer.read().decode(), re.MULTILINE)
    assert {name for name in shown_types if not name.endswith("_created")} == {
        row.name for row in documented() if not row.name.startswith(PROXY_METRICS)
    }


def test_a_refusal_is_its_reason_and_status_1(cluster: Dev) -> None:
    found = run("lookup", "persistent://nobody/default/t", "--url", cluster.url(0))
    assert (found.returncode, found.stdout) == (1, "")
    assert "404: Namespace nobody/default does not exist" in found.stderr


def test_log_tail_shows_records_with_their_verdicts(cluster: Dev) -> None:
    shown("lookup", TOPIC, "--url", cluster.url(0))
    kafka = ("--bootstrap-servers", cluster.kafka)
    found = run("log", "tail", *kafka, "--no-follow", "--json")
    assert found.returncode == 0, found.stderr
    entries = [json.loads(line) for line in found.stdout.splitlines()]
    offsets = [entry["offset"] for entry in entries]
    assert offsets == sorted(offsets)
    # The second node wrote the cluster's settings too, if it came before it had read the first's.
    assert entries[0]["type"] == "ClusterSettings"
    assert entries[0]["verdict"] == "ACCEPTED"
    moves = [entry["record"]["move"] for entry in entries if entry["type"] == "UnitMove"]
    assert {"ELECT", "ASSIGN", "OWN"} <= set(moves)
    later = run("log", "tail", *kafka, "--no-follow", "--from", str(offsets[2]))
    assert later.stdout.splitlines()[0].split()[0] == str(offsets[2])
    assert run("log", "tail", *kafka, "--no-follow", "--from", "end").stdout == ""
    wrong = run("log", "tail", *kafka, "--no-follow", "--from", "soon")
    assert (wrong.returncode, "neither an offset" in wrong.stderr) == (2, True)
    history = run("balance", "history", *kafka, "--json")
    assert (history.returncode, json.loads(history.stdout)) == (0, [])  # nothing moves by itself


def test_doctor_finds_a_good_kafka_and_a_port_in_use(cluster: Dev, tmp_path: Path) -> None:
    arguments = ("doctor", "--bootstrap-servers", cluster.kafka, "--data-dir", str(tmp_path))
    alone = ("--set", "replicationFactor=1", "--set", "minInsyncReplicas=1")
    found = run(*arguments, *alone, "--http-port", str(cluster.port), "--json")
    findings = {finding["check"]: finding for finding in json.loads(found.stdout)}
    assert found.returncode == 1
    assert [name for name, finding in findings.items() if not finding["ok"]] == ["port"]
    assert "is in use" in findings["port"]["found"]
    assert "1 broker, 6 topics there and sound" in findings["kafka"]["found"]


def test_doctor_finds_what_a_node_would_refuse_of_kafka_and_makes_nothing(
    cluster: Dev, tmp_path: Path
) -> None:
    def kafka(prefix: str, *settings: str) -> Any:
        words = [f"topicPrefix={prefix}", "webServicePort=1", *settings]
        found = run(
            *("doctor", "--bootstrap-servers", cluster.kafka, "--data-dir", str(tmp_path)),
            *(part for word in words for part in ("--set", word)),
            "--json",
        )
        return {each["check"]: each for each in json.loads(found.stdout)}["kafka"]

    alone = ("replicationFactor=1", "minInsyncReplicas=1")
    for _ in range(2):  # the first one made none
        new = kafka("other.", *alone)
        assert (new["ok"], "6 topics that a node would make" in new["found"]) == (True, True)
    many = kafka("other.")
    assert (many["ok"], "set replicationFactor to what there are" in many["found"]) == (False, True)
    few = kafka("anabranch.", "replicationFactor=2", "minInsyncReplicas=1")
    assert not few["ok"]
    assert "anabranch.wal has replication factor 1, expected at least 2" in few["found"]


def test_dev_on_a_port_in_use_says_so_and_starts_nothing(cluster: Dev, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    port = str(cluster.port)
    found = run("dev", "--nodes", "1", "--http-port", port, "--data-dir", str(folder))
    assert found.returncode == 2
    assert f"port {port}" in found.stderr
    assert "another --http-port" in found.stderr
    assert not folder.exists()


def test_a_node_on_a_port_in_use_says_so(cluster: Dev, tmp_path: Path) -> None:
    found = run(
        *("node", "--bootstrap-servers", cluster.kafka, "--http-port", str(cluster.port)),
        *("--data-dir", str(tmp_path), "--set", "bindAddress=127.0.0.1"),
    )
    assert found.returncode == 2
    assert f"port {cluster.port} of 127.0.0.1" in found.stderr
    assert "Traceback" not in found.stderr


def test_a_node_with_other_settings_than_the_cluster_is_told_which(
    cluster: Dev, tmp_path: Path
) -> None:
    arguments = ("node", "--bootstrap-servers", cluster.kafka, "--data-dir", str(tmp_path))
    alone = ("--set", "replicationFactor=1", "--set", "minInsyncReplicas=1")
    port = ("--http-port", str(free_ports(1)), "--service-port", "0")
    other_lease = run(*arguments, *port, *alone, "--set", "leaseMillis=3000")
    assert other_lease.returncode == 2
    assert "leaseMillis is 15000, not 3000" in other_lease.stderr
    other_topics = run(*arguments, *port)
    assert other_topics.returncode == 2
    assert "anabranch.wal has replication factor 1, expected at least 3" in other_topics.stderr
    assert "Traceback" not in other_lease.stderr + other_topics.stderr
