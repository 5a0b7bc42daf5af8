"""Commands about a cluster, against real nodes."""

import json
from pathlib import Path
from typing import Any

from support.commands import run_here
from support.processes import run
from support.topic_cluster import TopicCluster

TOPIC = "persistent://public/default/orders"
ALONE = ("--set", "replicationFactor=1", "--set", "minInsyncReplicas=1")


def shown(*arguments: str) -> Any:
    found = run_here(*arguments, "--json")
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def log_of(cluster: TopicCluster) -> tuple[str, ...]:
    """Flags for a command that reads Kafka itself."""
    return ("--bootstrap-servers", cluster.kafka, "--set", f"topicPrefix={cluster.prefix}")


def test_bundles_and_brokers_agree(cluster: TopicCluster) -> None:
    first, second = (node.url for node in cluster.nodes)
    shown("lookup", TOPIC, "--url", first)
    bundles = shown("bundles", "public/default", "--url", first)["bundles"]
    brokers = shown("brokers", "--url", second)["brokers"]
    owned = [bundle for bundle in bundles if bundle["state"] == "OWNED"]
    assert 0 < len(owned) <= sum(broker["bundles"] for broker in brokers)
    assert [broker["leader"] for broker in brokers].count(True) == 1
    lines = run_here("bundles", "--url", first).stdout.splitlines()
    assert lines[0].split() == ["BUNDLE", "STATE", "BROKER", "VERSION"]
    assert len(lines) == 1 + len(bundles)
    assert "leader" in run_here("brokers", "--url", first).stdout


def test_log_tail_shows_records_with_their_verdicts(cluster: TopicCluster) -> None:
    shown("lookup", TOPIC, "--url", cluster.nodes[0].url)
    tail = ("log", "tail", *log_of(cluster), "--no-follow")
    found = run_here(*tail, "--json")
    assert found.returncode == 0, found.stderr
    entries = [json.loads(line) for line in found.stdout.splitlines()]
    offsets = [entry["offset"] for entry in entries]
    assert offsets == sorted(offsets)
    # The second node wrote the cluster's settings too, if it came before it had read the first's.
    assert (entries[0]["type"], entries[0]["verdict"]) == ("ClusterSettings", "ACCEPTED")
    moves = [entry["record"]["move"] for entry in entries if entry["type"] == "UnitMove"]
    assert {"ELECT", "ASSIGN", "OWN"} <= set(moves)
    later = run_here(*tail, "--from", str(offsets[2]))
    assert later.stdout.splitlines()[0].split()[0] == str(offsets[2])
    newer = run_here(*tail, "--from", "end").stdout.splitlines()  # by those who share the cluster
    assert all(int(line.split()[0]) > offsets[-1] for line in newer)


def test_doctor_finds_what_a_node_would_refuse_and_makes_nothing(
    cluster: TopicCluster, tmp_path: Path
) -> None:
    port = str(cluster.nodes[0].port)

    def doctor(prefix: str, *settings: str) -> tuple[int, dict[str, Any]]:
        found = run_here(
            *("doctor", "--bootstrap-servers", cluster.kafka, "--data-dir", str(tmp_path)),
            *("--set", f"topicPrefix={prefix}", "--http-port", port, "--json", *settings),
        )
        return found.returncode, {each["check"]: each for each in json.loads(found.stdout)}

    status, findings = doctor(cluster.prefix, *ALONE)
    assert status == 1
    assert [name for name, each in findings.items() if not each["ok"]] == ["port"]
    assert "is in use" in findings["port"]["found"]
    assert "1 broker, 6 topics there and sound" in findings["kafka"]["found"]
    for _ in range(2):  # the first one made none
        new = doctor(f"{cluster.prefix}other.", *ALONE)[1]["kafka"]
        assert (new["ok"], "6 topics that a node would make" in new["found"]) == (True, True)
    many = doctor(f"{cluster.prefix}other.")[1]["kafka"]
    assert (many["ok"], "set replicationFactor to what there are" in many["found"]) == (False, True)
    few = doctor(cluster.prefix, "--set", "replicationFactor=2", *ALONE[2:])[1]["kafka"]
    assert not few["ok"]
    assert f"{cluster.prefix}wal has replication factor 1, expected at least 2" in few["found"]


def test_dev_on_a_port_in_use_says_so_and_starts_nothing(
    cluster: TopicCluster, tmp_path: Path
) -> None:
    folder = tmp_path / "other"
    port = str(cluster.nodes[0].port)
    found = run("dev", "--nodes", "1", "--http-port", port, "--data-dir", str(folder))
    assert found.returncode == 2
    assert f"port {port}" in found.stderr
    assert "another --http-port" in found.stderr
    assert not folder.exists()
