"""Kafka's facts about many topics: their ids, partitions, and chosen settings of each.

librdkafka 2.16 has a call only for all settings of a topic, some 30, each with its synonyms, and
that takes four times as long. Kafka itself tells only the settings that are asked for
(DescribeConfigs of version 4), and topics' ids with their partitions (Metadata of version 12,
KIP-516). Both are in Kafka 3.1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from anabranch.core.adoption.survey import TopicSetting
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

DESCRIBE_CONFIGS: Final = 32
DESCRIBE_CONFIGS_VERSION: Final = 4
_TOPIC: Final = b"\x02"  # the kind of thing that has settings
_UNKNOWN: Final = 3
_SET_ON_THE_TOPIC: Final = 1  # and not inherited from a broker, or from the default


class TopicDescriber:
    """Asks over connections of its own, and keeps them. Use it from one thread at a time.

    `brokers` may be any of them. `kafka` has properties that `can_ask` accepts.
    """

    def __init__(
        self, brokers: Iterable[Address], kafka: Mapping[str, Any], timeout_s: float
    ) -> None:
        self._addresses = list(brokers)
        self._brokers = BrokerConnections(kafka, timeout_s)

    def described(
        self, topics: Sequence[str], settings: Collection[str]
    ) -> dict[str, KafkaTopic | None]:
        """Returns Kafka's facts of each topic, None for a topic that it does not have. Topics
        without an answer are left out.

        Blocks. Raises OSError or KafkaProtocolError if no broker answers.
        """
        asked = metadata_request(topics)
        there = self._brokers.ask_any(
            self._in_turn(), METADATA, METADATA_VERSION, asked, read_metadata
        ).topics
        configs = settings_request(topics, settings)
        told = self._brokers.ask_any(
            self._in_turn(), DESCRIBE_CONFIGS, DESCRIBE_CONFIGS_VERSION, configs, _settings
        )
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

    def _in_turn(self) -> Iterator[Address]:
        """Yields each broker once, first the one that answered last. A broker that is passed over
        comes last from now on.
        """
        for _ in range(len(self._addresses)):
            yield self._addresses[0]
            self._addresses.append(self._addresses.pop(0))


class BrokerViews:
    """The topics as each broker of Kafka has read them by now. Brokers read at different times.

    It asks all brokers at the same time and leaves out those that do not answer. It keeps
    connections. Use it from one thread at a time. Blocks.
    """

    def __init__(self, kafka: Mapping[str, Any], timeout_s: float) -> None:
        self._brokers = BrokerConnections(kafka, timeout_s)

    def settings(
        self, brokers: Iterable[Address], topics: Sequence[str], names: Collection[str]
    ) -> dict[Address, dict[str, dict[str, str]]]:
        """Returns these settings of each topic, as each broker tells them."""
        body = settings_request(topics, names)
        told = self._brokers.ask_each(
            brokers, DESCRIBE_CONFIGS, DESCRIBE_CONFIGS_VERSION, body, _settings
        )
        return {
            broker: {topic: each for topic, each in found.items() if isinstance(each, dict)}
            for broker, found in told.items()
        }

    def epochs(
        self, brokers: Iterable[Address], topics: Sequence[str]
    ) -> dict[Address, dict[Partition, int]]:
        """Returns the leader epochs of the partitions of each topic, as each broker tells them."""
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


def settings_request(topics: Iterable[str], settings: Iterable[str]) -> bytes:
    """Returns the body of DescribeConfigs that asks for these settings of topics."""
    keys = array(map(text, settings))
    asked = array([_TOPIC + text(topic) + keys + NO_TAGS for topic in topics])
    return asked + b"\0\0" + NO_TAGS  # neither synonyms nor documentation


def _settings(reader: ResponseReader) -> dict[str, dict[str, str] | int]:
    """Returns the settings of each topic, or Kafka's error."""
    return {
        topic: each if isinstance(each, int) else {name: told.value for name, told in each.items()}
        for topic, each in read_settings(reader).items()
    }


def read_settings(reader: ResponseReader) -> dict[str, dict[str, TopicSetting] | int]:
    """Returns the settings of each topic with their sources, or Kafka's error."""
    reader.skip(4)  # throttle time
    found: dict[str, dict[str, TopicSetting] | int] = {}
    for _ in range(reader.count()):
        (error,) = reader.unpack(">h")
        reader.text()  # the text of the error
        reader.skip(1)  # the kind
        name = reader.text()
        entries: dict[str, TopicSetting] = {}
        for _ in range(reader.count()):
            key = reader.text()
            value = reader.text()
            _, source, _ = reader.unpack(">bbb")  # read-only, source, secret
            entries[key] = TopicSetting(value, is_own=source == _SET_ON_THE_TOPIC)
            if reader.count():
                raise KafkaProtocolError("Kafka told synonyms that it was not asked for")
            reader.skip(1)  # its type
            reader.text()  # documentation
            reader.tags()
        reader.tags()
        found[name] = error or entries
    return found
