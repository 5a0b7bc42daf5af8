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
)

_FIND_COORDINATOR: Final = 10
_FIND_COORDINATOR_VERSION: Final = 4
_OF_A_GROUP: Final = b"\0"
_OFFSET_FETCH: Final = 9
_OFFSET_FETCH_VERSION: Final = 8
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
        question = _OF_A_GROUP + array(map(text, groups)) + NO_TAGS
        return self._brokers.ask_any(
            brokers, _FIND_COORDINATOR, _FIND_COORDINATOR_VERSION, question, _by_coordinator
        )

    def _fetched(
        self, address: Address, groups: Mapping[str, Sequence[Partition]]
    ) -> dict[str, Committed]:
        named = [text(name) + array(_topics(places)) + NO_TAGS for name, places in groups.items()]
        question = array(named) + _STABLE + NO_TAGS
        return read_committed(
            self._brokers.ask(address, _OFFSET_FETCH, _OFFSET_FETCH_VERSION, question)
        )


def _topics(places: Iterable[Partition]) -> list[bytes]:
    topics: dict[str, dict[int, None]] = {}
    for topic, number in places:
        topics.setdefault(topic, {})[number] = None
    return [
        text(topic) + array(struct.pack(">i", number) for number in numbers) + NO_TAGS
        for topic, numbers in topics.items()
    ]


def _is_whole(committed: Committed, places: Sequence[Partition]) -> bool:
    return bool(committed.error) or committed.offsets.keys() >= set(places)


def _by_coordinator(
    reader: ResponseReader,
) -> tuple[dict[Address, list[str]], dict[str, Committed]]:
    reader.skip(4)  # throttle time
    found: dict[Address, list[str]] = {}
    unknown: dict[str, Committed] = {}
    for _ in range(reader.count()):
        group = reader.text()
        reader.skip(4)  # the broker's id
        host = reader.text()
        port, error = reader.unpack(">ih")
        reader.text()  # the text of the error
        reader.tags()
        if error:
            unknown[group] = Committed({}, error)
        else:
            found.setdefault((host, port), []).append(group)
    return found, unknown


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
