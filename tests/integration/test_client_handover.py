"""Consumers whose controller moves: they are told, and do not wait for their next report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.channel.embedded.kafka import EmbeddedKafka
from anabranch.client import Client
from support.topic_cluster import TopicCluster, run_on, topic_cluster

pytestmark = pytest.mark.integration

_RECEIVE_S = 20.0
# A consumer reports every sixth of it: no test here waits for one.
PATIENT = (
    "scalableTopicConsumerSessionTimeoutSeconds=600",
    "scalableTopicConsumerSessionGracePeriodSeconds=6000",
)


@pytest.fixture
def nodes(kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path) -> Iterator[TopicCluster]:
    with topic_cluster(kafka, topic_prefix, tmp_path, *PATIENT) as running:
        yield running


def test_a_consumer_follows_a_controller_that_moved_without_waiting_for_its_report(
    nodes: TopicCluster,
) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        consumer = await client.subscribe(topic, "billing")
        producer = await client.create_producer(topic)
        await producer.send(b"before", "key")
        consumer.acknowledge(await consumer.receive(_RECEIVE_S))
        await cluster.unload()
        await cluster.split(topic, 0)
        await producer.send(b"after", "key")
        # The child is given out by the new controller, which must hear of the drain first.
        assert (await consumer.receive(_RECEIVE_S)).value == b"after"

    run_on(nodes, body, 1, 60.0)
