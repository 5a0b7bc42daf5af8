"""What a node knows of the loads of segments and brokers, and asks Kafka about them."""

from __future__ import annotations

import time
from itertools import count
from typing import Any, cast

import msgspec

from anabranch.channel.balance_records import broker_load_record, top_bundles_record
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.load.loads import LoadTable, SegmentKey
from anabranch.channel.load.probe import LoadProbe
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.core.autoscale.load import LoadRecord
from anabranch.core.balance.broker_load import BrokerLoadData, ResourceUsage
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from support.told_offsets import Leaders
from support.waiting import WAIT_S

TOPIC = "public/default/orders"


def load(rate: float) -> LoadRecord:
    return LoadRecord(rate, 100 * rate, 0.0, 0.0)


def test_a_table_tells_incarnations_apart_and_forgets_what_is_taken_away() -> None:
    table = LoadTable()
    table.take([(SegmentKey(TOPIC, 7, 0), load(1).at(1)), (SegmentKey(TOPIC, 8, 0), load(2).at(2))])
    assert table.segments(TOPIC, 7)[0].msg_rate_in == 1
    assert table.segments(TOPIC, 8)[0].msg_rate_in == 2
    table.take([(SegmentKey(TOPIC, 7, 0), None), (SegmentKey(TOPIC, 7, 0), None)])
    assert list(table.places(TOPIC)) == [SegmentKey(TOPIC, 8, 0)]
    table.take([(SegmentKey(TOPIC, 8, 0), None)])
    assert list(table.topics()) == []


# --- brokers' loads and their top bundles, as they are stored and as they are read ----------------


def test_every_field_of_a_broker_s_load_is_stored_and_comes_back() -> None:
    number = count(1)
    values: list[Any] = [
        ResourceUsage(next(number), next(number)) if each.type is ResourceUsage else next(number)
        for each in msgspec.structs.fields(BrokerLoadData)
    ]
    load = BrokerLoadData(*values)
    assert broker_load_record(load).load == load


def test_a_report_of_top_bundles_comes_back_in_its_order() -> None:
    bundles = (("b", BundleLoad(msg_rate_in=1.5)), ("a", BundleLoad(topics=3)), ("c", BundleLoad()))
    report = TopBundlesLoadData(bundles, 7)
    assert top_bundles_record(report).load == report


# --- what Kafka does not answer keeps nobody else's answer back: its leaders are doubles ----------


DEAF = SegmentTopic("deaf", 1)
TIMEOUT_S = 0.2


def probe_of(kafka: Leaders) -> LoadProbe:
    return LoadProbe(cast(KafkaConnection, kafka))


def ends(probe: LoadProbe, topics: list[SegmentTopic], count: int) -> dict[str, Any]:
    """Asks until so many are told of: a busy machine may take all of a question's time."""
    deadline = time.monotonic() + WAIT_S
    while len(found := probe.ends(topics, TIMEOUT_S)) < count and time.monotonic() < deadline:
        pass
    return found


def test_a_partition_that_is_not_answered_for_keeps_no_other_back_however_many_there_are() -> None:
    topics = [SegmentTopic(f"t{number}", 4) for number in range(2_000)]
    kafka = Leaders({DEAF.name: [2], **{topic.name: [1] * 4 for topic in topics}}, frozenset({2}))
    found = ends(probe_of(kafka), [DEAF, *topics], len(topics))
    assert found == {topic.name: (5,) * 4 for topic in topics}


def test_nor_a_topic_that_must_be_learnt_of_first() -> None:
    kafka = Leaders({DEAF.name: [2]}, frozenset({2}))
    probe = probe_of(kafka)
    asked = [DEAF, SegmentTopic("new", 1)]
    assert probe.ends(asked, TIMEOUT_S) == {}
    kafka.topics["new"] = [1]
    assert ends(probe, asked, 1) == {"new": (5,)}


def test_a_topic_of_which_not_all_partitions_are_told_has_no_end() -> None:
    kafka = Leaders({"a": [1, 2], "b": [1, 1]}, frozenset({2}))
    assert ends(probe_of(kafka), [SegmentTopic("a", 2), SegmentTopic("b", 2)], 1) == {"b": (5, 5)}
