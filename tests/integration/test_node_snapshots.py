import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anabranch.channel.bootstrap import SnapshotReader
from anabranch.channel.connection import KafkaConnection
from anabranch.channel.embedded.kafka import EmbeddedKafka
from anabranch.channel.topics import Topics
from support.channel import commit_archived
from support.kafka_cluster import WAIT_S, first_offset, kafka_cluster
from support.memory_cluster import until

pytestmark = pytest.mark.integration


def test_a_snapshot_topic_that_was_lost_is_written_whole(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    topics, connection = Topics(topic_prefix), KafkaConnection(kafka.bootstrap_servers)

    def stored() -> set[str]:
        snapshot = SnapshotReader(connection, topics)
        rows = [row for batch in snapshot.batches() for row in batch]
        return {key.decode() for key, value in rows if value is not None} if rows else set()

    async def body() -> None:
        async with kafka_cluster(kafka, topic_prefix, tmp_path, 0) as nodes:
            settings = nodes.settings(snapshotIntervalSeconds=0.2)
            node = await nodes.start(settings)
            await node.operations.tenancy.create_tenant("old", [], ["standalone"])
            end = node.operations.position().next_offset
            await until(lambda: node.operations.position().horizon >= end, WAIT_S)
            await node.stop()
            await nodes.crash(node)
            admin = connection.admin()
            await asyncio.to_thread(admin.delete_topics([topics.snapshot])[topics.snapshot].result)
            again = await nodes.start(settings)
            await again.operations.tenancy.create_tenant("new", [], ["standalone"])
            end = again.operations.position().next_offset
            await until(lambda: again.operations.position().horizon >= end, WAIT_S)
            assert await asyncio.to_thread(stored) >= {
                "cluster",
                "leadership",
                "tenant:old",
                "tenant:new",
                "namespace:public/default",
                "public/default/0x00000000_0x40000000",
            }

    asyncio.run(body())


def log_tail(kafka: EmbeddedKafka, prefix: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "anabranch.broker.cli", "log", "tail", "--no-follow", "--json"]
    place = ["--bootstrap-servers", kafka.bootstrap_servers, "--set", f"topicPrefix={prefix}"]
    done = subprocess.run([*command, *place], check=True, stdout=subprocess.PIPE, timeout=60)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_quiet_log_is_trimmed_once_it_is_archived_and_what_is_left_can_be_tailed(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    async def body() -> None:
        async with kafka_cluster(kafka, topic_prefix, tmp_path, 0) as nodes:
            node = await nodes.start(nodes.settings(snapshotIntervalSeconds=0.2))
            await node.operations.tenancy.create_tenant("one", [], ["standalone"])
            end = node.operations.position().next_offset
            await until(lambda: node.operations.position().horizon >= end, WAIT_S)
            assert first_offset(kafka, topic_prefix) == 0
            commit_archived(kafka, Topics(topic_prefix), end)
            await until(lambda: first_offset(kafka, topic_prefix) >= end, WAIT_S)
            # A snapshot may come at any time, and verdicts are known from the newest one on.
            shown = await asyncio.to_thread(log_tail, kafka, topic_prefix)
            assert all(line["offset"] >= end for line in shown)

    asyncio.run(body())
