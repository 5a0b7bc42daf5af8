"""Archive, audit and back-test on a standalone Spark whose workers have this installation."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.spark_replay.audit.run import AuditOptions, audit
from anabranch.spark_replay.backtest.run import backtest, parse_policies
from support.history import BROKERS, History, mixed
from support.kafka_history import append, name_archive, publish
from support.processes import COMMAND
from support.spark_cluster import BARE_PYTHON, SparkCluster, SparkWorker, spark_cluster

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.lasting]

_WAIT_S = 1_000.0
_TRANSFERS = 1_500
_SHUFFLED_BYTES = 40_000  # no shuffle but that of the log's records is as large


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("spark-cluster")) as running:
        yield running


def _command(cluster: SparkCluster, *arguments: str) -> list[str]:
    return [
        *COMMAND,
        *arguments,
        *("--master", cluster.master, "--spark-conf", "spark.executor.memory=512m"),
        *("--spark-conf", "spark.driver.memory=512m"),
    ]


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=_WAIT_S, check=False)


def _timeless(found: str) -> dict[str, Any]:
    """All of a report but how long it took."""
    report: dict[str, Any] = json.loads(found)
    del report["seconds"]
    return report


def _grown(history: History) -> History:
    """A bundle goes to and fro: enough for a replay that takes its time."""
    unit = history.units("acme/orders")[0]
    for _ in range(_TRANSFERS):
        owner = history.unit(unit).broker
        history.transfer(unit, next(broker for broker in BROKERS if broker != owner))
    return history


def test_an_audit_of_a_cluster_s_archive_survives_a_worker_and_says_what_a_local_one_says(
    cluster: SparkCluster,
    spark: SparkSession,
    kafka: EmbeddedKafka,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    history = mixed(rounds=2)
    history.registers("river")
    folder = tmp_path / "river"
    topics = publish(kafka, topic_prefix, history, history.snapshot())
    name_archive(kafka, topics, folder, "river")
    log = ("--bootstrap-servers", kafka.bootstrap_servers, "--set", f"topicPrefix={topic_prefix}")
    place = ("--archive-dir", folder.as_uri())
    archived = _run(_command(cluster, "archive", "--once", *log, *place))
    assert archived.returncode == 0, archived.stderr
    until = history.next_offset
    assert archived.stdout == f"archived up to offset {until} in {folder.as_uri()}\n"
    append(kafka, topics, _grown(history).entries[until:])

    report = tmp_path / "audit.json"
    command = _command(cluster, "audit", *log, *place, "--json", str(report))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        _holder_of_the_log(cluster, process).kill()
        assert process.poll() is None, "it had ended before the worker was killed"
        said, _ = process.communicate(timeout=_WAIT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, said
    options = AuditOptions(
        kafka.bootstrap_servers, topic_prefix=topic_prefix, archive_dir=folder.as_uri()
    )
    local = audit(spark, options)
    assert local.sound
    assert local.records == history.next_offset
    assert _timeless(report.read_text()) == _timeless(local.json())


def _holder_of_the_log(cluster: SparkCluster, process: subprocess.Popen[str]) -> SparkWorker:
    """Waits for a worker that holds a part of the log, which another stage is to read."""
    deadline = time.monotonic() + _WAIT_S
    while process.poll() is None and time.monotonic() < deadline:
        for worker in cluster.workers:
            if worker.shuffled_bytes() > _SHUFFLED_BYTES:
                return worker
        time.sleep(0.005)
    raise AssertionError(f"no worker held a part of the log: {process.communicate()[0]}")


def test_a_back_test_says_on_a_cluster_what_it_says_here(
    cluster: SparkCluster, spark: SparkSession, tmp_path: Path
) -> None:
    """After the test above, on the worker that is left."""
    load = tmp_path / "load.parquet"
    rows = [(f"orders-{n % 3}", 1_760_000_000_000 + n * 60_000, n * 100.0) for n in range(60)]
    pd.DataFrame(rows, columns=["topic", "time_ms", "msg_rate_in"]).to_parquet(load, index=False)
    report = tmp_path / "backtest.json"
    done = _run(_command(cluster, "backtest", "--load", str(load), "--json", str(report)))
    assert done.returncode == 0, done.stderr
    local = backtest(spark, load, parse_policies(["default"]))
    assert json.loads(report.read_text()) == msgspec.to_builtins(local.form())


def test_workers_without_this_release_are_refused_with_the_remedy(cluster: SparkCluster) -> None:
    command = _command(cluster, "backtest", "--spark-conf", f"spark.pyspark.python={BARE_PYTHON}")
    done = _run(command)
    assert done.returncode == 2, done.stdout
    assert f"cannot run Python tasks with {BARE_PYTHON}: ModuleNotFoundError" in done.stderr
    assert "--spark-conf spark.pyspark.python=PATH" in done.stderr
