"""Queues on a Kafka that cannot keep the state of share groups: who is told, and what."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from anabranch import client as sdk
from anabranch.client import sync
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.kafka.settings import Differences
from support.commands import run_here
from support.quiet import QUIET
from support.secured_kafka import LIMITED, SecuredKafka, rights_of_a_node
from support.topic_cluster import Servers, topic_cluster
from support.waiting import WAIT_S

_SETTING = "share.coordinator.state.topic.replication.factor"
_SOON_S = 15.0


def _names(kafka: EmbeddedKafka) -> set[str]:
    """The topics and groups that there are."""
    admin = AdminClient({**QUIET, "bootstrap.servers": kafka.bootstrap_servers})
    groups = admin.list_consumer_groups().result(WAIT_S).valid
    return {*admin.list_topics(timeout=WAIT_S).topics, *(each.group_id for each in groups)}


def _doctor(kafka: Servers, prefix: str, folder: Path, *flags: str) -> tuple[bool, str]:
    found = run_here(
        *("doctor", "--bootstrap-servers", kafka.bootstrap_servers, "--data-dir", str(folder)),
        *("--set", f"topicPrefix={prefix}", "--set", "replicationFactor=1", "--json"),
        *("--set", "minInsyncReplicas=1", *flags),
    )
    finding = {each["check"]: each for each in json.loads(found.stdout)}["share groups"]
    return finding["ok"], finding["found"]


def _subscribes_in_vain(subscribe: Callable[[], object]) -> None:
    began = time.monotonic()
    with pytest.raises(sdk.KafkaReadError, match=rf"{_SETTING}=3: .*only 1 broker"):
        subscribe()
    assert time.monotonic() - began < _SOON_S


def _blocking(url: str, topic: str) -> None:
    with sync.connect(url) as client:
        _subscribes_in_vain(lambda: client.subscribe_queue(topic, "jobs"))


@pytest.mark.long
def test_subscribing_and_the_doctor_name_the_setting_by_which_kafka_has_no_share_groups(
    topic_prefix: str, tmp_path: Path
) -> None:
    topic = "public/default/orders"
    three_copies = Differences(server={_SETTING: "3"})

    async def subscribed(url: str) -> object:
        async with sdk.Client(url) as client:
            return await client.subscribe_queue(topic, "jobs")

    with (
        EmbeddedKafka(tmp_path / "kafka", differences=three_copies) as kafka,
        topic_cluster(kafka, topic_prefix, tmp_path) as running,
    ):
        asyncio.run(running.create(topic))
        _subscribes_in_vain(lambda: asyncio.run(subscribed(running.url)))
        _blocking(running.url, topic)
        before = _names(kafka)
        ok, found = _doctor(kafka, topic_prefix, tmp_path)
        assert (ok, f"{_SETTING}=3" in found, "only 1 broker" in found) == (False, True, True), (
            found
        )
        assert "left behind" not in found
        assert _names(kafka) <= before


def test_the_doctor_takes_a_record_through_a_share_group_and_leaves_nothing(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    before = _names(kafka)
    ok, found = _doctor(kafka, topic_prefix, tmp_path)
    assert (ok, found.startswith("a record came through a share group in ")) == (True, True), found
    assert not {name for name in _names(kafka) - before if name.startswith(topic_prefix)}


def test_the_doctor_names_the_right_that_it_lacks(
    secured_kafka: SecuredKafka, topic_prefix: str, tmp_path: Path
) -> None:
    file = secured_kafka.properties_file(secured_kafka.security(LIMITED))
    rights = rights_of_a_node(topic_prefix)
    secured_kafka.allow(*(each for each in rights if each[0] != "groups"))
    flags = ("--kafka-properties", str(file))
    ok, found = _doctor(secured_kafka, topic_prefix, tmp_path, *flags)
    assert (ok, "Group authorization failed" in found, "on groups: Read" in found) == (
        False,
        True,
        True,
    )
    assert f"topic {topic_prefix}" not in found, "that is not left behind"
    secured_kafka.allow(*rights)
    assert _doctor(secured_kafka, topic_prefix, tmp_path, *flags)[0]
