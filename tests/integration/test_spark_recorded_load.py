"""Loads that a cluster has written, archived and back-tested."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from anabranch.channel.codec import encode_load
from anabranch.channel.kafka.topics import Topics
from anabranch.core.autoscale.load import LoadRecord, load_key
from anabranch.core.autoscale.policy import AutoScalePolicy
from anabranch.core.errors import InvalidInputError
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.spark_replay.archive.writer import ArchiveOptions, archive_once
from anabranch.spark_replay.backtest.recorded import read_ranges, read_recorded
from anabranch.spark_replay.backtest.run import BacktestOptions, backtest
from support.history import START_MS, mixed
from support.kafka_history import append, make_topics
from support.quiet import QUIET
from support.topic_history import ORDERS, create, reshape, topic_of

pytestmark = pytest.mark.spark

_MINUTE = 60_000
_FIRST_MS = START_MS // _MINUTE * _MINUTE
_POLICIES = {"default": AutoScalePolicy()}
Written = tuple[int, str, LoadRecord | None]  # when, key, load


def _load(rate: float) -> LoadRecord:
    return LoadRecord(rate, 100 * rate, 2 * rate, 200 * rate, False, False)


def _write(kafka: EmbeddedKafka, topics: Topics, written: list[Written]) -> None:
    admin = AdminClient({**QUIET, "bootstrap.servers": kafka.bootstrap_servers})
    recorded = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
    admin.create_topics([NewTopic(topics.load, 1, 1, config=recorded)])[topics.load].result(30)
    producer = Producer({**QUIET, "bootstrap.servers": kafka.bootstrap_servers})
    for at_ms, key, load in written:
        value = None if load is None else encode_load(load)
        producer.produce(topics.load, value, key.encode(), 0, timestamp=at_ms)
    producer.produce(topics.load, b"damage", written[0][1].encode(), 0, timestamp=written[-1][0])
    producer.produce(topics.load, b"x", b"something else", 0, timestamp=written[-1][0])
    assert producer.flush(30) == 0


def test_recorded_loads_lie_where_their_segments_lay(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    topics = make_topics(kafka, topic_prefix)
    history = mixed(rounds=1)
    create(history, segments=2)
    reshape(history, (0,))  # 2 and 3 take the place of 0
    incarnation = topic_of(history).incarnation
    append(kafka, topics, history.entries)

    def at(minute: int, segment_id: int, load: LoadRecord | None) -> Written:
        return (_FIRST_MS + minute * _MINUTE, load_key(ORDERS, incarnation, segment_id), load)

    _write(
        kafka,
        topics,
        [
            *(at(0, 0, _load(1.0)), at(0, 0, _load(8_000.0)), at(0, 1, _load(1_000.0))),
            # Nobody has written that 0 is over.
            *(at(2, 2, _load(9_000.0)), at(2, 3, _load(30.0))),
            *(at(3, 1, None), at(4, 1, _load(500.0))),
            at(5, 99, _load(7.0)),  # no such segment
        ],
    )
    folders = tmp_path / "loads", tmp_path / "log"
    for folder, loads in zip(folders, (True, False), strict=True):
        options = ArchiveOptions(
            kafka.bootstrap_servers, folder, topic_prefix=topic_prefix, loads=loads
        )
        archive_once(spark, options)

    name = f"{ORDERS}/{incarnation}"
    ranges = {
        (topic, each): (a, b) for topic, each, a, b in read_ranges(spark, folders[1]).collect()
    }
    assert ranges == {
        (name, 0): (0, 32_767),
        (name, 1): (32_768, 65_535),
        (name, 2): (0, 16_383),
        (name, 3): (16_384, 32_767),
    }
    found = sorted(
        (row.topic, (row.time_ms - _FIRST_MS) // _MINUTE, row.hash_start, row.msg_rate_in)
        for row in read_recorded(spark, folders[0], folders[1], 60).collect()
    )
    low, middle, high = 0, 16_384, 32_768
    assert found == [
        *((name, 0, low, 8_000.0), (name, 0, high, 1_000.0)),
        *((name, 2, low, 9_000.0), (name, 2, middle, 30.0), (name, 2, high, 1_000.0)),
        *((name, 3, low, 9_000.0), (name, 3, middle, 30.0)),
        *((name, 4, low, 9_000.0), (name, 4, middle, 30.0), (name, 4, high, 500.0)),
        *((name, 5, low, 9_000.0), (name, 5, middle, 30.0), (name, 5, high, 500.0)),
    ]
    recorded = BacktestOptions(load_archive=folders[0], archive_dir=folders[1])
    (topic,) = backtest(spark, recorded, _POLICIES, {}).topics
    assert (topic.topic, topic.fault) == (name, "")
    assert topic.load[:4] == pytest.approx([9_000, 9_000, 10_030, 9_030])

    # Without the log it is known how much there was, not where.
    sums = {
        (row.time_ms - _FIRST_MS) // _MINUTE: (row.msg_rate_in, row.hash_start)
        for row in read_recorded(spark, folders[0], None, 60).collect()
    }
    assert (sums[0], sums[3]) == ((9_000.0, None), (8_000 + 9_000 + 30, None))

    with pytest.raises(InvalidInputError, match=r"no load of any segment: is it the log's archive"):
        read_recorded(spark, folders[1], None, 60)
