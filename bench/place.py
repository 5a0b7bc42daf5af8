"""Where figures are measured: a scratch directory, a Kafka, a cluster, each made when needed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics, TopicSettings, ensure_topics
from anabranch.devkit import ports
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.nodes import HOST, NodeProcess, await_ready, stop_all
from anabranch.devkit.security import DevSecurity
from support.kafka_brokers import KafkaBrokers

NODES = 3
CLUSTER_PREFIX = "bench-cluster."
# Only the logging is turned down: all times and sizes are the defaults.
_QUIET = "logLevel=warning"
_MAKE_S = 60.0


class Place:
    """Used as a context manager; ends everything that it started.

    `brokers`: of Kafka. `copies`: of all that nodes keep, one of them may be out of sync; three
    where there are several brokers and nothing else is said.
    """

    def __init__(self, quick: bool = False, brokers: int = 1, copies: int | None = None) -> None:
        self.quick = quick
        self.brokers = brokers
        self.copies = copies or (3 if brokers > 1 else 1)
        self.folder = Path(tempfile.mkdtemp(prefix="bench-"))
        self._kafka: EmbeddedKafka | KafkaBrokers | None = None
        self._nodes: list[NodeProcess] = []
        self._numbers = 0

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        stop_all(self._nodes)
        if self._kafka is not None:
            self._kafka.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def number(self) -> int:
        """Another number each time, for names."""
        self._numbers += 1
        return self._numbers

    @property
    def kafka(self) -> EmbeddedKafka | KafkaBrokers:
        if self._kafka is None:
            folder = self.folder / "kafka"
            self._kafka = (
                EmbeddedKafka(folder) if self.brokers == 1 else KafkaBrokers(folder, self.brokers)
            )
            self._kafka.start()
        return self._kafka

    @property
    def connection(self) -> KafkaConnection:
        return KafkaConnection(self.kafka.bootstrap_servers)

    def topics(self) -> Topics:
        """Fresh topics of their own."""
        topics = Topics(f"bench-{self.number()}.")
        wanted = TopicSettings(self.copies, in_sync(self.copies))
        ensure_topics(self.connection, topics, wanted, _MAKE_S)
        return topics

    @property
    def nodes(self) -> Sequence[NodeProcess]:
        """Three nodes that serve, and know one another."""
        if not self._nodes:
            for _ in range(NODES):
                self.another_node()
        started = [node for node in self._nodes if not node.is_running]
        for node in started:
            node.start()
        await_ready(self._nodes)
        return self._nodes

    def service_urls(self) -> str:
        """One URL for clients, of all nodes."""
        urls = [node.service_url() for node in self.nodes]
        return "pulsar://" + ",".join(url.removeprefix("pulsar://") for url in urls)

    def another_node(self) -> NodeProcess:
        """One more node of the cluster, not started."""
        node = self.lonely_node(CLUSTER_PREFIX)
        self._nodes.append(node)
        return node

    def lonely_node(
        self,
        prefix: str,
        *settings: str,
        kafka: EmbeddedKafka | None = None,
        secured: DevSecurity | None = None,
    ) -> NodeProcess:
        """A node of the cluster of that topic prefix, not started, for the caller to end; on the
        place's Kafka unless another is given. With `secured` it has ports with TLS alone, and asks
        who comes.
        """
        return NodeProcess(
            f"node-{self.number()}",
            ports.free_port(HOST),
            (kafka or self.kafka).bootstrap_servers,
            self.folder,
            _QUIET,
            f"topicPrefix={prefix}",
            *_copied(self.copies),
            *settings,
            secured=secured,
        )

    def forget(self, node: NodeProcess) -> None:
        """Ends a node and leaves it out from now on."""
        stop_all([node])
        self._nodes.remove(node)


def in_sync(copies: int) -> int:
    """How many of so many copies must be in sync for an append."""
    return max(1, copies - 1)


def _copied(copies: int) -> tuple[str, ...]:
    return (f"replicationFactor={copies}", f"minInsyncReplicas={in_sync(copies)}")


def resident_mb(pid: int, which: str = "VmRSS") -> float:
    """Resident memory of a process; VmHWM: at its highest."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{which}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} shows no memory")
