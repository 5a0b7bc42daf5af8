"""The back-test in real Spark, from its files to its reports."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
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
from anabranch.spark_replay.backtest.job import BacktestPlan, replayed, topic_result
from anabranch.spark_replay.backtest.model import Rules
from anabranch.spark_replay.backtest.recorded import read_ranges, read_recorded
from anabranch.spark_replay.backtest.run import BacktestOptions, backtest
from anabranch.spark_replay.backtest.traces import SAMPLE, TraceDefaults, read_traces
from anabranch.spark_replay.report.charts import Bins
from support.history import START_MS, mixed
from support.kafka_history import append, make_topics
from support.processes import CTRL_C_S_MAX, START_S_MAX
from support.quiet import QUIET
from support.topic_history import ORDERS, create, reshape, topic_of

pytestmark = pytest.mark.spark

_POLICIES = {"default": AutoScalePolicy(), "off": AutoScalePolicy(enabled=False)}


def _lines(topic: str, rates: list[float]) -> Iterator[str]:
    for at, rate in enumerate(rates):
        yield f"{topic},2025-01-01T{at // 60:02d}:{at % 60:02d}:00Z,{rate}"


def _csv(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["topic,time,msg_rate_in", *lines]) + "\n", encoding="utf-8")
    return path


def _command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs it in that folder."""
    return subprocess.run(
        [sys.executable, "-m", "anabranch.cli", "backtest", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=START_S_MAX,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
        cwd=folder,
    )


def test_the_command_compares_policies_and_names_what_it_leaves_out(tmp_path: Path) -> None:
    load = _csv(
        tmp_path / "load.csv",
        *_lines("shop/orders", [15_000.0] * 10 + [100.0] * 20),
        *_lines("shop/returns", [3.0] * 30),
        *_lines("bad/negative", [1.0, -1.0]),
        "bad/twice,2025-01-01T00:00:00Z,1",
        "bad/twice,2025-01-01T00:00:00Z,2",
        "bad/time,yesterday,1",
        "bad/rate,2025-01-01T00:00:00Z,much",
    )
    json_path, html_path = tmp_path / "result.json", tmp_path / "result.html"
    answer = _command(
        tmp_path,
        *("--load", load.name, "--json", json_path.name, "--html", html_path.name),
        *("--policy", "default", "--policy", 'off={"enabled": false}'),
        *("--policy", 'wrong={"minSegments": 0}'),
    )
    assert answer.returncode == 2
    for what in (
        "The policy wrong is left out: Invalid auto split/merge configuration: minSegments",
        "The topic bad/negative is left out: a rate is negative at 2025-01-01T00:01",
        "The topic bad/twice is left out: there are two rows for 2025-01-01T00:00",
        "The topic bad/time is left out: a time is missing",
        "The topic bad/rate is left out: a rate is no number",
    ):
        assert what in answer.stderr
    found = json.loads(json_path.read_text())
    assert [each["name"] for each in found["policies"]] == ["default", "off"]
    default, off = (each["total"] for each in found["policies"])
    assert (default["splits"], default["merges"], default["flaps"]) == (1, 1, 1)
    assert (default["over_threshold_s"], off["over_threshold_s"]) == (60, 600)
    assert (default["segment_hours"], off["segment_hours"]) == (1.25, 1.0)
    assert sorted(found["left_out"]["topics"]) == [
        *("bad/negative", "bad/rate", "bad/time", "bad/twice")
    ]
    page = html_path.read_text()
    assert "shop/orders" in page
    assert "<svg" in page
    assert "shop/returns  off" in answer.stdout
    assert set(tmp_path.iterdir()) == {load, json_path, html_path}


def test_spark_comes_to_what_each_topic_alone_comes_to(spark: SparkSession) -> None:
    plan = BacktestPlan(
        _POLICIES, Rules(consumers=3), Bins(1425254400000, 3_600_000, 24 * 28), mean_rate=6_000
    )
    load = read_traces(spark, [SAMPLE], TraceDefaults(500.0, 2.0)).where("topic like 'functions/%'")
    found = {each.topic: each for each in replayed(spark, load, plan)}
    frame = pd.read_parquet(SAMPLE)
    frame["bytes_rate_in"] = frame["msg_rate_in"] * 500
    frame["msg_rate_out"] = frame["msg_rate_in"] * 2
    frame["bytes_rate_out"] = frame["bytes_rate_in"] * 2
    wanted = {
        str(topic): topic_result(str(topic), rows, plan)
        for topic, rows in frame[frame["topic"].str.startswith("functions/")].groupby("topic")
    }
    assert found == wanted
    assert any(outcome.figures.splits for each in found.values() for outcome in each.outcomes)


def test_parquet_with_all_columns_is_taken_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "load.parquet"
    columns = {
        "topic": ["t", "t", "t", "t"],
        "time": pd.to_datetime(
            ["2025-01-01T00:00Z", "2025-01-01T00:00Z", *["2025-01-01T00:01Z"] * 2]
        ),
        "hash_start": [0, 32_768, 0, 32_768],
        "hash_end": [32_767, 65_535, 32_767, 65_535],
        "msg_rate_in": [9_000.0, 2_000.0, 9_000.0, 2_000.0],
        "bytes_rate_in": [1.0, 1.0, 1.0, 1.0],
        "msg_rate_out": [1.0, 1.0, 1.0, 1.0],
        "bytes_rate_out": [1.0, 1.0, 1.0, 1.0],
        "consumers": [5, 5, 6, 6],
    }
    pd.DataFrame(columns).to_parquet(file, index=False, coerce_timestamps="us")
    found = backtest(spark, BacktestOptions([file]), _POLICIES, {})
    (topic,) = found.topics
    assert (topic.end_ms - topic.begin_ms, topic.load) == (120_000, [11_000.0, 11_000.0])
    assert found.total("default").actions == {"consumer-count": 2}


def test_what_is_no_load_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "others.csv"
    file.write_text("msg_rate_in,when\n1,2\n", encoding="utf-8")
    lacking = "has no column topic, time; it has msg_rate_in, when"
    with pytest.raises(InvalidInputError, match=lacking):
        backtest(spark, BacktestOptions([file]), _POLICIES, {})
    text = tmp_path / "load.txt"
    text.write_text("nothing")
    with pytest.raises(InvalidInputError, match=r"neither Parquet nor a file whose name ends"):
        backtest(spark, BacktestOptions([text]), _POLICIES, {})
    empty = _csv(tmp_path / "load.csv")
    with pytest.raises(InvalidInputError, match="no rows with a time"):
        backtest(spark, BacktestOptions([empty]), _POLICIES, {})
    only_bad = _csv(tmp_path / "bad.csv", *_lines("t", [math.inf]))
    with pytest.raises(InvalidInputError, match="no topic of the load can be used"):
        backtest(spark, BacktestOptions([only_bad]), _POLICIES, {})


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_interrupted_has_told_where_it_is_and_leaves_no_folder(
    how: signal.Signals, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with told.open("wb") as errors:
        running = subprocess.Popen(
            [sys.executable, "-m", "anabranch.cli", "backtest"],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, "TMPDIR": str(scratch)},
            # Whoever runs the tests in the background has made them, and it, ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    deadline = time.monotonic() + START_S_MAX
    try:
        # Once while Spark is being started, and once when it is at work.
        step = "starting Spark" if how is signal.SIGINT else "replaying the loads"
        while f"backtest: {step}\n" not in told.read_text() or not list(scratch.iterdir()):
            assert time.monotonic() < deadline, told.read_text()
            time.sleep(0.05)
        running.send_signal(how)
        assert running.wait(CTRL_C_S_MAX) == 130, told.read_text()
    finally:
        running.kill()
        running.wait()
    assert list(scratch.glob("anabranch-*")) == []
    assert "Traceback" not in told.read_text()


# --- loads that a cluster has written -------------------------------------------------------------


_MINUTE = 60_000
_FIRST_MS = START_MS // _MINUTE * _MINUTE
_ONE_POLICY = {"default": AutoScalePolicy()}
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
    (topic,) = backtest(spark, recorded, _ONE_POLICY, {}).topics
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
