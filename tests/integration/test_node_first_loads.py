"""What a node that starts knows of the others' loads when it begins to serve."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from anabranch.channel.balance_records import broker_load_record
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.load.balance import BrokerLoadChange, KafkaBrokerLoads
from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.names import parse_topic
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.channel import until
from support.kafka_cluster import kafka_cluster

# Later than any test ends, so that nobody tells a load but the test.
_NEVER = {"loadBalancerReportUpdateMinIntervalMillis": 600_000}
_LATE = "balance.loads_not_read"


async def test_a_node_that_serves_knows_what_the_others_have_told(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    with capture_logs() as lines:
        async with kafka_cluster(kafka, topic_prefix, tmp_path, 1, **_NEVER) as cluster:
            (first,) = cluster.nodes
            broker = first.settings.broker_id
            told = BrokerLoadData(weighted_max_ema=0.5, updated_at_ms=first.runtime.core.log_ms)
            outbox = KafkaBrokerLoads(
                KafkaConnection(kafka.bootstrap_servers), Topics(topic_prefix)
            )
            outbox.follows = False
            try:
                outbox.write({broker: broker_load_record(told)})
                await asyncio.to_thread(
                    until, lambda: not outbox.poll(0.1) and not outbox.waiting, "it is written"
                )
            finally:
                outbox.close()
            later = await cluster.start(cluster.settings(**_NEVER))
            known = later.operations.balance.board.of(broker)  # at once: nothing is waited for
            assert known is not None
            assert known.weighted_max_ema == 0.5
    assert _LATE not in [line["event"] for line in lines]


async def test_a_node_serves_though_kafka_does_not_give_the_loads_and_says_so_once(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = threading.Event()
    poll = KafkaBrokerLoads.poll

    def slow(self: KafkaBrokerLoads, timeout_s: float) -> list[BrokerLoadChange]:
        return poll(self, timeout_s) if given.wait(timeout_s) else []

    monkeypatch.setattr(KafkaBrokerLoads, "poll", slow)

    with capture_logs() as lines:
        async with kafka_cluster(kafka, topic_prefix, tmp_path, 1, **_NEVER) as cluster:
            (node,) = cluster.nodes
            assert len(node.operations.balance.board) == 0
            located = await node.operations.lookups.lookup(
                *parse_topic("persistent://public/default/first")
            )
            assert located.broker == node.settings.broker_id
            given.set()  # Kafka answers at last, and what it gives is taken in
    assert [line["event"] for line in lines].count(_LATE) == 1
