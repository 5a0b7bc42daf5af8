"""The committed offsets of many consumer groups, by few requests.

librdkafka 2.16 asks for one group at a time, and only a client that names the group may ask. Such a
client costs threads and connections. Kafka itself answers for any number (FindCoordinator of
version 4, KIP-699, and OffsetFetch of version 8, KIP-709; both are in Kafka 3.0).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from anabranch.wire.kafka.protocol import (
    NO_TAGS,
    Address,
    BrokerConnections,
    KafkaProtocolError,
    Partition,
    ResponseReader,
    array,
    text,
    topics,
)

FIND_COORDINATOR: Final = (10, 4)  # each request with the version of its form here
OFFSET_FETCH: Final = (9, 8)
GROUP: Final = 0  # a kind of what has a coordinator
_EVERY_TOPIC: Final = b"\0"
_STABLE: Final = b"\x01"  # not while a transaction may yet change it, as librdkafka asks, too


class Committed(NamedTuple):
    """The committed offsets of a group in the asked partitions, or Kafka's error.

    `metadata` has the text of each commit that has one.
    """

    offsets: dict[Partition, int]
    error: int = 0
    metadata: Mapping[Partition, str] = MappingProxyType({})


class CommittedReader:
    """Asks over connections of its own, and keeps them. Use it from one thread at a time.

    `kafka` has properties that `can_ask` accepts.
    """

    def __init__(self, kafka: Mapping[str, Any], timeout_s: float) -> None:
        self._brokers = BrokerConnections(kafka, timeout_s)

    def committed(
        self, brokers: Iterable[Address], groups: Mapping[str, Sequence[Partition]]
    ) -> dict[str, Committed]:
        """Returns the commits of each group in those partitions. An offset is negative if nothing
        is committed.

        A group whose coordinator does not answer is left out. Blocks. Raises OSError or
        KafkaProtocolError if no broker tells the groups' coordinators.
        """
        coordinators, found = self._coordinators(brokers, list(groups))
        for address, names in coordinators.items():
            try:
                told = self._fetched(address, {name: groups[name] for name in names})
            except (OSError, KafkaProtocolError):
                continue  # the others' coordinators may answer
            for name in names:
                committed = told.get(name)
                if committed is not None and _is_whole(committed, groups[name]):
                    found[name] = committed
        return found

    def close(self) -> None:
        """Ends the connections."""
        self._brokers.close()

    def _coordinators(
        self, brokers: Iterable[Address], groups: Sequence[str]
    ) -> tuple[dict[Address, list[str]], dict[str, Committed]]:
        """Returns groups by coordinator, and those whose coordinator is not known, from the first
        broker that answers.
        """
        question = coordinators_request(GROUP, groups)
        return self._brokers.ask_any(brokers, *FIND_COORDINATOR, question, _by_coordinator)

    def _fetched(
        self, address: Address, groups: Mapping[str, Sequence[Partition]]
    ) -> dict[str, Committed]:
        return read_committed(self._brokers.ask(address, *OFFSET_FETCH, committed_request(groups)))


def _is_whole(committed: Committed, places: Sequence[Partition]) -> bool:
    return bool(committed.error) or committed.offsets.keys() >= set(places)


def _by_coordinator(
    reader: ResponseReader,
) -> tuple[dict[Address, list[str]], dict[str, Committed]]:
    found: dict[Address, list[str]] = {}
    unknown: dict[str, Committed] = {}
    for group, address, error in read_coordinators(reader):
        if error:
            unknown[group] = Committed({}, error)
        else:
            found.setdefault(address, []).append(group)
    return found, unknown


def coordinators_request(kind: int, names: Iterable[str]) -> bytes:
    """Returns the body that asks for the coordinators of groups, or of what else has some."""
    return bytes([kind]) + array(map(text, names)) + NO_TAGS


def read_coordinators(reader: ResponseReader) -> list[tuple[str, Address, int]]:
    """Decodes the coordinator of each name, or Kafka's error."""
    reader.skip(4)  # throttle time
    found = []
    for _ in range(reader.count()):
        name = reader.text()
        reader.skip(4)  # the broker's id
        host = reader.text()
        port, error = reader.unpack(">ih")
        reader.text()  # the text of the error
        reader.tags()
        found.append((name, (host, port), error))
    return found


def committed_request(groups: Mapping[str, Iterable[Partition] | None]) -> bytes:
    """Returns the body that asks for the commits of groups in those partitions. None: in all."""

    def form(place: Partition) -> bytes:
        return struct.pack(">i", place[1])

    named = (
        text(name) + (_EVERY_TOPIC if places is None else topics(places, form)) + NO_TAGS
        for name, places in groups.items()
    )
    return array(named) + _STABLE + NO_TAGS


def read_committed(reader: ResponseReader) -> dict[str, Committed]:
    """Decodes the commits of each group."""
    reader.skip(4)  # throttle time
    found: dict[str, Committed] = {}
    for _ in range(reader.count()):
        group = reader.text()
        offsets: dict[Partition, int] = {}
        metadata: dict[Partition, str] = {}
        wrong = 0
        for _ in range(reader.count()):
            topic = reader.text()
            for _ in range(reader.count()):
                number, at, _ = reader.unpack(">iqi")
                written = reader.text().removesuffix("\0")  # confluent-kafka's end of a string
                (error,) = reader.unpack(">h")
                reader.tags()
                offsets[topic, number] = at
                if written:
                    metadata[topic, number] = written
                wrong = wrong or error
            reader.tags()
        (error,) = reader.unpack(">h")
        reader.tags()
        found[group] = Committed(offsets, error or wrong, metadata)
    return found
