"""Kafka's leaders change in the middle of splits and merges, as they do when brokers restart."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from anabranch.client import Client
from anabranch.wire.kafka import producer_state
from support import channel
from support.causality_rounds import judged
from support.kafka_brokers import KafkaBrokers
from support.leader_moves import LeaderMoves
from support.processes import descendants
from support.quiet import QUIET
from support.topic_cluster import TopicCluster, topic_cluster
from support.waiting import WAIT_S

pytestmark = pytest.mark.long

# Three copies of everything, of which two must have a message before it is acknowledged.
_THREE_COPIES = (
    "replicationFactor=3",
    "minInsyncReplicas=2",
    "scalableTopicEntryBucketBudget=8",
)
_SAFE = {
    "unclean.leader.election.enable": "false",
    "offsets.topic.replication.factor": "3",
    "default.replication.factor": "3",
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBrokers]:
    with KafkaBrokers(tmp_path_factory.mktemp("brokers"), 3, _SAFE) as running:
        yield running


@pytest.fixture
def cluster(brokers: KafkaBrokers, topic_prefix: str, tmp_path: Path) -> Iterator[TopicCluster]:
    """Two nodes with three copies of everything, of which two must be in sync."""
    with topic_cluster(brokers, topic_prefix, tmp_path, *_THREE_COPIES) as running:
        yield running


async def test_an_effect_never_comes_before_its_cause_though_leaders_change_in_each_split(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    await judged(cluster, client, topic, 2, LeaderMoves(cluster.kafka))


def test_what_a_leader_has_of_a_producer_is_told_once_it_cannot_be_lost(
    brokers: KafkaBrokers, topic_prefix: str
) -> None:
    """Else a former leader would tell of it that was frozen, and does not know it is none yet."""
    topic, leader, follower = f"{topic_prefix}t", brokers.numbered(2), brokers.numbered(3)
    user = AdminClient({**QUIET, "bootstrap.servers": brokers.bootstrap_servers})
    made = NewTopic(topic, 1, replica_assignment=[[2, 3]], config={"min.insync.replicas": "2"})
    user.create_topics([made])[topic].result(WAIT_S)
    settings = {"enable.idempotence": True, "linger.ms": 0}
    writer = KafkaProducer({**QUIET, "bootstrap.servers": brokers.bootstrap_servers, **settings})
    writer.produce(topic, b"copied")
    assert writer.flush(WAIT_S) == 0
    host, _, port = leader.bootstrap_servers.partition(":")

    def told() -> list[int] | str:
        try:
            states = producer_state.ask((host, int(port)), (topic, 0), 1, {}, WAIT_S)
        except OSError as error:
            return str(error)
        return [each.last_sequence for each in states]

    assert told() == [0]
    assert follower._supervisor is not None
    (frozen,) = descendants(follower._supervisor.pid)
    os.kill(frozen, signal.SIGSTOP)
    try:
        writer.produce(topic, b"not copied")
        seen: list[list[int] | str] = []  # Kafka soon goes on without the frozen one

        def is_there() -> bool:
            seen.append(told())
            return seen[-1] != [0]

        channel.until(is_there, "the leader has it")
        assert seen[-1] == f"{topic}[0] reaches to 2, and is committed up to 1"
    finally:
        os.kill(frozen, signal.SIGCONT)
    assert writer.flush(WAIT_S) == 0
    channel.until(lambda: told() == [1], "it is told")
