"""Kafka's answers about groups over a connection of our own.

They are a queue's progress, and the start offsets of its share group, for which librdkafka has no
call. They are also the commits of other groups, for which its call costs a client for each group.

Kafka is asked so (DescribeShareGroupOffsets, AlterShareGroupOffsets, KIP-932), unless SASL guards
it by a mechanism that is not spoken here. All below a start offset was acknowledged, rejected, or
given up by Kafka. The offset lags behind the latest acknowledgements; from 4.2 Kafka also tells the
number of messages left (KIP-1226).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from itertools import product
from typing import Final, TypeVar

from confluent_kafka import KafkaError

from anabranch.channel.errors import KafkaRefusedError, KafkaUnreachableError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.offsets import Place
from anabranch.channel.segments.positions import GroupPositions
from anabranch.core.subscriptions.known_positions import CommittedPosition, parts_of
from anabranch.wire import clock
from anabranch.wire.kafka.committed import CommittedReader
from anabranch.wire.kafka.protocol import (
    Address,
    BrokerConnection,
    KafkaProtocolError,
    ResponseReader,
    can_ask,
    text,
)
from anabranch.wire.varint import varint

_T = TypeVar("_T")

_DESCRIBE: Final = 90
_DESCRIBE_VERSIONS: Final = (1, 0)  # the first one tells how many are left
_ALTER: Final = 91
_ALTER_VERSIONS: Final = (0,)
_NOT_TOLD: Final = -1
_NOT_BEGUN: Final = -1
_NO_GROUP: Final = KafkaError.GROUP_ID_NOT_FOUND
_ELSEWHERE: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
BROKER_S_MAX: Final = 3.0  # of one broker's answers
COORDINATORS_MAX: Final = 1_000  # remembered


class KafkaPositions(GroupPositions):
    """A node's questions to Kafka about positions, for use by one thread."""

    def __init__(self, connection: KafkaConnection) -> None:
        super().__init__(connection)
        self._security = connection.security
        self._coordinators: dict[str, Address] = {}  # by group, the last one
        self._reader = CommittedReader(self._security, BROKER_S_MAX)
        self._brokers: list[Address] = []  # as they were known last

    def close(self) -> None:
        """Ends the connections."""
        self._reader.close()
        super().close()

    def committed(
        self, group: str, places: Iterable[Place], deadline_s: float
    ) -> dict[Place, CommittedPosition]:
        """Does the same as in `GroupPositions`, without a client for the group if that can be."""
        asked, deadline = list(places), clock.now() + deadline_s
        told = self._together({group: asked}, deadline_s).get(group) if asked else None
        if told is not None:
            return told
        # librdkafka tells faults, also those that pass.
        return super().committed(group, asked, deadline - clock.now())

    def committed_by(
        self, groups: Mapping[str, Sequence[Place]], deadline_s: float
    ) -> dict[str, dict[Place, CommittedPosition]]:
        """Returns the commits of many groups; leaves out those that Kafka does not tell, or not in
        time.

        If it asks for each group by itself, one that takes long leaves time for the others.
        """
        deadline = clock.now() + deadline_s
        if can_ask(self._security):
            return self._together(groups, deadline_s)
        found: dict[str, dict[Place, CommittedPosition]] = {}
        for group, places in groups.items():
            left_s = deadline - clock.now()
            if left_s <= 0:
                break
            with suppress(KafkaUnreachableError, KafkaRefusedError):
                found[group] = super().committed(group, places, min(left_s, BROKER_S_MAX))
        return found

    def _together(
        self, groups: Mapping[str, Sequence[Place]], deadline_s: float
    ) -> dict[str, dict[Place, CommittedPosition]]:
        """Asks over a connection of our own, where that can be."""
        if not can_ask(self._security) or deadline_s <= BROKER_S_MAX:
            return {}
        try:
            brokers = self._brokers or self.brokers(next(iter(groups)), BROKER_S_MAX)
            told = self._reader.committed(brokers, groups)
        except (OSError, KafkaProtocolError, KafkaUnreachableError, KafkaRefusedError):
            brokers, told = [], {}
        found = {
            group: {
                place: CommittedPosition(at, parts_of(each.metadata.get(place, ""))[0])
                for place, at in each.offsets.items()
                if at >= 0
            }
            for group, each in told.items()
            if not each.error
        }
        self._brokers = brokers if found else []
        return found

    def queue(
        self, group: str, places: Iterable[Place], deadline_s: float
    ) -> dict[Place, tuple[int, int]]:
        """Returns the group's position in each partition that Kafka tells of, and the messages
        left, or -1.

        Returns {} if Kafka cannot be asked. Raises KafkaRefusedError, or KafkaUnreachableError.
        """
        asked = list(places)
        if not asked or not self.places_queues():
            return {}
        found = self._described(group, asked, clock.now() + deadline_s)
        return {place: (max(0, start), left) for place, (start, left) in found.items()}

    def places_queues(self) -> bool:
        """Returns whether `begin_queue` works here."""
        return can_ask(self._security)

    def begin_queue(self, group: str, starts: Mapping[Place, int], deadline_s: float) -> None:
        """Lets the group, which has no readers yet, begin at these offsets.

        A partition that has begun already stays. Raises as `queue`.
        """
        deadline = clock.now() + deadline_s
        # Before the first question about a group Kafka has no coordinator: the question makes it.
        self.committed(f"{group}.begins", list(starts)[:1], deadline_s)
        begun = self._described(group, list(starts), deadline)
        left = {
            place: offset
            for place, offset in starts.items()
            if begun.get(place, (_NOT_BEGUN, 0))[0] == _NOT_BEGUN
        }
        if left:
            body = _alteration(group, left)
            doing = f"to set the start offsets of share group {group}"
            self._coordinated(group, doing, _ALTER, _ALTER_VERSIONS, body, _altered, deadline)

    def _described(
        self, group: str, places: Sequence[Place], deadline: float
    ) -> dict[Place, tuple[int, int]]:
        body = _description(group, places)
        doing = f"to read the start offsets of share group {group}"
        return self._coordinated(
            group, doing, _DESCRIBE, _DESCRIBE_VERSIONS, body, _described, deadline
        )

    def _coordinated(
        self,
        group: str,
        doing: str,
        question: int,
        versions: Iterable[int],
        body: bytes,
        read: Callable[[ResponseReader, int, str], _T | None],
        deadline: float,
    ) -> _T:
        """Returns the answer of the broker that coordinates the group at this time."""
        known = self._coordinators.get(group)
        others = self.brokers(group, deadline - clock.now())
        first = [known] if known is not None else []
        for address, version in product([*first, *others], versions):
            left_s = min(BROKER_S_MAX, deadline - clock.now())
            if left_s <= 0:
                break
            try:
                with closing(BrokerConnection(address, self._security, left_s)) as connection:
                    said = connection.ask(question, version, body)
                found = read(said, version, doing)
            except (OSError, KafkaProtocolError):
                continue  # it does not know the version, or another one coordinates the group
            if found is not None:
                self._coordinators[group] = address
                if len(self._coordinators) > COORDINATORS_MAX:
                    del self._coordinators[next(iter(self._coordinators))]
                return found
        self._coordinators.pop(group, None)
        raise self._connection.unreachable(doing)


def _description(group: str, places: Iterable[Place]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    body = b"\x02" + text(group) + varint(len(topics) + 1)
    for topic, partitions in topics.items():
        numbers = struct.pack(f">{len(partitions)}i", *partitions)
        body += text(topic) + varint(len(partitions) + 1) + numbers + b"\0"
    return body + b"\0\0"  # no tags: of the group, of the request


def _alteration(group: str, starts: Mapping[Place, int]) -> bytes:
    topics: dict[str, list[bytes]] = {}
    for (topic, partition), offset in starts.items():
        topics.setdefault(topic, []).append(struct.pack(">iq", partition, offset) + b"\0")
    body = text(group) + varint(len(topics) + 1)
    for topic, partitions in topics.items():
        body += text(topic) + varint(len(partitions) + 1) + b"".join(partitions) + b"\0"
    return body + b"\0"


def _altered(reader: ResponseReader, version: int, doing: str) -> bool | None:
    """None: it is not this broker that coordinates. Raises KafkaRefusedError."""
    reader.skip(4)  # throttle time
    (error,) = reader.unpack(">h")
    message = reader.text()
    if error in _ELSEWHERE:
        return None
    for _ in range(reader.count()):
        reader.text()
        reader.skip(16)  # the topic's id
        for _ in range(reader.count()):
            _, wrong = reader.unpack(">ih")
            said = reader.text()
            reader.tags()
            if wrong and not error:
                error, message = wrong, said
        reader.tags()
    if error:
        raise KafkaRefusedError(
            f"Kafka refused {doing}: error {error} {message}; it takes the rights to read the "
            "group and its topics, and nobody may be a member of the group"
        )
    return True


def _described(
    reader: ResponseReader, version: int, doing: str
) -> dict[Place, tuple[int, int]] | None:
    """None: it is not this broker that knows. Raises KafkaRefusedError."""
    reader.skip(4)  # throttle time
    found: dict[Place, tuple[int, int]] = {}
    for _ in range(reader.count()):
        reader.text()  # its name
        for _ in range(reader.count()):
            topic = reader.text()
            reader.skip(16)  # its id
            for _ in range(reader.count()):
                partition, start, _ = reader.unpack(">iqi")
                (left,) = reader.unpack(">q") if version else (_NOT_TOLD,)
                (error,) = reader.unpack(">h")
                reader.text()
                reader.tags()
                if not error:
                    found[topic, partition] = (start, left)
            reader.tags()
        (error,) = reader.unpack(">h")
        message = reader.text()
        reader.tags()
        if error in _ELSEWHERE:
            return None
        if error and error != _NO_GROUP:
            raise KafkaRefusedError(
                f"Kafka refused {doing}: error {error} {message}; it takes the rights to describe "
                "the group and its topics"
            )
    return found
