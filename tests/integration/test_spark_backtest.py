"""The back-test in real Spark, from its files to its reports."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
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
from anabranch.core.errors import InvalidInputError
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.spark_replay.archive.writer import ArchiveOptions, archive_once
from anabranch.spark_replay.backtest.loads import read_recorded
from anabranch.spark_replay.backtest.run import BacktestOptions, backtest, with_defaults
from support.history import START_MS
from support.kafka_history import make_topics
from support.processes import CTRL_C_S_MAX, START_S_MAX
from support.quiet import QUIET

pytestmark = pytest.mark.spark

_MINUTE = 60_000


def _written(path: Path, rates: dict[str, list[float]]) -> Path:
    """A load with a row a minute for each topic."""
    first_ms = 1_735_689_600_000
    rows = [
        (topic, first_ms + at * _MINUTE, rate)
        for topic, every in rates.items()
        for at, rate in enumerate(every)
    ]
    pd.DataFrame(rows, columns=["topic", "time_ms", "msg_rate_in"]).to_parquet(path, index=False)
    return path


def test_the_command_compares_policies_and_names_what_it_leaves_out(tmp_path: Path) -> None:
    loads = {
        "shop/orders": [15_000.0] * 10 + [100.0] * 20,
        "shop/returns": [3.0] * 30,
        "bad/negative": [1.0, -1.0],
    }
    load = _written(tmp_path / "load.parquet", loads)
    json_path, html_path = tmp_path / "result.json", tmp_path / "result.html"
    answer = subprocess.run(
        [
            *(sys.executable, "-m", "anabranch.cli", "backtest", "--load", load.name),
            *("--json", json_path.name, "--html", html_path.name),
            *("--policy", "default", "--policy", 'off={"enabled": false}'),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=START_S_MAX,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
        cwd=tmp_path,
    )
    assert answer.returncode == 2
    why = "The topic bad/negative is left out: a rate is negative at 2025-01-01T00:01"
    assert why in answer.stderr
    found = json.loads(json_path.read_text())
    assert [each["name"] for each in found["policies"]] == ["default", "off"]
    default, off = (each["total"] for each in found["policies"])
    assert (default["splits"], default["merges"], default["flaps"]) == (1, 1, 1)
    assert (default["over_threshold_s"], off["over_threshold_s"]) == (60, 600)
    assert (default["segment_hours"], off["segment_hours"]) == (1.25, 1.0)
    assert list(found["left_out"]) == ["bad/negative"]
    page = html_path.read_text()
    assert "shop/orders" in page
    assert "<svg" in page
    assert "shop/returns  off" in answer.stdout
    assert set(tmp_path.iterdir()) == {load, json_path, html_path}


def test_what_is_no_load_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    for columns, what in (
        ({"msg_rate_in": [1.0], "when": [2]}, "has no column topic, time_ms; it has msg_rate_in"),
        ({"topic": ["t"], "time_ms": [1], "msg_rate_in": ["much"]}, "is no load in Parquet"),
        ({"topic": [], "time_ms": [], "msg_rate_in": []}, "no rows with a time"),
    ):
        file = tmp_path / "load.parquet"
        pd.DataFrame(columns).to_parquet(file, index=False)
        with pytest.raises(InvalidInputError, match=what):
            backtest(spark, with_defaults(BacktestOptions(file)))
    text = tmp_path / "load.txt"
    text.write_text("nothing")
    with pytest.raises(InvalidInputError, match="is no load in Parquet"):
        backtest(spark, with_defaults(BacktestOptions(text)))
    only_bad = _written(file, {"t": [math.inf]})
    with pytest.raises(InvalidInputError, match="no topic of the load can be used: a rate is no"):
        backtest(spark, with_defaults(BacktestOptions(only_bad)))


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


def test_recorded_loads_of_a_topic_s_segments_are_added_up(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    topics = make_topics(kafka, topic_prefix)
    first_ms = START_MS // _MINUTE * _MINUTE

    def at(minute: int, segment_id: int, load: LoadRecord | None) -> Written:
        return (first_ms + minute * _MINUTE, load_key("a/b/orders", 7, segment_id), load)

    _write(
        kafka,
        topics,
        [
            *(at(0, 0, _load(1.0)), at(0, 0, _load(8_000.0)), at(0, 1, _load(1_000.0))),
            *(at(2, 0, None), at(2, 2, _load(9_000.0)), at(2, 3, _load(30.0))),
            *(at(3, 1, None), at(4, 1, _load(500.0))),
        ],
    )
    options = ArchiveOptions(
        kafka.bootstrap_servers, tmp_path, topic_prefix=topic_prefix, loads=True
    )
    archive_once(spark, options)
    rows = read_recorded(spark, tmp_path, 60).collect()
    found = sorted((each.topic, each.time_ms - first_ms, each.msg_rate_in) for each in rows)
    rates = [(0, 9_000.0), (2, 10_030.0), (3, 9_030.0), (4, 9_530.0)]
    assert found == [("a/b/orders/7", minute * _MINUTE, rate) for minute, rate in rates]
    (topic,) = backtest(spark, with_defaults(BacktestOptions(load_archive=tmp_path))).topics
    assert (topic.topic, topic.fault) == ("a/b/orders/7", "")
    assert topic.load[:4] == pytest.approx([9_000, 9_000, 10_030, 9_030])
