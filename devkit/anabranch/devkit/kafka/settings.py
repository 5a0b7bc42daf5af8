"""The configuration of the embedded Kafka: server.properties, and the options of its JVM."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from anabranch.jars.artifacts import JarSet

HOST: Final = "127.0.0.1"
LOG4J_FILE: Final = Path(__file__).with_name("log4j2.yaml")

# One broker has all replicas of everything; few partitions and threads keep a small machine's
# start quick.
_FIXED: Final = {
    "process.roles": "broker,controller",
    "auto.create.topics.enable": "false",
    "node.id": "1",
    "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "BROKER",
    "controller.listener.names": "CONTROLLER",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    # Metadata waits for no company: topics are made, and the broker registers, without the pause
    # in which the controller would collect more records.
    "controller.quorum.append.linger.ms": "0",
    # After a crash the controller admits the broker only when its former session has lapsed. But
    # one that lapses because the machine stood still leaves no broker to make topics on.
    "broker.session.timeout.ms": "8000",
    "broker.heartbeat.interval.ms": "250",
    # A Kafka that is alone has nobody to hand its partitions to. While it tries, it answers that
    # there is no broker at all, and librdkafka 2.16 then forgets where Kafka is, for good
    # (confluentinc/librdkafka, issue 5301).
    "controlled.shutdown.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    # The default takes a quarter of our heap.
    "log.cleaner.dedupe.buffer.size": "16777216",
    # Compaction is part of what is developed and tested here, so it does not keep one waiting.
    "log.cleaner.backoff.ms": "1000",
}

# The first compiler alone starts Kafka in two thirds of the time, and a development log never
# works hard enough to miss the second.
JVM_OPTIONS: Final = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
)


class Differences(msgspec.Struct, frozen=True):
    """The differences of a node from one that is alone and open to all.

    `server` has Kafka's own settings, which win over ours. `cluster_id` is that of its cluster.
    Without one it gets an id, and so a cluster, of its own. `heap_mb` is for its JVM. `client` has
    librdkafka's properties of a client that may ask if it has started. `jars` is another release's.
    """

    server: Mapping[str, str] = {}
    cluster_id: str = ""
    heap_mb: int = 512
    client: Mapping[str, str] = {}
    jars: JarSet = "kafka"


def server_properties(
    log_dir: Path,
    broker_port: int,
    controller_port: int,
    second_listener: tuple[int, int] | None = None,
    *,
    differences: Mapping[str, str] | None = None,
) -> str:
    """Returns the text of server.properties. `differences` win."""
    values = _FIXED | {
        "log.dirs": str(log_dir),
        "listeners": f"BROKER://{HOST}:{broker_port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"BROKER://{HOST}:{broker_port}",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
    }
    if second_listener is not None:
        listens, advertised = second_listener
        values["listeners"] += f",SECOND://{HOST}:{listens}"
        values["advertised.listeners"] += f",SECOND://{HOST}:{advertised}"
        values["listener.security.protocol.map"] += ",SECOND:PLAINTEXT"
    values |= differences or {}
    return "".join(f"{name}={_escaped(value)}\n" for name, value in values.items())


def _escaped(value: str) -> str:
    """Returns a value for a Java properties file, whose escapes are those of JSON."""
    return json.dumps(value)[1:-1]
