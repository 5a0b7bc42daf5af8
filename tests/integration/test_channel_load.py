"""The topics of loads on a real Kafka: what is written there, and what every node makes of it."""

from __future__ import annotations

from confluent_kafka import Producer
from structlog.testing import capture_logs

from anabranch.channel import balance_records
from anabranch.channel.codec import BROKER_LOADS
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.load.balance import KafkaBrokerLoads, KafkaTopBundles
from anabranch.channel.load.loads import KafkaLoads, LoadTable, SegmentKey
from anabranch.channel.load.probe import LoadProbe
from anabranch.channel.segments.admin import SegmentAdmin, SegmentSettings
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.core.autoscale.load import LoadRecord
from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from support.channel import produce_raw, until
from support.quiet import QUIET
from support.waiting import WAIT_S

TOPIC = "public/default/orders"


def load(rate: float) -> LoadRecord:
    return LoadRecord(rate, 100 * rate, 0.0, 0.0)


def test_of_loads_that_wait_for_kafka_only_the_newest_of_a_segment_is_written(
    connection: KafkaConnection, topics: Topics
) -> None:
    loads, table = KafkaLoads(connection, topics), LoadTable()

    def rates() -> dict[int, float]:
        table.take(loads.poll(0.1))
        return {n: each.msg_rate_in for n, each in table.segments(TOPIC, 7).items()}

    try:
        for rate in range(100):
            loads.write({SegmentKey(TOPIC, 7, 0): load(rate)})
        until(lambda: rates() == {0: 99.0}, "the newest load is known")
        until(lambda: bool(rates()) and loads.waiting == 0, "everything is written")
        assert loads.written == 1
    finally:
        loads.close()


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


# --- of brokers and their top bundles -------------------------------------------------------------


def broker_load(topic_count: int) -> balance_records.BrokerLoadRecord:
    return balance_records.broker_load_record(BrokerLoadData(topics=topic_count))


def report(bundle: str) -> balance_records.TopBundlesRecord:
    return balance_records.top_bundles_record(
        TopBundlesLoadData(((bundle, BundleLoad(topics=2)),), 7)
    )


def test_a_node_that_starts_has_the_newest_load_of_every_broker(
    connection: KafkaConnection, topics: Topics
) -> None:
    first = KafkaBrokerLoads(connection, topics)
    found: dict[str, balance_records.BrokerLoadRecord | None] = {}

    def known(loads: KafkaBrokerLoads) -> dict[str, int]:
        found.update(loads.poll(0.1))
        return {broker: each.topics for broker, each in found.items() if each is not None}

    try:
        first.write({"b1:80": broker_load(1), "b2:80": broker_load(2), "b3:80": broker_load(3)})
        until(lambda: len(known(first)) == 3, "all three are read")
        first.write({"b1:80": broker_load(11), "b2:80": None})
        until(lambda: known(first) == {"b1:80": 11, "b3:80": 3}, "what has changed is read")
        produce_raw(connection, topics.broker_load, b"b9:80", b"damage")
        produce_raw(
            connection, topics.broker_load, b"strange key", BROKER_LOADS.encode(broker_load(1))
        )
    finally:
        first.close()
    found.clear()
    later = KafkaBrokerLoads(connection, topics)
    try:
        until(lambda: bool(known(later)) and later.is_whole, "the topic is read to its end")
        assert (known(later), later.unreadable) == ({"b1:80": 11, "b3:80": 3}, 2)
    finally:
        later.close()


def test_top_bundles_are_read_only_while_somebody_wants_them(
    connection: KafkaConnection, topics: Topics
) -> None:
    top = KafkaTopBundles(connection, topics)
    found: dict[str, balance_records.TopBundlesRecord | None] = {}

    def read() -> int:
        found.update(top.poll(0.1))
        return len(found)

    try:
        top.write({"b1:80": report("a/b/0x00000000_0xffffffff")})

        def is_written() -> bool:
            read()
            return top.waiting == 0

        until(is_written, "the report is written")
        assert not found
        assert not top.is_whole
        top.follows = True
        until(lambda: read() == 1 and top.is_whole, "the leader reads it")
        assert found == {"b1:80": report("a/b/0x00000000_0xffffffff")}
        top.follows = False
        assert top.poll(0) == []
        top.write({"b2:80": report("a/b/0x00000000_0xffffffff")})
        until(is_written, "the second report is written")
        assert len(found) == 1
        assert not top.is_whole
        top.follows = True  # another term: all is read again
        found.clear()
        until(lambda: read() == 2, "both reports are read")
    finally:
        top.close()
