"""What Kafka has of many topics: their ids, partitions, and chosen settings of each.

librdkafka 2.16 has a call for all settings of a topic alone, some 30, each with its synonyms: that
takes four times as long. Kafka itself tells of those that are asked for (DescribeConfigs of version
4), and topics' ids with their partitions (Metadata of version 12, KIP-516); both are in Kafka 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from anabranch.core.topics.findings import KafkaTopic
from anabranch.wire.kafka.metadata import (
    METADATA,
    METADATA_VERSION,
    KafkaMetadata,
    TopicMetadata,
    metadata_request,
    read_metadata,
)
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

_T = TypeVar("_T")

_DESCRIBE_CONFIGS: Final = 32
_DESCRIBE_CONFIGS_VERSION: Final = 4
_TOPIC: Final = b"\x02"  # the kind of thing that has settings
_UNKNOWN: Final = 3


class TopicDescriber:
    """Asks over connections of its own, and keeps them. To be used by one thread at a time.

    `brokers`: any of them will do. `kafka`: what `can_ask` takes.
    """

    def __init__(
        self, brokers: Iterable[Address], kafka: Mapping[str, Any], timeout_s: float
    ) -> None:
        self._addresses = list(brokers)
        self._brokers = BrokerConnections(kafka, timeout_s)

    def described(
        self, topics: Sequence[str], settings: Collection[str]
    ) -> dict[str, KafkaTopic | None]:
        """What Kafka has; None for what it does not have. Of what it does not say, nothing is told.

        Blocks. Raises OSError or KafkaProtocolError when no broker tells.
        """
        asked = metadata_request(topics)
        there = self._asked(METADATA, METADATA_VERSION, asked, read_metadata).topics
        configs = _chosen(topics, settings)
        told = self._asked(_DESCRIBE_CONFIGS, _DESCRIBE_CONFIGS_VERSION, configs, _settings)
        found: dict[str, KafkaTopic | None] = {}
        for topic in topics:
            known, entries = there.get(topic), told.get(topic)
            if known == entries == _UNKNOWN:
                found[topic] = None
            elif isinstance(known, TopicMetadata) and isinstance(entries, dict):
                found[topic] = KafkaTopic(known.topic_id, len(known.partitions), entries)
        return found

    def close(self) -> None:
        """Ends the connections."""
        self._brokers.close()

    def _asked(
        self, question: int, version: int, body: bytes, read: Callable[[ResponseReader], _T]
    ) -> _T:
        """What the first broker tells that answers; it is the next one that is asked."""
        return self._brokers.ask_any(self._in_turn(), question, version, body, read)

    def _in_turn(self) -> Iterator[Address]:
        """Each broker once; whoever is passed over comes last from now on."""
        for _ in range(len(self._addresses)):
            yield self._addresses[0]
            self._addresses.append(self._addresses.pop(0))


class BrokerViews:
    """What each broker of Kafka has read of topics by now, each at a time of its own.

    All brokers are asked at the same time; those that do not answer are left out. Connections are
    kept; to be used by one thread at a time. Blocks.
    """

    def __init__(self, kafka: Mapping[str, Any], timeout_s: float) -> None:
        self._brokers = BrokerConnections(kafka, timeout_s)

    def settings(
        self, brokers: Iterable[Address], topics: Sequence[str], names: Collection[str]
    ) -> dict[Address, dict[str, dict[str, str]]]:
        """These settings of each topic that the broker tells of."""
        body = _chosen(topics, names)
        told = self._brokers.ask_each(
            brokers, _DESCRIBE_CONFIGS, _DESCRIBE_CONFIGS_VERSION, body, _settings
        )
        return {
            broker: {topic: each for topic, each in found.items() if isinstance(each, dict)}
            for broker, found in told.items()
        }

    def epochs(
        self, brokers: Iterable[Address], topics: Sequence[str]
    ) -> dict[Address, dict[Partition, int]]:
        """The epochs under which the partitions of each topic are led."""
        body = metadata_request(topics)
        told = self._brokers.ask_each(brokers, METADATA, METADATA_VERSION, body, read_metadata)
        return {broker: _epochs(found) for broker, found in told.items()}

    def close(self) -> None:
        """Ends the connections."""
        self._brokers.close()


def _epochs(metadata: KafkaMetadata) -> dict[Partition, int]:
    return {
        (topic, number): found.leader_epoch
        for topic, each in metadata.topics.items()
        if isinstance(each, TopicMetadata)
        for number, found in each.partitions.items()
    }


def _chosen(topics: Iterable[str], settings: Iterable[str]) -> bytes:
    keys = array(map(text, settings))
    asked = array([_TOPIC + text(topic) + keys + NO_TAGS for topic in topics])
    return asked + b"\0\0" + NO_TAGS  # neither synonyms nor documentation


def _settings(reader: ResponseReader) -> dict[str, dict[str, str] | int]:
    """Of each topic the settings, or Kafka's error."""
    reader.skip(4)  # throttle time
    found: dict[str, dict[str, str] | int] = {}
    for _ in range(reader.count()):
        (error,) = reader.unpack(">h")
        reader.text()  # what is wrong
        reader.skip(1)  # the kind
        name = reader.text()
        entries: dict[str, str] = {}
        for _ in range(reader.count()):
            key = reader.text()
            entries[key] = reader.text()
            reader.skip(3)  # whether it is read-only, where it comes from, whether it is a secret
            if reader.count():
                raise KafkaProtocolError("Kafka told synonyms that it was not asked for")
            reader.skip(1)  # its type
            reader.text()  # documentation
            reader.tags()
        reader.tags()
        found[name] = error or entries
    return found
