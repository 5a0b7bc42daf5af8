"""Moves the leaders of Kafka's partitions to other brokers, as a rolling restart does."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing

from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, PartitionMetadata

from anabranch.wire.kafka.protocol import (
    NO_TAGS,
    BrokerConnection,
    Partition,
    array,
    bootstrap_addresses,
    text,
)
from anabranch.wire.varint import varint
from support.quiet import QUIET
from support.waiting import WAIT_S

_ALTER_REASSIGNMENTS = 45


class LeaderMoves:
    """`prepare` puts another broker first in the list of copies, `go` has those lead that are.

    So what takes time is done before, and the change comes when it is wanted.
    """

    def __init__(self, kafka: str) -> None:
        self._address = bootstrap_addresses(kafka)[0]
        self._admin = AdminClient({**QUIET, "bootstrap.servers": kafka})
        self._prepared: dict[Partition, int] = {}  # who is to lead

    def leaders(self, topics: Collection[str]) -> dict[Partition, int]:
        """Who leads each partition of these topics."""
        return {place: each.leader for place, each in self._known(topics).items()}

    def are_in_sync(self, topics: Collection[str], copies: int) -> bool:
        """Whether so many brokers have all of each partition."""
        return all(len(each.isrs) == copies for each in self._known(topics).values())

    def prepare(self, topics: Collection[str]) -> None:
        """Of each partition, another broker that has all of it is to lead; none does yet."""
        copies: dict[Partition, list[int]] = {}
        for place, each in self._known(topics).items():
            others = [broker for broker in each.isrs if broker != each.leader]
            if others:
                # Not one broker for all: so a topic's partitions go different ways.
                chosen = others[place[1] % len(others)]
                copies[place] = [chosen, *(each for each in each.replicas if each != chosen)]
        self._prepared = {place: order[0] for place, order in copies.items()}
        self._reassign(copies)

    def go(self) -> int:
        """Returns how many partitions have got another leader."""
        if not self._prepared:
            return 0
        places = [TopicPartition(*place) for place in self._prepared]
        told = self._admin.elect_leaders(ElectionType.PREFERRED, places).result(WAIT_S)
        errors: list[KafkaError] = [error for error in told.values() if error is not None]
        for error in errors:
            if error.code() not in (
                KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
                KafkaError.ELECTION_NOT_NEEDED,
            ):
                raise KafkaException(error)
        self._prepared = {}
        return len(told) - len(errors)

    def _known(self, topics: Iterable[str]) -> dict[Partition, PartitionMetadata]:
        found = self._admin.list_topics(timeout=WAIT_S).topics
        return {
            (topic, number): each
            for topic in topics
            for number, each in found[topic].partitions.items()
        }

    def _reassign(self, copies: Mapping[Partition, list[int]]) -> None:
        """AlterPartitionReassignments (KIP-455): the same brokers, in that order."""
        topics = [
            text(name)
            + array(
                struct.pack(">i", number)
                + varint(len(order) + 1)
                + struct.pack(f">{len(order)}i", *order)
                + NO_TAGS
                for (topic, number), order in copies.items()
                if topic == name
            )
            + NO_TAGS
            for name in sorted({topic for topic, _ in copies})
        ]
        body = struct.pack(">i", int(1000 * WAIT_S)) + array(topics) + NO_TAGS
        with closing(BrokerConnection(self._address, {}, WAIT_S)) as connection:
            reader = connection.ask(_ALTER_REASSIGNMENTS, 0, body)
        reader.skip(4)  # throttle time
        (error,) = reader.unpack(">h")
        assert not error, reader.text()
        reader.text()
        for _ in range(reader.count()):
            topic = reader.text()
            for _ in range(reader.count()):
                number, error = reader.unpack(">ih")
                assert not error, f"{topic}[{number}]: {reader.text()}"
                reader.text()
                reader.tags()
            reader.tags()
