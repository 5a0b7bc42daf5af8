"""The Kafka that integration tests share: one per pytest process."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.kafka.settings import Differences
from anabranch.spark_replay.spark.session import spark_session
from support.spark_cluster import SHORT_LIVED_JVM
from support.topic_cluster import TopicCluster, topic_cluster

# What is too old to be kept goes at once, and not in one run of many, when five minutes are over.
_EAGER = Differences({"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "500"})

# For each Spark that is started here, and by the commands that tests run.
os.environ["SPARK_SUBMIT_OPTS"] = SHORT_LIVED_JVM


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A running Kafka. Tests share it, so each uses its own `topic_prefix`.

    A test that stops or kills Kafka starts one of its own instead.
    """
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka"), differences=_EAGER) as node:
        yield node


@pytest.fixture(scope="module")
def cluster(
    kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TopicCluster]:
    """Two running nodes with scalable topics; the tests of a module share them."""
    folder = tmp_path_factory.mktemp("nodes")  # another name each time
    with topic_cluster(kafka, f"{folder.name}.", folder) as running:
        yield running


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A running Spark, which takes a while to start."""
    with spark_session("tests", tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def topic_prefix(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A prefix, ending with a dot, for the topics of one test: no other test has it."""
    # pytest numbers the temporary directories of tests, repeated and parametrized ones included.
    return f"{tmp_path.parent.name}.{tmp_path.name}."
