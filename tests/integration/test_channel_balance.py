"""The topics of brokers' loads and top bundles on a real Kafka."""

from __future__ import annotations

from anabranch.channel.codec import encode_broker_load
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.load import balance_records
from anabranch.channel.load.balance import KafkaBrokerLoads, KafkaTopBundles
from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from support.channel import produce_raw, until


def load(topic_count: int) -> balance_records.BrokerLoadRecord:
    return balance_records.broker_load_record(BrokerLoadData(topics=topic_count), "some.Class")


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
        first.write({"b1:80": load(1), "b2:80": load(2), "b3:80": load(3)})
        until(lambda: len(known(first)) == 3, "all three are read")
        first.write({"b1:80": load(11), "b2:80": None})
        until(lambda: known(first) == {"b1:80": 11, "b3:80": 3}, "what has changed is read")
        produce_raw(connection, topics.broker_load, b"b9:80", b"damage")
        produce_raw(connection, topics.broker_load, b"strange key", encode_broker_load(load(1)))
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
