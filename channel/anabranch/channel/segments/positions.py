"""The begins and ends of segments, and the positions of a subscription's group in them, by Kafka.

Blocking calls, each with a deadline, to be made by one thread. Errors are those of `segments`.

A group's positions are read by a client that names the group and never joins it, as the SDK's
consumers do. Consumers write them, and without consumers a controller may. The admin client's own
question for positions (`list_consumer_group_offsets`) ends the process with librdkafka 2.16.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from anabranch.channel.kafka.brokers import living
from anabranch.channel.kafka.connection import KafkaConnection, close_consumer
from anabranch.channel.kafka.deadline import Deadline, asking_anew
from anabranch.channel.kafka.deletion import delete_records, led
from anabranch.channel.kafka.offsets import PartitionOffsets, Place
from anabranch.channel.segments.transactions import StableEnds
from anabranch.core.subscriptions.known_positions import CommittedPosition, parts_of

_AT_ONCE: Final = 2_000  # partitions of one request
_NOT_THERE: Final = KafkaError.OFFSET_OUT_OF_RANGE
_UNUSED: Final = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
_CLOSE_S: Final = 2.0
_TRY_S_MIN: Final = 0.5
_BROKERS_S: Final = 2.0


class GroupPositions:
    """Questions on offsets. To be used by one thread."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._admin = connection.admin()
        self._offsets = PartitionOffsets(connection)
        self._stable: StableEnds | None = None  # most never look for open transactions

    def close(self) -> None:
        """Ends the client that asks for offsets; the admin client ends with its last reference."""
        self._offsets.close()
        if self._stable is not None:
            self._stable.close()

    def held(self, ends: Mapping[Place, int], deadline_s: float) -> dict[Place, int]:
        """Does the same as `StableEnds.held`."""
        if self._stable is None:
            self._stable = StableEnds(self._connection)
        return self._stable.held(ends, deadline_s)

    def offsets(
        self, places: Iterable[Place], timestamp_ms: int, deadline_s: float
    ) -> dict[Place, int]:
        """Asks each partition's first offset of that time or later; -1 if there is none.

        EARLIEST: the first that Kafka still has; LATEST: the one that comes next. Raises
        KafkaRefusedError or KafkaUnreachableError.
        """
        left = list(places)
        deadline = self._deadline(deadline_s, left)
        found: dict[Place, int] = {}
        while left:
            doing = f"to find offsets of topic {left[0][0]}"
            # A leader that is gone does not answer: it is given up in time for the next one.
            try_s = max(_TRY_S_MIN, deadline.left_s(doing) / 4)
            for place, answer in self._offsets.ask(left, timestamp_ms, try_s).items():
                if isinstance(answer, KafkaError):
                    deadline.passing(answer, f"to find offsets of topic {place[0]}")
                else:
                    found[place] = answer.offset
            left = [place for place in left if place not in found]
            if left:
                deadline.pause(doing)
        return found

    def told_offsets(
        self, places: Iterable[Place], timestamp_ms: int, deadline_s: float
    ) -> dict[Place, int]:
        """Returns the same as `offsets`, by one question; leaves out any that Kafka does
        not tell.
        """
        answers = self._offsets.ask_each(places, timestamp_ms, deadline_s)
        return {
            place: answer.offset
            for place, answer in answers.items()
            if not isinstance(answer, KafkaError)
        }

    def committed(
        self, group: str, places: Iterable[Place], deadline_s: float
    ) -> dict[Place, CommittedPosition]:
        """The group's committed positions, if it has any. Raises the errors of `offsets`."""
        asked = list(places)
        deadline = self._deadline(deadline_s, asked)
        doing = f"to read the committed offsets of group {group}"
        consumer: Consumer = self._connection.consumer(group_id=group)
        try:
            found: dict[Place, CommittedPosition] = {}
            for some in _together(asked):
                given = [TopicPartition(*place) for place in some]
                for each in self._answered(deadline, doing, consumer.committed, given):
                    if each.offset >= 0:
                        mark, _ = parts_of(each.metadata or "")
                        told = CommittedPosition(each.offset, mark)
                        found[each.topic, each.partition] = told
            return found
        finally:
            close_consumer(consumer, _CLOSE_S)

    def commit(
        self, group: str, offsets: Mapping[Place, int], mark: str, deadline_s: float
    ) -> None:
        """Commits for a group that has no members. Raises the errors of `offsets`."""
        deadline = self._deadline(deadline_s, list(offsets))
        doing = f"to commit offsets of group {group}"
        ms = max(3, round(1_000 * deadline_s))
        consumer: Consumer = self._connection.consumer(
            group_id=group,
            session_timeout_ms=ms,
            heartbeat_interval_ms=ms // 3,
            socket_timeout_ms=max(10, ms),
        )

        def commit(given: list[TopicPartition], timeout: float) -> list[TopicPartition]:
            return consumer.commit(offsets=given, asynchronous=False) or []

        try:
            for some in _together(offsets):
                given = [TopicPartition(*place, offsets[place], metadata=mark) for place in some]
                self._answered(deadline, doing, commit, given)
        finally:
            close_consumer(consumer, _CLOSE_S)

    def trim(self, up_to: Mapping[Place, int], deadline_s: float) -> None:
        """Deletes the records of each partition below its offset. Raises the errors of `offsets`.

        Records that are gone already count as deleted.
        """
        deadline = self._deadline(deadline_s, list(up_to))
        for some in _together(up_to):
            left = set(some)
            while left:
                doing = f"to delete old records of topic {some[0][0]}"
                topics = {topic for topic, _ in left}
                try:
                    leading = led(self._admin, topics, deadline.left_s(doing))
                except KafkaException as error:
                    deadline.passing(error.args[0], doing)
                    leading = set()
                asked = {place: up_to[place] for place in left}
                for place, future in delete_records(self._admin, asked, leading).items():
                    answer = deadline.answer(future, doing)
                    if not isinstance(answer, KafkaError) or answer.code() == _NOT_THERE:
                        left.discard(place)
                if left:
                    deadline.pause(doing)

    def has_members(self, group: str, deadline_s: float) -> bool:
        """Tells whether it has a member of any kind. Raises the errors of `offsets`."""
        states = self._states(self._deadline(deadline_s, []), is_whole=True)
        return states.get(group, ConsumerGroupState.EMPTY) not in _UNUSED

    def brokers(self, name: str, deadline_s: float) -> list[tuple[str, int]]:
        """Hosts and ports of all Kafka brokers. `name`: see `living`. Raises the errors of
        `offsets`.
        """
        deadline, doing = self._deadline(deadline_s, []), "to list the brokers"
        while True:
            try:
                found = living(self._admin, name, min(deadline.left_s(doing), _BROKERS_S))
            except KafkaException as error:
                deadline.passing(error.args[0], doing)
            else:
                if found:
                    return list(found.values())
            deadline.pause(doing)

    def unused_groups(self, head: str, deadline_s: float) -> list[str]:
        """The groups without members whose names begin with `head`. Raises as `offsets`."""
        deadline = self._deadline(deadline_s, [])
        states = self._states(deadline)
        return [
            group for group, state in states.items() if group.startswith(head) and state in _UNUSED
        ]

    def _states(
        self, deadline: Deadline, *, is_whole: bool = False
    ) -> dict[str, ConsumerGroupState]:
        doing = "to list groups"
        while True:
            answer = deadline.answer(self._admin.list_consumer_groups(), doing)
            # A coordinator that does not answer may have groups that are read just now.
            if not isinstance(answer, KafkaError) and not (is_whole and answer.errors):
                return {each.group_id: each.state for each in answer.valid}
            deadline.pause(doing)

    def _deadline(self, deadline_s: float, places: Sequence[Place]) -> Deadline:
        refresh = asking_anew(self._admin, [topic for topic, _ in places[:1]])
        return Deadline(self._connection, deadline_s, refresh)

    def _answered(
        self,
        deadline: Deadline,
        doing: str,
        call: Any,  # from confluent-kafka, which has no types for it
        asked: list[TopicPartition],
    ) -> list[TopicPartition]:
        while True:
            try:
                answers: list[TopicPartition] = call(asked, timeout=deadline.left_s(doing))
            except KafkaException as error:
                deadline.passing(error.args[0], doing)
            else:
                wrong = [each.error for each in answers if each.error is not None]
                if not wrong:
                    return answers
                deadline.passing(wrong[0], doing)
            deadline.pause(doing)


def _together(places: Iterable[Place]) -> Iterable[list[Place]]:
    left = iter(places)
    while some := list(islice(left, _AT_ONCE)):
        yield some
