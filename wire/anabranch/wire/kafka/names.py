"""Kafka's part in producers with names: transactional ids, and offsets of many topics at once.

A transactional id has one producer id, whose epoch rises with each owner. InitProducerId ends what
its former owner left open. So partitions that were added to a transaction get its end under the new
epoch, and refuse the former owner from then on. No message is ever part of a transaction here.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from typing import Final

from anabranch.wire.kafka.committed import Committed, read_committed, read_coordinators
from anabranch.wire.kafka.producer_state import read_offsets
from anabranch.wire.kafka.producing import KafkaCode, KafkaNotYetError, code_name
from anabranch.wire.kafka.protocol import (
    NO_TAGS,
    Address,
    KafkaProtocolError,
    Partition,
    ResponseReader,
    text,
    topics,
)

ADD_PARTITIONS: Final = (24, 3)  # the last version for clients of one transaction
END_TRANSACTION: Final = (26, 3)
OFFSET_COMMIT: Final = (8, 8)
TRANSACTION: Final = 1
_INVALID_STATE: Final = 48  # nothing is open, and the asker is the owner
_FENCED: Final = (KafkaCode.INVALID_PRODUCER_EPOCH, 49, 90)  # 49: of an id that it forgot
_AGAIN: Final = frozenset({3, 5, 6, 7, 14, 15, 16, 51, 74, 75, 78})
_REMEDIES: Final = {
    12: "; let its offset.metadata.max.bytes be 100 or more",
    29: "; it takes the right to read and to write the topic (consume and produce)",
    30: "; it takes the right to read the group (consume)",
    53: "; it takes the right to write the transactional id (produce)",
}
_NO_MEMBER: Final = struct.pack(">i", -1) + text("") + b"\0"


class NameTakenError(KafkaProtocolError):
    """Another process has the transactional id."""


def check(error: int, what: str) -> None:
    """Raises KafkaNotYetError, NameTakenError or KafkaProtocolError for an error."""
    if not error:
        return
    why = f"Kafka does not {what}: {code_name(error)}"
    if error in _AGAIN:
        raise KafkaNotYetError(why)
    if error in _FENCED:
        raise NameTakenError(why)
    raise KafkaProtocolError(why + _REMEDIES.get(error, ""))


def read_coordinator(reader: ResponseReader) -> Address:
    """Decodes the only coordinator that was asked for."""
    ((name, address, error),) = read_coordinators(reader)
    check(error, f"name the coordinator of {name}")
    return address


def own_id_request(name: str, timeout_ms: int, producer: tuple[int, int] = (-1, -1)) -> bytes:
    """Returns the body that makes the asker the owner of a transactional id.

    `producer`: the id and epoch that it must have, unless it is anybody's.
    """
    return text(name) + struct.pack(">iqh", timeout_ms, *producer) + NO_TAGS


def read_own_id(reader: ResponseReader) -> tuple[int, int]:
    """Decodes the id and its new epoch."""
    reader.skip(4)  # throttle time
    error, producer_id, epoch = reader.unpack(">hqh")
    check(error, "give the producer's name an id")
    return producer_id, epoch


def add_partitions_request(
    name: str, producer: tuple[int, int], places: Collection[Partition]
) -> bytes:
    """Returns the body that adds partitions to the transaction."""
    asked = topics(places, lambda place: struct.pack(">i", place[1]))
    return text(name) + struct.pack(">qh", *producer) + asked + NO_TAGS


def end_request(name: str, producer: tuple[int, int]) -> bytes:
    """Returns the body that aborts the transaction, if one is open."""
    return text(name) + struct.pack(">qhb", *producer, 0) + NO_TAGS


def read_owner(reader: ResponseReader) -> None:
    """Raises NameTakenError unless the asker of `end_request` owns the transactional id."""
    reader.skip(4)  # throttle time
    (error,) = reader.unpack(">h")
    check(0 if error == _INVALID_STATE else error, "tell who has the producer's name")


def commit_request(group: str, commits: Mapping[Partition, tuple[int, str]]) -> bytes:
    """Returns the body that commits offsets with their metadata, for no member of the group."""

    def form(place: Partition) -> bytes:
        offset, metadata = commits[place]
        return struct.pack(">iqi", place[1], offset, -1) + text(metadata) + NO_TAGS

    return text(group) + _NO_MEMBER + topics(commits, form) + NO_TAGS


def read_codes(reader: ResponseReader) -> None:
    """Decodes the codes of commits or of added partitions, and raises the first error."""
    reader.skip(4)  # throttle time
    for _ in range(reader.count()):
        topic = reader.text()
        for _ in range(reader.count()):
            number, error = reader.unpack(">ih")
            reader.tags()
            check(error, f"take {topic}[{number}]")
        reader.tags()


def read_commits(reader: ResponseReader) -> Committed:
    """Decodes the commits of the only group that was asked for."""
    (found,) = read_committed(reader).values()
    check(found.error, "tell a producer's offsets")
    return found


def read_ends(reader: ResponseReader) -> dict[Partition, int]:
    """Decodes where partitions end."""
    found = {}
    for each in read_offsets(reader):
        check(each.error, f"tell the end of {each.topic}[{each.partition}]")
        found[each.topic, each.partition] = each.offset
    return found
