"""The load topic on a real Kafka: what is written there, and what every node makes of it."""

from __future__ import annotations

from confluent_kafka import Producer
from structlog.testing import capture_logs

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.load.loads import KafkaLoads, LoadTable, SegmentKey
from anabranch.channel.load.probe import LoadProbe
from anabranch.channel.segments.admin import SegmentAdmin, SegmentSettings
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.core.autoscale.load import LoadRecord
from support.channel import until
from support.quiet import QUIET
from support.waiting import WAIT_S

TOPIC = "public/default/orders"


def load(rate: float) -> LoadRecord:
    return LoadRecord(rate, 100 * rate, 0.0, 0.0, False, True)


class Node:
    """What a node does with the topic."""

    def __init__(self, connection: KafkaConnection, topics: Topics) -> None:
        self.loads = KafkaLoads(connection, topics)
        self.table = LoadTable()

    def poll(self) -> None:
        self.table.take(self.loads.poll(0.1))

    def is_whole(self) -> bool:
        self.poll()
        return self.loads.is_whole

    def is_written(self) -> bool:
        self.poll()
        return self.loads.waiting == 0

    def rates(self) -> dict[int, float]:
        return {n: each.msg_rate_in for n, each in self.table.segments(TOPIC, 7).items()}

    def until(self, rates: dict[int, float]) -> None:
        def reached() -> bool:
            self.poll()
            return self.rates() == rates

        until(reached, f"{rates} are known")


def test_a_node_that_starts_later_knows_the_newest_load_of_each_segment(
    connection: KafkaConnection, topics: Topics
) -> None:
    first, later = Node(connection, topics), None
    try:
        first.loads.write({SegmentKey(TOPIC, 7, n): load(n) for n in range(4)})
        first.until({0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0})
        first.loads.write({SegmentKey(TOPIC, 7, 1): load(11), SegmentKey(TOPIC, 7, 2): None})
        first.until({0: 0.0, 1: 11.0, 3: 3.0})
        later = Node(connection, topics)
        assert not later.loads.is_whole
        later.until({0: 0.0, 1: 11.0, 3: 3.0})
        until(later.is_whole, "the topic is read to its end")
        assert len(later.table) == 3
        found = later.table.segments(TOPIC, 7)[1]
        assert found.estimated == (False, True)
        assert found.modified_ms > 1_600_000_000_000
    finally:
        first.loads.close()
        if later is not None:
            later.loads.close()


def test_of_loads_that_wait_for_kafka_only_the_newest_of_a_segment_is_written(
    connection: KafkaConnection, topics: Topics
) -> None:
    node = Node(connection, topics)
    try:
        for rate in range(100):
            node.loads.write({SegmentKey(TOPIC, 7, 0): load(rate)})
        node.until({0: 99.0})
        until(node.is_written, "everything is written")
        assert node.loads.written == 1
    finally:
        node.loads.close()


def test_kafka_is_asked_where_segments_end_and_how_large_messages_are(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    names = [f"{topic_prefix}{n}" for n in range(3)]
    parts = [SegmentTopic(name, 2) for name in names]
    admin = SegmentAdmin(connection, SegmentSettings())
    probe = LoadProbe(connection)
    try:
        admin.create(parts, WAIT_S)
        admin.await_leaders(parts, WAIT_S)
        until(lambda: len(probe.ends(parts, WAIT_S)) == len(parts), "all have leaders")
        producer = Producer({**QUIET, "bootstrap.servers": connection.bootstrap_servers})
        for number in range(100):
            producer.produce(names[0], b"x" * 300, partition=number % 2)
        producer.produce(names[1], b"x" * 50, partition=1)
        assert producer.flush(WAIT_S) == 0
        ends = probe.ends([*parts, SegmentTopic(f"{topic_prefix}gone", 1)], WAIT_S)
        assert ends == {names[0]: (50, 50), names[1]: (0, 1), names[2]: (0, 0)}
        assert probe.sizes(ends, WAIT_S) == {names[0]: 300.0, names[1]: 50.0}
        assert probe.committed(f"{topic_prefix}nobody", parts, WAIT_S) == dict.fromkeys(names, 0)
    finally:
        probe.close()
        admin.close()


def test_a_kafka_that_is_away_is_told_of_in_few_lines_and_nothing_is_lost() -> None:
    loads = KafkaLoads(KafkaConnection("127.0.0.1:1"), Topics("away."))
    try:
        with capture_logs() as lines:
            loads.write({SegmentKey(TOPIC, 7, n): load(n) for n in range(500)})

            def told() -> int:
                loads.poll(0.1)
                return sum(line.get("count", 0) for line in lines)

            until(lambda: told() >= 500, "all are reported as not written")
        assert len(lines) < 20
        assert loads.waiting == 500
    finally:
        loads.close()
