"""`anabranch doctor --kafka-topics`: no operator on Kubernetes may manage topics of nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from anabranch.cli.main import cli
from anabranch.cli.node.kafka_topics import ManagedTopicsError, judged
from anabranch.core.errors import InvalidInputError
from anabranch.core.topics.kafka_names import segments_head

PREFIX = "anabranch."
SEGMENT = f"{segments_head(PREFIX)}acme.shop.orders.0000-ffff-0.7"


def item(name: str, topic: str | None = None, managed: str | None = None) -> dict[str, Any]:
    annotations = {} if managed is None else {"annotations": {"strimzi.io/managed": managed}}
    spec = {} if topic is None else {"spec": {"topicName": topic, "partitions": 1}}
    at = {"name": name, "namespace": "kafka", "uid": "1"}
    return {"kind": "KafkaTopic", "metadata": {**at, **annotations}, **spec, "status": {}}


def printed(*items: dict[str, Any]) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()


@pytest.mark.parametrize(
    "found", [item(SEGMENT), item("seg", SEGMENT), item("wal", "anabranch.wal", "true")]
)
def test_a_managed_one_of_ours_is_named_with_both_steps_in_order(found: dict[str, Any]) -> None:
    with pytest.raises(ManagedTopicsError) as told:
        judged(printed(item("orders"), found), PREFIX)
    name = found["metadata"]["name"]
    assert str(told.value).endswith(
        f"kubectl -n kafka annotate --overwrite kafkatopic {name} strimzi.io/managed=false && "
        f"kubectl -n kafka delete kafkatopic {name}"
    )
    assert "1 topic of nodes" in str(told.value)


def test_those_of_strangers_and_those_that_are_not_managed_are_well() -> None:
    others = (
        item("orders"),
        item("a", "anabranch-orders"),
        {"kind": "Pod", "metadata": {"name": "anabranch.wal"}},
    )
    assert judged(printed(), PREFIX).startswith("0 KafkaTopics")
    assert judged(printed(*others), PREFIX).startswith("2 KafkaTopics, none")
    told = judged(printed(*others, item("seg", SEGMENT, "false")), PREFIX)
    assert told.endswith("; delete the 1 that stand for one")


def test_an_adopted_topic_keeps_its_name_and_is_known_by_the_setting() -> None:
    entries = ("acme/shop=orders", "acme/shop=eu.*")
    for name in ("orders", "eu.bills"):
        with pytest.raises(ManagedTopicsError, match=f"annotate --overwrite kafkatopic {name} "):
            judged(printed(item(name)), PREFIX, entries)
    told = judged(printed(item("orders2"), item("eu.bills", managed="false")), PREFIX, entries)
    assert told.endswith("or one that may be adopted; delete the 1 that stand for one")


def test_the_doctor_takes_adoptable_topics_of_the_settings() -> None:
    asked = ["doctor", "--json", "--kafka-topics", "-", "--set", "adoptableTopics=acme/shop=orders"]
    told = json.loads(CliRunner().invoke(cli, asked, input=printed(item("orders"))).stdout)
    assert (told[-1]["check"], told[-1]["ok"]) == ("KafkaTopics", False)


def test_many_are_counted_and_not_all_shown() -> None:
    with pytest.raises(ManagedTopicsError, match=r"9 topics of nodes.* and 4 more"):
        judged(printed(*(item(f"t{n}", f"{SEGMENT}{n}") for n in range(9))), PREFIX)


@pytest.mark.parametrize(
    "text", [b"", b"No resources found", b"[]", b'{"items": 1}', b'{"items":[{}]}', b"\xff", b"{}"]
)
def test_what_kubectl_has_not_printed_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidInputError, match="not what `kubectl get kafkatopics -A -o json`"):
        judged(text, PREFIX)


def test_the_doctor_takes_them_from_a_file_or_its_input_and_knows_the_prefix(
    tmp_path: Path,
) -> None:
    text = printed(item("seg", "river.segment.a"))
    (tmp_path / "topics.json").write_bytes(text)
    for prefix, found in (("river.", False), ("anabranch.", True)):
        for file in ("-", str(tmp_path / "topics.json")):
            asked = ["doctor", "--json", "--kafka-topics", file, "--set", f"topicPrefix={prefix}"]
            told = json.loads(CliRunner().invoke(cli, asked, input=text).stdout)
            assert [(each["check"], each["ok"]) for each in told][-1] == ("KafkaTopics", found)
