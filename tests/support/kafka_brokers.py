"""`KafkaBrokers`: a Kafka of several brokers, child processes; the first is its controller too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

from anabranch.devkit import ports
from anabranch.devkit.kafka.embedded import EmbeddedKafka, new_cluster_id
from anabranch.devkit.kafka.settings import HOST, Differences

_HEAP_MB: Final = 256
# Replicas of Kafka's own topics; two, so that any one broker but the controller may be missing.
_COPIES: Final = dict.fromkeys(
    (
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "share.coordinator.state.topic.replication.factor",
    ),
    "2",
)
_QUICK: Final = {
    # A follower that is gone must not hold appends up for longer than a test waits.
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.wait.max.ms": "50",
    # A killed broker is missed soon, and yet not because the machine stood still.
    "broker.session.timeout.ms": "6000",
    # All start at once, on a machine that has other things to do.
    "initial.broker.registration.timeout.ms": "240000",
}


class KafkaBrokers:
    """Running brokers, to be killed and started again one by one. Use it as a context manager."""

    def __init__(
        self,
        folder: Path,
        count: int,
        server: Mapping[str, str] | None = None,
        racks: Sequence[str] = (),
    ) -> None:
        """`racks` has the racks of the first brokers."""
        self._ports = [ports.free_port(HOST) for _ in range(count)]
        controller = ports.free_port(HOST)
        cluster_id = new_cluster_id()
        self.brokers: list[EmbeddedKafka] = []
        for number, port in enumerate(self._ports, start=1):
            named = {"node.id": str(number), "controller.quorum.voters": f"1@{HOST}:{controller}"}
            if number == 1:
                named["listeners"] = f"BROKER://{HOST}:{port},CONTROLLER://{HOST}:{controller}"
            else:
                named["process.roles"] = "broker"
                named["listeners"] = f"BROKER://{HOST}:{port}"
            if number <= len(racks):
                named["broker.rack"] = racks[number - 1]
            differences = Differences(
                {**_COPIES, **_QUICK, **named, **(server or {})}, cluster_id, _HEAP_MB
            )
            self.brokers.append(
                EmbeddedKafka(folder / f"kafka-{number}", port, differences=differences)
            )

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._ports)

    def numbered(self, broker_id: int) -> EmbeddedKafka:
        """Returns the broker of that number, which Kafka calls its node id."""
        return self.brokers[broker_id - 1]

    def start(self) -> None:
        """Starts all at once.
        Raises the errors of `EmbeddedKafka.start`, and leaves none running then.
        """
        try:
            with ThreadPoolExecutor(len(self.brokers)) as pool:
                list(pool.map(lambda broker: broker.start(), self.brokers))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kills all at once, because a graceful stop would hand partitions over to nobody."""
        for broker in reversed(self.brokers):
            broker.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
