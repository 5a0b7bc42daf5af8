"""The begins and ends of partitions, and the first offset at a time, as their leaders say.

The question comes from a consumer that reads nothing, joins no group and commits nothing. One
request goes to each leader for all of its partitions, under the leader's epoch, so that a former
leader is not believed. The consumer is told the high watermark, whatever transactions are open. It
needs the right Describe on the topics alone.

Tried and dropped: the administrator's `list_offsets`. If it does not know a leader yet, two threads
of librdkafka 2.16 do the same work on one state. One of them takes away the other's data, and the
process ends. Also dropped: asking for watermarks, which takes two requests for a partition.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from anabranch.channel.kafka.connection import KafkaConnection, close_consumer

Place = tuple[str, int]  # Kafka topic and partition

EARLIEST: Final = OFFSET_BEGINNING  # in the place of a time, as in Kafka's own protocol
LATEST: Final = OFFSET_END
# Else Kafka tells a consumer where the first open transaction begins, for an end.
ASKING: Final[Mapping[str, Any]] = {"isolation_level": "read_uncommitted"}
_AT_ONCE: Final = 2_000  # partitions of one request
_FIRST_SHARE: Final = 0.5  # a share of the time, for all leaders together
_LEARNED_SINGLY: Final = 20  # topics; for more, it is quicker to ask for all that there are
_LEADERS_AT_ONCE: Final = 32
_CLOSE_S: Final = 2.0
_NO_LEADER: Final = -1
_NONE_LED: Final = KafkaError._UNKNOWN_PARTITION  # or none there: the error of a whole request


class PartitionOffset(msgspec.Struct, frozen=True, gc=False):
    """`offset`: -1 if there is none of that time; `leader_epoch`: -1 if it is not known."""

    offset: int
    leader_epoch: int = -1


Answers = dict[Place, PartitionOffset | KafkaError]


class PartitionOffsets:
    """Asks Kafka. To be used by one thread, but for `soon`, which has one of its own.

    `consumer`: one that is `ASKING` and reads nothing while it is asked; without one, the class
    makes it.
    """

    def __init__(self, connection: KafkaConnection, consumer: Consumer | None = None) -> None:
        self._consumer: Consumer = consumer or connection.consumer(**ASKING)
        self._thread = ThreadPoolExecutor(1, "offsets")
        self._untold: frozenset[str] = frozenset()  # topics that were not fully told last
        self._apart = False  # True if a leader last kept the others' answers back

    def close(self) -> None:
        """Ends the consumer, once its open requests are over, and the thread."""
        self._thread.shutdown(cancel_futures=True)
        close_consumer(self._consumer, _CLOSE_S)

    def ask(self, places: Iterable[Place], at: int, timeout_s: float) -> Answers:
        """Each partition's answer from its leader about `at`, a time, EARLIEST or LATEST, or its
        error.

        A leader that does not answer in time keeps the others' answers back. Nothing is tried
        again. But librdkafka has to find the leader of an unanswered partition anew before the next
        question.
        """
        asked, deadline = list(places), time.monotonic() + timeout_s
        self._prepare(asked, deadline)
        found, failed = _ask(self._consumer, asked, at, deadline)
        if failed is not None:
            found.update((place, failed) for place in asked if place not in found)
        return self._noted(found)

    def soon(self, places: Iterable[Place], at: int, timeout_s: float) -> Future[Answers]:
        """Calls `ask` in a thread. A caller of this calls none of the others."""
        return self._thread.submit(self.ask, list(places), at, timeout_s)

    def ask_each(self, places: Iterable[Place], at: int, timeout_s: float) -> Answers:
        """Asks like `ask`, but a silent leader keeps no other answer back."""
        asked, deadline = list(places), time.monotonic() + timeout_s
        self._prepare(asked, deadline)
        found: Answers = {}
        if not self._apart:
            first = time.monotonic() + timeout_s * _FIRST_SHARE
            found, failed = _ask(self._consumer, asked, at, first)
            self._apart = failed is not None
        if self._apart:
            left = [place for place in asked if not isinstance(found.get(place), PartitionOffset)]
            found.update(self._by_leader(left, at, deadline))
        return self._noted(found)

    def _by_leader(self, places: Sequence[Place], at: int, deadline: float) -> Answers:
        """Asks each leader by itself, all at the same time."""
        found, led = _leaders(self._consumer, places, deadline)
        if not led:
            return found
        with ThreadPoolExecutor(min(len(led), _LEADERS_AT_ONCE), "leaders") as threads:
            asked = {
                leader: threads.submit(_ask, self._consumer, some, at, deadline)
                for leader, some in led.items()
            }
        self._apart = False
        for leader, future in asked.items():
            told, failed = future.result()
            found.update(told)
            if failed is not None:
                self._apart = True
                found.update((place, failed) for place in led[leader] if place not in told)
        return found

    def _prepare(self, places: Sequence[Place], deadline: float) -> None:
        """Notes the client's news, such as that it is not let in. Has the client find anew the
        topics that it was not fully told last, because it believes its old news of topics and
        leaders.
        """
        self._consumer.poll(0)
        untold = self._untold.intersection(topic for topic, _ in places)
        if untold:
            _known(self._consumer, untold, deadline)

    def _noted(self, found: Answers) -> Answers:
        wrong = (topic for (topic, _), each in found.items() if isinstance(each, KafkaError))
        self._untold = frozenset(wrong)
        return found


def _ask(
    consumer: Consumer, places: Sequence[Place], at: int, deadline: float
) -> tuple[Answers, KafkaError | None]:
    """The answers until a request fails as a whole, and the error of that."""
    found: Answers = {}
    for start in range(0, len(places), _AT_ONCE):
        some = places[start : start + _AT_ONCE]
        asked = [TopicPartition(*place, at) for place in some]
        try:
            answers = consumer.offsets_for_times(asked, timeout=_left_s(deadline))
        except KafkaException as error:
            failed: KafkaError = error.args[0]
            if failed.code() != _NONE_LED:
                return found, failed
            found.update(_leaders(consumer, some, deadline, led_too=True)[0])
            continue
        for each in answers:
            epoch: int | None = each.leader_epoch
            found[each.topic, each.partition] = each.error or PartitionOffset(
                each.offset, -1 if epoch is None else epoch
            )
    return found, None


def _leaders(
    consumer: Consumer, places: Sequence[Place], deadline: float, *, led_too: bool = False
) -> tuple[Answers, dict[int, list[Place]]]:
    """Why partitions have no leader, and by leader those that have one.

    `led_too`: nothing was told of those either, for when they were asked, they had none.
    """
    known = _known(consumer, {topic for topic, _ in places}, deadline)
    found: Answers = {}
    led: dict[int, list[Place]] = {}
    for place in places:
        topic = known[place[0]]
        leader = topic if isinstance(topic, KafkaError) else topic.get(place[1])
        if isinstance(leader, KafkaError):
            found[place] = leader
        elif leader is None:
            found[place] = KafkaError(KafkaError._UNKNOWN_PARTITION)
        elif leader == _NO_LEADER or led_too:
            found[place] = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
        else:
            led.setdefault(leader, []).append(place)
    return found, led


def _known(
    consumer: Consumer, topics: Collection[str], deadline: float
) -> Mapping[str, Mapping[int, int] | KafkaError]:
    """The leader of each partition, by topic, as Kafka says now, or the topic's error.

    Later questions for offsets go by it.
    """
    found: dict[str, Mapping[int, int] | KafkaError] = {}
    single = len(topics) <= _LEARNED_SINGLY
    for name in topics if single else [None]:
        try:
            told = consumer.list_topics(name, timeout=_left_s(deadline)).topics
        except KafkaException as error:
            return {topic: found.get(topic, error.args[0]) for topic in topics}
        for topic, each in told.items():
            leaders = {number: part.leader for number, part in each.partitions.items()}
            found[topic] = leaders if each.error is None else each.error
    not_there = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    return {topic: found.get(topic, not_there) for topic in topics}


def _left_s(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
