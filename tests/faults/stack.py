"""Kafka brokers, nodes and a workload, in containers of one network that are disturbed outside."""

from __future__ import annotations

import contextlib
import random
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Final, Self

import docker
import requests
from docker.errors import APIError
from docker.types import EndpointConfig, IPAMConfig, IPAMPool
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from faults.checker import VERDICT, say_verdict
from faults.leftovers import labels, uninterrupted
from faults.parts import AUDITOR, PARTS, READER, Role, role
from faults.schedule import Parties
from faults.tools import Disks

NODE_IMAGE: Final = "anabranch-node:dev"
KAFKA_IMAGE: Final = "anabranch-kafka:dev"
SPARK_IMAGE: Final = "anabranch-spark:dev"
KAFKAS: Final = ("kafka-1", "kafka-2", "kafka-3")
NODES: Final = ("node-1", "node-2", "node-3")
READY_S: Final = 240.0
STOP_S: Final = 30
_NETWORKS_MAX: Final = 20
_NODE_DISK_MB: Final = 128
_KAFKA_DISK_MB: Final = 512
_NODE_DATA: Final = "/var/lib/anabranch"
_KAFKA_DATA: Final = "/var/lib/kafka"
testcontainers_config.ryuk_disabled = True  # `leftovers.py` does its work
# An operator starts again what has ended by itself. Docker leaves alone what it was told to stop.
_AGAIN: Final[dict[str, Any]] = {"restart_policy": {"Name": "on-failure"}}
_ASK_HEALTH: Final = ["python3", "/opt/anabranch/health.py"]
_UNCHECKED: Final[dict[str, Any]] = {"test": ["NONE"]}
_SPARK: Final = ("tini", "-e", "143", "--", "/opt/anabranch/spark.sh")
_TESTS: Final = (str(Path(__file__).parent), "/tests/faults", "ro")
_IN_TESTS: Final = {"PYTHONPATH": "/tests"}


@dataclass(frozen=True, slots=True)
class Setup:
    """Which containers a stack has, and with what. `settings`: of nodes, besides those that they
    need; `environment`: of the workload; `planted`: by container, the names of the
    bugs (`planted.BUGS`) that its process has, with commas between them.
    """

    kafkas: tuple[str, ...] = KAFKAS
    nodes: tuple[str, ...] = NODES
    parts: tuple[str, ...] = PARTS
    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    planted: Mapping[str, str] = field(default_factory=dict)

    def parts_of(self, *roles: Role) -> tuple[str, ...]:
        return tuple(part for part in self.parts if role(part) in roles)

    @property
    def copies(self) -> int:
        """How many Kafka brokers have each partition."""
        return min(3, len(self.kafkas))

    @property
    def in_sync(self) -> int:
        """How many of them must."""
        return max(1, self.copies - 1)


class Stack:
    """Kafka brokers, nodes and a workload: three brokers (replication 3, in sync 2) and three nodes
    unless `setup` says otherwise. Used as a context manager; `history` is the folder in which the
    workload's processes write what they saw. Each container has an address of its own, `addresses`,
    for as long as the stack is there.
    """

    def __init__(self, folder: Path, seed: int, setup: Setup = Setup()) -> None:
        self.folder = folder
        self.history = folder / "history"
        self.parties = Parties(setup.nodes, setup.kafkas, setup.parts)
        self.addresses: dict[str, str] = {}
        self._seed = seed
        self._setup = setup
        self._name = f"anabranch-{uuid.uuid4().hex[:8]}"
        self._network: Any = None  # of docker-py, which has no types
        self.disks = Disks(
            self._name,
            dict.fromkeys(setup.nodes, _NODE_DISK_MB) | dict.fromkeys(setup.kafkas, _KAFKA_DISK_MB),
        )
        self._running: dict[str, DockerContainer] = {}

    def __enter__(self) -> Self:
        self.history.mkdir(parents=True, exist_ok=True)
        self.history.chmod(0o777)  # the workload is not root
        try:
            self._create_network()
            self.disks.create()
            self._start_kafka()
            for node in self._setup.nodes:
                self._start_node(node)
            for node in self._setup.nodes:
                self.await_ready(node)
            for part in self._setup.parts:
                self._start_part(part)
            for part in self._setup.parts_of(Role.OPERATOR):
                self._await(part, partial(self._has_said, part, '"ready"'), "made the topic")
            for part in self._setup.parts_of(Role.PRODUCERS):
                self._await(part, partial(self._has_said, part, '"producing"'), "is under way")
        except BaseException:
            with uninterrupted():
                self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with uninterrupted():
            self._end()

    def container(self, name: str) -> Any:
        """Docker's container, as it is now."""
        found: Any = self._running[name].get_wrapped_container()
        found.reload()
        return found

    @property
    def network(self) -> str:
        """Docker's name of it."""
        return str(self._network.name)

    def await_ready(self, node: str) -> None:
        """Returns when the node serves."""
        self._await(node, partial(self._serves, node), "serves")

    def await_running(self, name: str) -> None:
        """Returns when the container runs: what has ended by itself will be started again."""
        self._await(name, lambda: bool(self.container(name).status == "running"), "runs")

    def start_what_ended(self, name: str) -> None:
        """Starts a container if it has ended, before Docker would do so again."""
        container = self.container(name)
        if container.status != "running":
            container.start()

    def finish(self, within_s: float) -> None:
        """Lets the workload send no more, waits until it has received all, and reads Kafka."""
        deadline = time.monotonic() + within_s
        senders = self._setup.parts_of(Role.PRODUCERS, Role.OPERATOR)
        consumers = tuple(part for part in self._setup.parts if part not in senders)
        for parts in (senders, (READER,), consumers):
            for part in parts:
                if part == READER:
                    self._start_part(part)
                else:
                    self.container(part).kill("SIGTERM")
            for part in parts:
                self.container(part).wait(timeout=max(1.0, deadline - time.monotonic()))

    def audit(self, within_s: float) -> None:
        """Has Spark replay the nodes' log, and says its verdict in the history."""
        audit = ["audit", "--bootstrap-servers", self._bootstrap, "--json", f"/history/{VERDICT}"]
        folders = [(str(self.history), "/history", "rw")]
        self._start(AUDITOR, SPARK_IMAGE, {}, folders, entrypoint=[*_SPARK, *audit])
        try:
            status = self.container(AUDITOR).wait(timeout=within_s)["StatusCode"]
        except requests.ConnectionError:  # so docker-py tells that the time is up
            status = None
        say_verdict(self.history, status, self.logs(AUDITOR))

    def logs(self, name: str) -> str:
        """What a container wrote."""
        return str(self.container(name).logs().decode(errors="replace"))

    # --- network ---------------------------------------------------------------------------

    def _create_network(self) -> None:
        """Chooses a network that nobody has: only in a chosen one can addresses be kept."""
        client: Any = docker.from_env()
        with contextlib.closing(client):
            self._network = self._free_network(client)
        network = IPv4Network(self._network.attrs["IPAM"]["Config"][0]["Subnet"])
        parties = self.parties
        names = (*parties.kafkas, *parties.nodes, *parties.clients, READER, AUDITOR)
        self.addresses = {name: str(network[at]) for at, name in enumerate(names, start=10)}

    def _free_network(self, client: Any) -> Any:
        refused: APIError | None = None
        for _ in range(_NETWORKS_MAX):
            subnet = f"10.{random.randrange(64, 256)}.{random.randrange(256)}.0/24"
            pools = IPAMConfig(pool_configs=[IPAMPool(subnet=subnet)])
            try:
                return client.networks.create(self._name, ipam=pools, labels=labels())
            except APIError as error:
                refused = error
        raise RuntimeError(f"Docker refused {_NETWORKS_MAX} networks: {refused}") from refused

    # --- containers -----------------------------------------------------------------------

    def _start_kafka(self) -> None:
        cluster = "A" + urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        voters = ",".join(
            f"{at}@{name}:9093" for at, name in enumerate(self._setup.kafkas, start=1)
        )
        copies, in_sync = str(self._setup.copies), str(self._setup.in_sync)
        for at, name in enumerate(self._setup.kafkas, start=1):
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
                "OFFSETS_TOPIC_REPLICATION_FACTOR": copies,
                "OFFSETS_TOPIC_NUM_PARTITIONS": "4",
                "TRANSACTION_STATE_LOG_REPLICATION_FACTOR": copies,
                "TRANSACTION_STATE_LOG_MIN_ISR": in_sync,
                "TRANSACTION_STATE_LOG_NUM_PARTITIONS": "4",
                "SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": copies,
                "SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR": in_sync,
                "GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
                "AUTO_CREATE_TOPICS_ENABLE": "false",
            }
            disk = [(self.disks.volume(name), _KAFKA_DATA, "rw")]
            self._start(name, KAFKA_IMAGE, _named("KAFKA", settings), disk, **_AGAIN)

    def _start_node(self, name: str) -> None:
        copies, in_sync = str(self._setup.copies), str(self._setup.in_sync)
        settings = {
            "BOOTSTRAP_SERVERS": self._bootstrap,
            "ADVERTISED_ADDRESS": name,
            "REPLICATION_FACTOR": copies,
            "MIN_INSYNC_REPLICAS": in_sync,
            **self._setup.settings,
        }
        environment = _named("ANABRANCH", settings)
        volumes = [(self.disks.volume(name), _NODE_DATA, "rw")]
        more = {"healthcheck": _UNCHECKED, **_AGAIN}
        if name in self._setup.planted:
            environment |= _IN_TESTS
            volumes += [_TESTS]
            more["entrypoint"] = self._run(name, "anabranch.cli", "node")
        self._start(name, NODE_IMAGE, environment, volumes, **more)

    @property
    def _bootstrap(self) -> str:
        """Where Kafka is."""
        return ",".join(f"{each}:9092" for each in self._setup.kafkas)

    def _start_part(self, name: str) -> None:
        environment = {
            "HISTORY": "/history",
            "SERVICE_URL": "pulsar://" + ",".join(f"{each}:6650" for each in self._setup.nodes),
            "HTTP_URL": "http://" + ",".join(f"{each}:8080" for each in self._setup.nodes),
            "SEED": str(self._seed),
            "PRODUCERS": str(len(self._setup.parts_of(Role.PRODUCERS))),
            **_IN_TESTS,
            **self._setup.environment,
        }
        self._start(
            name,
            NODE_IMAGE,
            environment,
            [(str(self.history), "/history", "rw"), _TESTS],
            entrypoint=self._run(name, "faults.workload", name),
            healthcheck=_UNCHECKED,
        )

    def _run(self, name: str, *module: str) -> list[str]:
        """The command of a module, with the bugs that this container is to have."""
        bugs = self._setup.planted.get(name)
        return ["python3", "-m", *(("faults.planted", bugs) if bugs else ()), *module]

    def _start(
        self,
        name: str,
        image: str,
        environment: dict[str, str],
        volumes: list[tuple[str, str, str]] | None = None,
        **more: Any,
    ) -> None:
        endpoint = EndpointConfig("1.41", aliases=[name], ipv4_address=self.addresses[name])
        container = DockerContainer(image, name=f"{self._name}-{name}", volumes=volumes)
        container.with_kwargs(
            labels=labels(),
            hostname=name,
            network=self._network.name,
            networking_config={self._network.name: endpoint},
            **more,
        )
        for variable, value in environment.items():
            container.with_env(variable, value)
        self._running[name] = container
        container.start()

    def _serves(self, node: str) -> bool:
        """Asks as the image's health check does, which would take an answer after 3 s for none."""
        try:
            return bool(self.container(node).exec_run(_ASK_HEALTH).exit_code == 0)
        except APIError:
            return False  # it does not run, or is paused

    def _has_said(self, part: str, what: str) -> bool:
        path = self.history / f"{part}.jsonl"
        return path.exists() and what in path.read_text()

    def _await(self, name: str, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + READY_S
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"{name} never {what}: {self.logs(name)[-2_000:]}")
            time.sleep(0.5)

    def _end(self) -> None:
        for name, container in reversed(self._running.items()):
            with contextlib.suppress(Exception):
                (self.folder / f"{name}.log").write_text(self.logs(name))
            with contextlib.suppress(Exception):
                container.stop(force=True, delete_volume=True)
        with contextlib.suppress(Exception):
            self.disks.remove()
        with contextlib.suppress(Exception):
            self._network.remove()


def _named(prefix: str, settings: dict[str, str]) -> dict[str, str]:
    """Settings as variables of the environment."""
    return {f"{prefix}_{name}": value for name, value in settings.items()}
