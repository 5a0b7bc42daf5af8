"""The Kafka that integration tests share: one per pytest process."""

import asyncio
import itertools
import os
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics, TopicSettings, ensure_topics
from anabranch.client import Client
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.kafka.settings import Differences
from anabranch.spark_replay.spark.session import kill_jvm, spark_session
from support.hand_made_topic import HandMadeTopic
from support.java_clients import java_clients
from support.kafka_brokers import KafkaBrokers
from support.kafka_cluster import kafka_cluster
from support.opening import Opening
from support.secured_kafka import SecuredKafka
from support.spark_cluster import SHORT_LIVED_JVM
from support.tcp_proxy import ProxiedKafka, proxied_kafka
from support.topic_cluster import TEST_S, TopicCluster, topic_cluster
from support.waiting import WAIT_S

_FOLDER = Path(__file__).parent
_numbers = itertools.count()
_NAME_MAX = 24  # a prefix has 40 characters at most, also with a word behind it
# What is too old to be kept goes at once, and not in one run of many, when five minutes are over.
_EAGER = Differences({"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "500"})

# For each Spark that is started here, and by the commands that tests run.
os.environ["SPARK_SUBMIT_OPTS"] = SHORT_LIVED_JVM


@pytest.fixture(scope="session")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedKafka]:
    """The shared Kafka with its proxies; a test leaves them as it found them."""
    with proxied_kafka(tmp_path_factory.mktemp("kafka"), _EAGER) as running:
        yield running


@pytest.fixture(scope="session")
def kafka(proxied: ProxiedKafka) -> EmbeddedKafka:
    """A running Kafka. Tests share it, so each uses its own `topic_prefix`.

    A test that stops or kills Kafka starts one of its own instead.
    """
    return proxied.kafka


@pytest.fixture
def connection(kafka: EmbeddedKafka) -> KafkaConnection:
    return KafkaConnection(kafka.bootstrap_servers)


@pytest.fixture
def topics(connection: KafkaConnection, topic_prefix: str) -> Topics:
    """The topics of a cluster, made and empty."""
    topics = Topics(topic_prefix)
    ensure_topics(connection, topics, TopicSettings(), WAIT_S)
    return topics


@pytest.fixture(scope="session")
def cluster(
    kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TopicCluster]:
    """Two running nodes with scalable topics, for all tests: each has topics of its own.

    A test that ends a node, or wants settings, starts a cluster of its own instead.
    """
    folder = tmp_path_factory.mktemp("nodes")
    with topic_cluster(kafka, f"{folder.name}.", folder) as running:
        yield running
        assert all(node.is_running for node in running.nodes), "a test has ended a shared node"


@pytest.fixture
def segments() -> int:
    """So many the `topic` of a test has at first, if its parameter says nothing else."""
    return 1


@pytest.fixture
def topic(cluster: TopicCluster, segments: int) -> str:
    """A new topic, `tenant/namespace/name`."""
    name = f"public/default/new-{next(_numbers)}"
    asyncio.run(cluster.create(name, segments))
    return name


@pytest.fixture
def buckets() -> int:
    """So many each segment of `made` has, if the test's parameter says nothing else."""
    return 4


@pytest.fixture
def made(kafka: EmbeddedKafka, topic_prefix: str, segments: int, buckets: int) -> Opening:
    """A `HandMadeTopic`."""
    return Opening(
        lambda: HandMadeTopic(
            topic_prefix, kafka.bootstrap_servers, segments=segments, buckets=buckets
        )
    )


@pytest.fixture
def count() -> int:
    """So many nodes there are at first, if the test's parameter says nothing else."""
    return 3


@pytest.fixture
def nodes(kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path, count: int) -> Opening:
    """A `KafkaCluster` of the test's own."""
    return Opening(lambda: kafka_cluster(kafka, topic_prefix, tmp_path, count))


@pytest.fixture
def client(cluster: TopicCluster) -> Opening:
    """A `Client` of the cluster."""
    return Opening(lambda: Client(cluster.url))


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBrokers]:
    """A Kafka of three brokers, for the tests of one file, which may kill some."""
    with KafkaBrokers(tmp_path_factory.mktemp("brokers"), 3) as running:
        yield running


@pytest.fixture(scope="session")
def java() -> Iterator[Any]:
    """The view of a Java with Kafka's clients (`java_clients`)."""
    with java_clients() as running:
        yield running


@pytest.fixture(scope="session")
def secured_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """A running Kafka that asks for TLS and a password: each test has a prefix of its own."""
    with SecuredKafka(tmp_path_factory.mktemp("secured")) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A running Spark, which takes a while to start."""
    with spark_session("tests", tmp_path_factory.mktemp("spark")) as session:
        yield session
    kill_jvm()  # else it would end after us, and count as left behind


@pytest.fixture
def topic_prefix(tmp_path: Path) -> str:
    """A prefix, ending with a dot, for the topics of one test: no other test has it."""
    # pytest uses the name of a folder again, once the test that had it has passed.
    return f"{tmp_path.name[:_NAME_MAX]}.{next(_numbers)}."


def _in_time(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, TEST_S))


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves a file to one worker, since its tests share nodes, and all that share a Spark, or a
    secured Kafka, to one, too: the long tests of a file by what they share themselves, because no
    run has the others beside them. All are marked `integration`; a coroutine has a real loop, and
    so much time.
    """
    ours = [(item, _part(item)) for item in items if item.path.is_relative_to(_FOLDER)]
    groups = {part: part[0].stem for _, part in ours}
    for item, part in ours:
        for shared in ("spark", "secured_kafka"):
            if shared in getattr(item, "fixturenames", ()):
                groups[part] = shared
    for item, part in ours:
        item.add_marker(pytest.mark.integration)
        item.add_marker(pytest.mark.xdist_group(groups[part]))
        item.add_marker(pytest.mark.loops.with_args(_in_time))


def _part(item: pytest.Item) -> tuple[Path, bool]:
    """Its file, and whether `make test-long` has it."""
    return item.path, item.get_closest_marker("long") is not None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fails where xdist left the groups out, as its 3.8 does with pytest 9.2, without a word."""
    if session.config.getoption("loadgroup", default=False):
        ungrouped = [
            item.nodeid
            for item in session.items
            if item.path.is_relative_to(_FOLDER) and "@" not in item.nodeid
        ]
        assert not ungrouped, f"pytest-xdist gave no group to {ungrouped[0]}"
