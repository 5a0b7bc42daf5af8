"""Queues on a Kafka that cannot keep the state of share groups: who is told, and what."""

from __future__ import annotations

import asyncio
import re
import struct
import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from anabranch import client as sdk
from anabranch.client import sync
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.kafka.settings import Differences
from anabranch.wire.kafka.protocol import (
    NO_TAGS,
    BrokerConnection,
    array,
    bootstrap_addresses,
    text,
)
from support import channel
from support.probing import probed
from support.quiet import QUIET
from support.secured_kafka import LIMITED, SecuredKafka, rights_of_a_node
from support.topic_cluster import Servers, topic_cluster
from support.waiting import WAIT_S

_SETTING = "share.coordinator.state.topic.replication.factor"
_PATIENCE_S = 9.0
_SOON_S = 2 * _PATIENCE_S
_ALL_GONE = "the scratch topics are gone"  # a broker hears of a deletion at a time of its own


def _names(kafka: EmbeddedKafka) -> set[str]:
    """The topics and groups that there are."""
    admin = AdminClient({**QUIET, "bootstrap.servers": kafka.bootstrap_servers})
    groups = admin.list_consumer_groups().result(WAIT_S).valid
    return {*admin.list_topics(timeout=WAIT_S).topics, *(each.group_id for each in groups)}


def _doctor(kafka: Servers, prefix: str, folder: Path, *flags: str) -> tuple[bool, str]:
    finding = probed(kafka.bootstrap_servers, prefix, folder, *flags)["share groups"]
    return finding["ok"], finding["found"]


def _turn_off(kafka: EmbeddedKafka) -> None:
    """As where Kafka was upgraded and its features were not (UpdateFeatures, KIP-584)."""
    (address,) = bootstrap_addresses(kafka.bootstrap_servers)
    feature = text("share.version") + struct.pack(">hb", 0, 2) + NO_TAGS
    with closing(BrokerConnection(address, {}, WAIT_S)) as connection:
        asked = struct.pack(">i", 10_000) + array([feature]) + b"\0" + NO_TAGS
        answer = connection.ask(57, 1, asked)
    answer.skip(4)  # throttle time
    assert answer.unpack(">h") == (0,)


def _blocking(url: str, topic: str) -> None:
    with sync.Client(url) as client:
        client.subscribe_queue(topic, "jobs", subscribe_timeout_s=_PATIENCE_S)


async def _subscribed(url: str, topic: str) -> None:
    async with sdk.Client(url) as client:
        await client.subscribe_queue(topic, "jobs", subscribe_timeout_s=_PATIENCE_S)


@pytest.mark.long
@pytest.mark.lasting
@pytest.mark.parametrize(
    ("copies", "is_off", "why"),
    [("3", False, _SETTING), ("1", True, "--feature share.version=1")],
)
def test_subscribing_and_the_doctor_say_why_kafka_has_no_share_groups(
    topic_prefix: str, tmp_path: Path, copies: str, is_off: bool, why: str
) -> None:
    topic = "public/default/orders"
    differences = Differences(server={_SETTING: copies})
    with EmbeddedKafka(tmp_path / "kafka", differences=differences) as kafka:
        if is_off:
            _turn_off(kafka)
        with topic_cluster(kafka, topic_prefix, tmp_path) as running:
            asyncio.run(running.create(topic))
            for subscribe in (_blocking, lambda *who: asyncio.run(_subscribed(*who))):
                began = time.monotonic()
                with pytest.raises(sdk.KafkaReadError, match=why):
                    subscribe(running.url, topic)
                assert time.monotonic() - began < _SOON_S
        before = _names(kafka)
        ok, found = _doctor(kafka, topic_prefix, tmp_path)
        assert (ok, bool(re.search(why, found)), "left behind" in found) == (False, True, False), (
            found
        )
        channel.until(lambda: _names(kafka) <= before, _ALL_GONE)


def test_the_doctor_takes_a_record_through_a_share_group_and_leaves_nothing(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    before = _names(kafka)
    ok, found = _doctor(kafka, topic_prefix, tmp_path)
    assert (ok, found.startswith("a record came through a share group in ")) == (True, True), found

    def is_cleared() -> bool:
        return not any(name.startswith(topic_prefix) for name in _names(kafka) - before)

    channel.until(is_cleared, _ALL_GONE)


def test_the_doctor_deletes_what_one_that_died_has_left(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    admin = AdminClient({**QUIET, "bootstrap.servers": kafka.bootstrap_servers})
    left, other = f"{topic_prefix}doctor.0a1b2c3d4e5f.3", f"{topic_prefix}doctor.visits"
    for future in admin.create_topics([NewTopic(left, 1, 1), NewTopic(other, 1, 1)]).values():
        future.result(WAIT_S)
    found = probed(kafka.bootstrap_servers, topic_prefix, tmp_path)
    assert "1 topic of a doctor that died" in found["leftovers"]["found"]

    def is_cleared() -> bool:
        return [name for name in _names(kafka) if name.startswith(topic_prefix)] == [other]

    channel.until(is_cleared, _ALL_GONE)


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
