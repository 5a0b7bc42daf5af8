"""A broker's metadata of Kafka's brokers and of topics: ids, partitions, and leaders.

Metadata of version 12 has topics' ids (KIP-516); it is in Kafka 3.1.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from anabranch.wire.kafka.protocol import NO_TAGS, Address, ResponseReader, array, text

METADATA: Final = 3
METADATA_VERSION: Final = 12
UNTOLD: Final = -(1 << 31)
_NO_ID: Final = bytes(16)


class PartitionMetadata(NamedTuple):
    """`error` is Kafka's code, 5 without a leader. `leader` is a broker's id, or -1.

    `replicas` is the number of copies that there should be.
    """

    error: int
    leader: int
    leader_epoch: int
    replicas: int


class TopicMetadata(NamedTuple):
    """A topic that Kafka has. `is_internal`: it is one of Kafka's own.

    `operations` has a bit for each operation that this client may do, or is UNTOLD.
    """

    topic_id: str
    partitions: dict[int, PartitionMetadata]
    is_internal: bool = False
    operations: int = UNTOLD


class KafkaMetadata(NamedTuple):
    """`topics` has the metadata of each asked topic, or Kafka's error code."""

    brokers: dict[int, Address]
    topics: dict[str, TopicMetadata | int]


def metadata_request(topics: Iterable[str], *, operations: bool = False) -> bytes:
    """Returns the body that asks for these topics, and creates none of them.
    Without topics it asks for brokers. `operations`: also for those that this client may do.
    """
    named = [_NO_ID + text(topic) + NO_TAGS for topic in topics]
    return array(named) + struct.pack(">??", False, operations) + NO_TAGS


def read_metadata(reader: ResponseReader) -> KafkaMetadata:
    """Decodes the body of an answer. Raises KafkaProtocolError if it is cut short."""
    reader.skip(4)  # throttle time
    brokers: dict[int, Address] = {}
    for _ in range(reader.count()):
        (broker,) = reader.unpack(">i")
        host = reader.text()
        (port,) = reader.unpack(">i")
        reader.text()  # rack
        reader.tags()
        brokers[broker] = (host, port)
    reader.text()  # the cluster's id
    reader.skip(4)  # its controller's
    topics: dict[str, TopicMetadata | int] = {}
    for _ in range(reader.count()):
        (error,) = reader.unpack(">h")
        name = reader.text()
        topic_id = base64.urlsafe_b64encode(reader.take(16)).decode().rstrip("=")
        is_internal = reader.take(1) != b"\0"
        partitions: dict[int, PartitionMetadata] = {}
        for _ in range(reader.count()):
            wrong, number, leader, epoch = reader.unpack(">hiii")
            replicas = reader.count()
            reader.skip(4 * replicas)
            for _ in range(2):  # copies in sync, those that are away
                reader.skip(4 * reader.count())
            reader.tags()
            partitions[number] = PartitionMetadata(wrong, leader, epoch, replicas)
        (operations,) = reader.unpack(">i")
        reader.tags()
        topics[name] = error or TopicMetadata(topic_id, partitions, is_internal, operations)
    return KafkaMetadata(brokers, topics)
