"""Asks Kafka: run in a container beside the brokers.

    kafka_client.py BROKERS leader TOPIC PARTITION   prints the broker that leads it
    kafka_client.py BROKERS in-sync                  waits until every replica of all is in sync

Other faults may be under way: what is not answered is asked again.
"""

from __future__ import annotations

import sys
import time
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, PartitionMetadata

DEADLINE_S: Final = 240.0
ASK_S: Final = 5.0
AGAIN_S: Final = 0.3


class Brokers:
    """Kafka's brokers, which must have answered by a deadline; TimeoutError says if not."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._deadline = time.monotonic() + DEADLINE_S

    def leader(self, topic: str, partition: int) -> str:
        """The node id of who leads it, once somebody does."""
        while True:
            found = self._metadata().topics[topic].partitions[partition].leader
            if found >= 0:
                return str(found)
            self._again(f"{topic}/{partition} has no leader")

    def in_sync(self) -> str:
        """Returns once all are."""
        while True:
            behind = [
                f"{topic.topic}/{partition.id}"
                for topic in self._metadata().topics.values()
                for partition in topic.partitions.values()
                if not _is_in_sync(partition)
            ]
            if not behind:
                return "in sync"
            self._again(f"not in sync: {', '.join(behind)}")

    def _metadata(self) -> ClusterMetadata:
        while True:
            try:
                return self._admin.list_topics(timeout=ASK_S)
            except KafkaException as error:
                self._again(str(error))

    def _again(self, why: str) -> None:
        if time.monotonic() > self._deadline:
            raise TimeoutError(f"Kafka after {DEADLINE_S:.0f} s: {why}")
        time.sleep(AGAIN_S)


def _is_in_sync(partition: PartitionMetadata) -> bool:
    return partition.leader >= 0 and len(partition.isrs) == len(partition.replicas)


def main(bootstrap: str, what: str, topic: str = "", partition: str = "0") -> str:
    brokers = Brokers(bootstrap)
    match what:
        case "leader":
            return brokers.leader(topic, int(partition))
        case "in-sync":
            return brokers.in_sync()
        case _:
            raise ValueError(f"{what}: see what this module can do")


if __name__ == "__main__":
    sys.stdout.write(main(*sys.argv[1:]))
