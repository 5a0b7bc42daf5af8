"""Requests to Kafka about segments are cut to what Kafka takes at once."""

import pytest

from anabranch.channel.segments import admin
from anabranch.channel.segments.sealing import SegmentTopic, together

KAFKA_RECORDS_MAX = 10_000


@pytest.mark.parametrize(("count", "partitions"), [(1, 1024), (3, 2), (2_000, 1), (2_000, 40)])
def test_no_request_makes_more_records_than_kafka_takes_and_none_is_left_out(
    count: int, partitions: int
) -> None:
    topics = [SegmentTopic(f"t{number}", partitions) for number in range(count)]
    runs = list(together(topics, admin._RECORDS_AT_ONCE, admin._RECORDS_OF_TOPIC))
    assert [topic for run in runs for topic in run] == topics
    records = [sum(10 + topic.partitions for topic in run) for run in runs]
    assert max(records) < KAFKA_RECORDS_MAX
    assert len(runs) <= 1 + sum(records) // 8_000
