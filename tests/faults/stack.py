"""Kafka brokers, nodes and a workload, in containers of one network that are disturbed outside."""

from __future__ import annotations

import contextlib
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from faults.schedule import Fault, Kind

LABELS: Final = {"org.anabranch.test": "faults"}  # by which what is left over is found
NODE_IMAGE: Final = "anabranch-node:dev"
KAFKA_IMAGE: Final = "anabranch-kafka:dev"
KAFKAS: Final = ("kafka-1", "kafka-2", "kafka-3")
NODES: Final = ("node-1", "node-2", "node-3")
WORKLOAD: Final = "workload"
READY_S: Final = 240.0
STOP_S: Final = 30
_HERE: Final = Path(__file__).parent
_IN_SYNC: Final = {
    "OFFSETS_TOPIC_REPLICATION_FACTOR": "3",
    "OFFSETS_TOPIC_NUM_PARTITIONS": "4",
    "TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "3",
    "TRANSACTION_STATE_LOG_MIN_ISR": "2",
    "TRANSACTION_STATE_LOG_NUM_PARTITIONS": "4",
    "SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "3",
    "SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR": "2",
    "GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "AUTO_CREATE_TOPICS_ENABLE": "false",
}


class Stack:
    """Three Kafka brokers (replication 3, in sync 2), three nodes, a workload. Used as a context
    manager; `history` is where the workload writes what it saw.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.history = folder / "history.jsonl"
        self._seed = seed
        self._name = f"anabranch-{uuid.uuid4().hex[:8]}"
        self._network = Network(docker_network_kw={"labels": LABELS})
        self._running: dict[str, DockerContainer] = {}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o777)  # the workload is not root
        try:
            self._network.create()
            self._start_kafka()
            for node in NODES:
                self._start_node(node)
            for node in NODES:
                self._await(node, partial(self._is_healthy, node), "serves")
            self._start_workload()
            self._await(WORKLOAD, lambda: '"ready"' in self._told(), "is under way")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def inject(self, fault: Fault) -> None:
        """Does it, waits for as long as it lasts, and heals it."""
        container = self._container(fault.target)
        time.sleep(fault.after_s)
        match fault.kind:
            case Kind.KILL:
                container.kill()
                time.sleep(fault.for_s)
                container.start()
            case Kind.PAUSE:
                container.pause()
                time.sleep(fault.for_s)
                container.unpause()
            case Kind.CUT:
                network: Any = self._network._unwrap_network
                network.disconnect(container)
                time.sleep(fault.for_s)
                network.connect(container, aliases=[fault.target])
            case Kind.RESTART:
                container.restart(timeout=STOP_S)

    def finish(self, within_s: float) -> None:
        """Lets the workload send no more, and waits until it has ended."""
        container = self._container(WORKLOAD)
        container.kill("SIGTERM")
        container.wait(timeout=within_s)

    def logs(self, name: str) -> str:
        """What a container wrote."""
        return str(self._container(name).logs().decode(errors="replace"))

    # --- containers -----------------------------------------------------------------------

    def _start_kafka(self) -> None:
        cluster = "A" + urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        voters = ",".join(f"{at}@{name}:9093" for at, name in enumerate(KAFKAS, start=1))
        for at, name in enumerate(KAFKAS, start=1):
            settings = {
                "NODE_ID": str(at),
                "PROCESS_ROLES": "broker,controller",
                "LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
                "ADVERTISED_LISTENERS": f"PLAINTEXT://{name}:9092",
                "CONTROLLER_LISTENER_NAMES": "CONTROLLER",
                "LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "CONTROLLER_QUORUM_VOTERS": voters,
                "CLUSTER_ID": cluster,
                "HEAP": "320m",
                **_IN_SYNC,
            }
            self._start(name, KAFKA_IMAGE, {f"KAFKA_{k}": v for k, v in settings.items()})

    def _start_node(self, name: str) -> None:
        settings = {
            "BOOTSTRAP_SERVERS": ",".join(f"{each}:9092" for each in KAFKAS),
            "ADVERTISED_ADDRESS": name,
            "REPLICATION_FACTOR": "3",
            "MIN_INSYNC_REPLICAS": "2",
        }
        self._start(name, NODE_IMAGE, {f"ANABRANCH_{k}": v for k, v in settings.items()})

    def _start_workload(self) -> None:
        environment = {
            "HISTORY": "/history/history.jsonl",
            "SERVICE_URL": "pulsar://" + ",".join(f"{each}:6650" for each in NODES),
            "HTTP_URL": "http://" + ",".join(f"{each}:8080" for each in NODES),
            "SEED": str(self._seed),
        }
        self._start(
            WORKLOAD,
            NODE_IMAGE,
            environment,
            entrypoint=["python3", "/faults/workload.py"],
            volumes=[(str(self.folder), "/history", "rw"), (str(_HERE), "/faults", "ro")],
        )

    def _start(self, name: str, image: str, environment: dict[str, str], **more: Any) -> None:
        container = DockerContainer(image, labels=LABELS, hostname=name, **more)
        container.with_name(f"{self._name}-{name}")
        container.with_network(self._network).with_network_aliases(name)
        for variable, value in environment.items():
            container.with_env(variable, value)
        self._running[name] = container
        container.start()

    def _container(self, name: str) -> Any:  # of docker-py, which has no types
        found: Any = self._running[name].get_wrapped_container()
        found.reload()
        return found

    def _is_healthy(self, name: str) -> bool:
        container = self._container(name)
        if container.status == "exited":
            container.start()  # it did not find Kafka, which had not started
        return bool(container.health == "healthy")

    def _told(self) -> str:
        return self.history.read_text() if self.history.exists() else ""

    def _await(self, name: str, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + READY_S
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"{name} never {what}: {self.logs(name)[-2_000:]}")
            time.sleep(0.25)

    def _end(self) -> None:
        for name, container in reversed(self._running.items()):
            with contextlib.suppress(Exception):
                (self.folder / f"{name}.log").write_text(self.logs(name))
            with contextlib.suppress(Exception):
                container.stop(force=True, delete_volume=True)
        with contextlib.suppress(Exception):
            self._network.remove()
