import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka import Producer

from anabranch.broker.errors import StartError
from anabranch.broker.node.node import Node
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.snapshots.reader import SnapshotReader
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.channel import archive_to
from support.kafka_cluster import KafkaCluster, first_offset
from support.memory_cluster import until
from support.quiet import QUIET
from support.there import there
from support.waiting import WAIT_S

pytestmark = pytest.mark.parametrize("count", [0])


async def snapshotted(node: Node, tenant: str) -> int:
    """Makes a tenant; returns where the log ends, once a snapshot stands for all of it."""
    await node.operations.tenancy.create_tenant(tenant, [], ["standalone"])
    end = node.operations.position().next_offset
    await until(lambda: node.operations.position().horizon >= end, WAIT_S)
    return end


async def test_a_snapshot_topic_that_was_lost_is_written_whole(
    nodes: KafkaCluster, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    topics, connection = Topics(topic_prefix), KafkaConnection(kafka.bootstrap_servers)

    def stored() -> set[str]:
        rows = [row for batch in SnapshotReader(connection, topics).batches() for row in batch]
        return {key.decode() for key, value in rows if value is not None} if rows else set()

    settings = nodes.settings(snapshotIntervalSeconds=0.2)
    node = await nodes.start(settings)
    await snapshotted(node, "old")
    await node.stop()
    await nodes.crash(node)
    admin = connection.admin()
    await asyncio.to_thread(admin.delete_topics([topics.snapshot])[topics.snapshot].result)
    await snapshotted(await nodes.start(settings), "new")
    assert await asyncio.to_thread(stored) >= {
        "cluster",
        "leadership",
        "tenant:old",
        "tenant:new",
        "namespace:public/default",
        "public/default/0x00000000_0x40000000",
    }


async def test_the_log_waits_for_every_archive_and_says_which_until_it_is_retired(
    nodes: KafkaCluster, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    topics = Topics(topic_prefix)
    node = await nodes.start(nodes.settings(snapshotIntervalSeconds=0.2, archiveStalledSeconds=0.5))
    await asyncio.to_thread(archive_to, kafka, topics, 2, "gone")
    await node.operations.tenancy.create_tenant("one", [], ["standalone"])
    end = node.operations.position().next_offset
    await asyncio.to_thread(archive_to, kafka, topics, end, "good")
    await until(lambda: first_offset(kafka, topic_prefix) == 2, WAIT_S)
    await until(lambda: any("archive gone " in each for each in node.operations.concerns()), WAIT_S)
    behind = "anabranch_archive_behind_records"
    assert there(node.metrics.registry.get_sample_value(behind, {"archive": "gone"})) >= end - 2
    assert first_offset(kafka, topic_prefix) == 2
    listed = await asyncio.to_thread(archive_command, kafka, topic_prefix, "--list")
    assert [line.split()[0] for line in listed.splitlines()] == ["ARCHIVE", "gone", "good"]
    await asyncio.to_thread(archive_command, kafka, topic_prefix, "--retire", "gone")
    await until(lambda: first_offset(kafka, topic_prefix) >= end, WAIT_S)
    await until(
        lambda: not any("archive gone " in each for each in node.operations.concerns()), WAIT_S
    )


def archive_command(kafka: EmbeddedKafka, prefix: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "anabranch.cli", "archive", *arguments]
    place = ["--bootstrap-servers", kafka.bootstrap_servers, "--set", f"topicPrefix={prefix}"]
    done = subprocess.run([*command, *place], check=True, stdout=subprocess.PIPE, timeout=WAIT_S)
    return done.stdout.decode()


def put_into_snapshot(kafka: EmbeddedKafka, prefix: str, key: bytes, value: bytes | None) -> None:
    writer = Producer({**QUIET, "bootstrap.servers": kafka.bootstrap_servers})
    writer.produce(Topics(prefix).snapshot, value, key, 0)
    assert not writer.flush(WAIT_S)


async def test_a_node_goes_on_past_a_stranger_s_key_in_the_snapshot_and_stops_at_a_missing_row(
    nodes: KafkaCluster, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    node = await nodes.start(nodes.settings(snapshotIntervalSeconds=0.2))
    await snapshotted(node, "one")
    await asyncio.to_thread(put_into_snapshot, kafka, topic_prefix, b"\xff\xfe", b"junk")
    fresh = await nodes.start()
    (concern,) = fresh.operations.concerns()
    assert r"b'\xff\xfe'" in concern
    assert "was left out" in concern
    assert fresh.operations.position().digest == node.operations.position().digest
    await asyncio.to_thread(put_into_snapshot, kafka, topic_prefix, BUNDLE.encode(), None)
    with pytest.raises(StartError, match=r"it has 10 keys of 11.*delete"):
        await nodes.start()


BUNDLE = "public/default/0x40000000_0x80000000"


def append_in_transaction(kafka: EmbeddedKafka, prefix: str) -> None:
    wal = Topics(prefix).wal
    place = {**QUIET, "bootstrap.servers": kafka.bootstrap_servers}
    writer = Producer({**place, "transactional.id": f"{prefix}stranger"})
    writer.init_transactions(WAIT_S)
    writer.begin_transaction()
    writer.produce(wal, b"junk", b"junk", 0)
    writer.commit_transaction(WAIT_S)


def log_tail(kafka: EmbeddedKafka, prefix: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "anabranch.cli", "log", "tail", "--no-follow", "--json"]
    place = ["--bootstrap-servers", kafka.bootstrap_servers, "--set", f"topicPrefix={prefix}"]
    done = subprocess.run([*command, *place], check=True, stdout=subprocess.PIPE, timeout=WAIT_S)
    return [json.loads(line) for line in done.stdout.splitlines()]


async def test_a_quiet_log_is_trimmed_once_it_is_archived_and_what_is_left_can_be_tailed(
    nodes: KafkaCluster, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    node = await nodes.start(nodes.settings(snapshotIntervalSeconds=0.2))
    end = await snapshotted(node, "one")
    assert first_offset(kafka, topic_prefix) == 0
    archive_to(kafka, Topics(topic_prefix), end)
    await until(lambda: first_offset(kafka, topic_prefix) >= end, WAIT_S)
    begins = first_offset(kafka, topic_prefix)
    later = await snapshotted(node, "two")
    # A stranger's transaction leaves a mark behind the last record, which is no record.
    await asyncio.to_thread(append_in_transaction, kafka, topic_prefix)
    shown = await asyncio.to_thread(log_tail, kafka, topic_prefix)
    # Verdicts are known from the newest snapshot on, and the rest is shown all the same.
    offsets = [line["offset"] for line in shown]
    assert offsets == list(range(begins, offsets[-1] + 1))
    assert offsets[-1] >= later
    assert [each["verdict"] for each in shown[: later - begins]] == [None] * (later - begins)
    assert shown[-1]["verdict"] == "UNREADABLE"
