"""Where segments begin and end, and where a subscription's group stands in them, by Kafka.

Blocking calls, each with a deadline, to be made by one thread. Errors are those of `segments`.

A group's positions are read and written by a client that names the group and never joins it, as the
SDK's consumers do: Kafka takes that from a group without members. The admin client's own question
for them (`list_consumer_group_offsets`) ends the process with librdkafka 2.16.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    OffsetSpec,
)

from anabranch.channel.connection import KafkaConnection, close_consumer
from anabranch.channel.patience import Patience

Place = tuple[str, int]  # Kafka topic and partition

EARLIEST: Final = -2  # in the place of a time, as in Kafka's own protocol
LATEST: Final = -1
_AT_ONCE: Final = 2_000  # partitions of one request
_CLOSE_S: Final = 2.0
_REFRESH_S: Final = 0.5
# A commit, which takes no deadline, is tried for the session time-out when nobody coordinates.
_PATIENCE: Final[Mapping[str, Any]] = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 2_000}


class GroupPositions:
    """Questions on offsets, and commits in a group's name. To be used by one thread."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._admin = connection.admin()

    def close(self) -> None:
        """Nothing is left open: the admin client ends with its last reference."""

    def offsets(
        self, places: Iterable[Place], timestamp_ms: int, deadline_s: float
    ) -> dict[Place, int]:
        """Each partition's first offset of that time or later; -1 where there is none.

        EARLIEST: the first that Kafka still has; LATEST: the one that comes next. Raises
        KafkaRefusedError or KafkaUnreachableError.
        """
        asked = list(places)
        patience = self._patience(deadline_s, asked)
        found: dict[Place, int] = {}
        for some in _together(asked):
            self._ask(some, timestamp_ms, patience, found)
        return found

    def committed(self, group: str, places: Iterable[Place], deadline_s: float) -> dict[Place, int]:
        """The group's committed offsets, of the partitions that have one. Raises as `offsets`."""
        asked = list(places)
        patience = self._patience(deadline_s, asked)
        doing = f"to read the committed offsets of group {group}"
        consumer: Consumer = self._connection.consumer(group_id=group, **_PATIENCE)
        try:
            found: dict[Place, int] = {}
            for some in _together(asked):
                given = [TopicPartition(*place) for place in some]
                for each in self._answered(patience, doing, consumer.committed, given):
                    if each.offset >= 0:
                        found[each.topic, each.partition] = each.offset
            return found
        finally:
            close_consumer(consumer, _CLOSE_S)

    def commit(self, group: str, offsets: Mapping[Place, int], deadline_s: float) -> None:
        """Puts the group at these offsets. Raises as `offsets`; some may then be committed."""
        patience = self._patience(deadline_s, list(offsets))
        doing = f"to commit offsets of group {group}"
        consumer: Consumer = self._connection.consumer(group_id=group, **_PATIENCE)

        def commit(given: list[TopicPartition], timeout: float) -> list[TopicPartition]:
            return consumer.commit(offsets=given, asynchronous=False) or []

        try:
            for some in _together(offsets):
                given = [TopicPartition(*place, offsets[place]) for place in some]
                self._answered(patience, doing, commit, given)
        finally:
            close_consumer(consumer, _CLOSE_S)

    def _patience(self, deadline_s: float, places: Sequence[Place]) -> Patience:
        def refresh() -> None:
            for topic, _ in places[:1]:
                with suppress(KafkaException):
                    self._admin.list_topics(topic, timeout=_REFRESH_S)

        return Patience(self._connection, deadline_s, refresh)

    def _ask(
        self,
        places: Sequence[Place],
        timestamp_ms: int,
        patience: Patience,
        found: dict[Place, int],
    ) -> None:
        doing = f"to find offsets of topic {places[0][0]}"
        spec: Any = OffsetSpec
        at = {EARLIEST: spec.earliest, LATEST: spec.latest}.get(
            timestamp_ms, lambda: spec.for_timestamp(timestamp_ms)
        )()
        left = list(places)
        while left:
            asked = {TopicPartition(*place): at for place in left}
            for partition, future in self._admin.list_offsets(asked).items():
                answer = patience.answer(future, doing)
                if not isinstance(answer, KafkaError):
                    found[partition.topic, partition.partition] = answer.offset
            left = [place for place in left if place not in found]
            if left:
                patience.pause(doing)

    def _answered(
        self,
        patience: Patience,
        doing: str,
        call: Any,  # of confluent-kafka, which has no types for it
        asked: list[TopicPartition],
    ) -> list[TopicPartition]:
        while True:
            try:
                answers: list[TopicPartition] = call(asked, timeout=patience.left_s(doing))
            except KafkaException as error:
                patience.passing(error.args[0], doing)
            else:
                wrong = [each.error for each in answers if each.error is not None]
                if not wrong:
                    return answers
                patience.passing(wrong[0], doing)
            patience.pause(doing)


def _together(places: Iterable[Place]) -> Iterable[list[Place]]:
    left = iter(places)
    while some := list(islice(left, _AT_ONCE)):
        yield some
