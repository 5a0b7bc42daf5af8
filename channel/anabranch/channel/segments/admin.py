"""Kafka's side of a scalable topic: the topics of its segments, and its subscriptions' groups.

Blocking calls, all idempotent, each with a deadline, to be made by one thread. A final refusal by
Kafka is a KafkaRefusedError that names the topic and the remedy. Any other failure is tried again
until the deadline, and then is a KafkaUnreachableError. `sealing` says how a segment is sealed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

import msgspec
from confluent_kafka import (
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from confluent_kafka.cimpl import NewTopic

from anabranch.channel.errors import (
    KafkaPolicyError,
    KafkaRefusedError,
    KafkaUnreachableError,
    SegmentExistsError,
)
from anabranch.channel.kafka.brokers import Racks, living
from anabranch.channel.kafka.connection import COORDINATOR_S, KafkaConnection
from anabranch.channel.kafka.deadline import Deadline
from anabranch.channel.kafka.deletion import delete_nothing
from anabranch.channel.kafka.propagation import await_known
from anabranch.channel.segments.copies import Views
from anabranch.channel.segments.looks import look, strays
from anabranch.channel.segments.seal_settings import SEAL
from anabranch.channel.segments.sealing import Sealer, SegmentTopic, nothing
from anabranch.core.topics.findings import KafkaTopic
from anabranch.core.topics.kafka_names import FUTURE_MS_MAX
from anabranch.core.topics.kafka_placement import Assignment, Placer, Room, allowed

_TOPICS_AT_ONCE: Final = 2_000  # in one request
# Kafka makes at most 10,000 records of one request: for each topic, each setting, each partition.
_RECORDS_AT_ONCE: Final = 9_000
_RECORDS_OF_TOPIC: Final = 10  # settings included

_CLUSTER_S: Final = 1.0  # then it is asked again who there is
_NAMES_REFRESHED: Final = 2  # an operation has two parents at most
_REFRESH_S_MAX: Final = 0.5

_PAST_MS_MIN: Final = 86_400_000  # a message may wait for its producer that long

_Answers = dict[str, Any]


class SegmentSettings(msgspec.Struct, frozen=True):
    """An operator's settings for the Kafka topics of segments; -1: without a limit.

    `retention_bytes`: for a partition. `oldest_ms`: older messages are refused, because a message
    of that age may be deleted as soon as it is there.
    """

    replication_factor: int = 1
    min_insync_replicas: int = 1
    max_message_bytes: int = 1_048_588
    retention_ms: int = -1
    retention_bytes: int = -1
    oldest_ms: int = -1


RETENTION: Final = frozenset({"retention.ms", "retention.bytes"})


def lived_by(settings: SegmentSettings) -> dict[str, str]:
    """The settings of its topic without which a segment loses messages, or parts of their
    content.
    """
    return {
        "cleanup.policy": "delete",
        **_kept(settings),
        "message.timestamp.type": "CreateTime",
    }


def _kept(settings: SegmentSettings) -> dict[str, str]:
    """Returns the limits of Kafka's retention, which does not regard readers."""
    return {
        "retention.ms": str(settings.retention_ms),
        "retention.bytes": str(settings.retention_bytes),
    }


class SegmentAdmin:
    """Makes, seals and deletes topics for a controller. To be used by one thread."""

    def __init__(
        self, connection: KafkaConnection, settings: SegmentSettings, views: Views | None = None
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._admin = connection.admin()
        self._sealer = Sealer(connection, self._admin, views)
        self._racks = Racks(self._admin)
        self._placer = Placer()

    @property
    def told(self) -> frozenset[str]:
        """The settings that `look` tells."""
        return frozenset((*SEAL, *lived_by(self._settings)))

    def close(self) -> None:
        """Ends the clients; waits for a bounded time."""
        self._sealer.close()

    def create(
        self, topics: Sequence[SegmentTopic], deadline_s: float, room: Room | None = None
    ) -> None:
        """Makes the topics that are missing; returns when Kafka has written down that they exist.

        One request makes all, or as many as Kafka takes in one. `room`: the known facts of Kafka's
        brokers, which place new partitions; None leaves that to Kafka. Raises SegmentExistsError
        for one that is there with another number of partitions, other KafkaRefusedErrors, or
        KafkaUnreachableError.
        """
        deadline = self._deadline(deadline_s, [topic.name for topic in topics])
        for some in together(topics, _RECORDS_AT_ONCE, _RECORDS_OF_TOPIC):
            there = self._create(some, room, deadline)
            self._await_leaders([topic for topic in some if topic.name in there], deadline)

    def await_leaders(self, topics: Sequence[SegmentTopic], deadline_s: float) -> None:
        """Returns when every partition of the topics has a leader. Raises as `create`."""
        deadline = self._deadline(deadline_s, [topic.name for topic in topics])
        for some in together(topics, _RECORDS_AT_ONCE, _RECORDS_OF_TOPIC):
            self._await_leaders(some, deadline)

    def await_copies(self, topics: Sequence[SegmentTopic], timeout_s: float) -> bool:
        """Returns whether every copy that lives follows its leader, once it does or time is over.

        A follower that asks for a new partition too early rests for a second (Kafka's
        `replica.fetch.backoff.ms`). Appends with all copies wait for it.
        """
        places = [(topic.name, number) for topic in topics for number in range(topic.partitions)]
        # Nothing is asked anew: the answer would wait behind the one that is awaited.
        deadline = Deadline(self._connection, timeout_s, lambda: None)
        doing = f"to wait until topic {places[0][0]} is replicated"
        try:
            delete_nothing(self._admin, places, set(), deadline, doing)
        except (KafkaRefusedError, KafkaUnreachableError):
            return False
        return True

    def start_share_groups(self, groups: Sequence[str], deadline_s: float) -> None:
        """Lets each share group begin at the first record of any topic it consumes. The group gets
        nothing of a transaction that is open or aborted.

        From 4.3 Kafka has settings for two more things. It makes known at once the consumers of a
        new segment, which by default it collects for a second. It discards a message only after ten
        deliveries, not five. No broker's default can be more.
        """
        deadline = self._deadline(deadline_s, groups)
        earliest = {"share.auto.offset.reset": "earliest"}
        committed = {**earliest, "share.isolation.level": "read_committed"}
        quick = {**committed, "share.assignment.interval.ms": "0"}
        often = {**quick, "share.delivery.count.limit": "10"}
        for group in groups:  # librdkafka takes one group a call
            self._set_up_share_group(group, (often, quick, committed, earliest), deadline)
            # Whichever leads the group begins it by what it knows then, and by default at the end.
            doing = f"to set up share group {group}"
            await_known(
                self._admin,
                [ConfigResource(ConfigResource.Type.GROUP, group)],
                lambda _broker, _group, found: found["share.auto.offset.reset"] == "earliest",
                partial(self._living, group, deadline, doing),
                deadline,
                doing,
            )

    def _set_up_share_group(
        self, group: str, choices: Sequence[Mapping[str, str]], deadline: Deadline
    ) -> None:
        """Sets the group up by the first choice that Kafka knows and no operator forbids."""
        for settings in choices:
            try:
                self._set_of_group(group, settings, deadline)
            except KafkaPolicyError:
                if settings is choices[-1]:
                    raise
            else:
                return

    def _set_of_group(self, group: str, settings: Mapping[str, str], deadline: Deadline) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=entries)

        def ask(_: Collection[str]) -> dict[str, Future[Any]]:
            futures = self._admin.incremental_alter_configs([resource])
            return {found.name: future for found, future in futures.items()}

        self._each([group], ask, "to set up share group", set(), deadline)

    def _living(self, name: str, deadline: Deadline, doing: str) -> set[int] | None:
        """The brokers that live; None if Kafka cannot say now. `name`: see `living`."""
        try:
            return set(living(self._admin, name, min(deadline.left_s(doing), _CLUSTER_S))) or None
        except KafkaException as error:
            deadline.passing(error.args[0], doing)
            return None

    def seal(
        self,
        topics: Sequence[SegmentTopic],
        deadline_s: float,
        meanwhile: Callable[[], None] = nothing,
    ) -> dict[str, tuple[int, ...]]:
        """Makes Kafka refuse every append, and returns each partition's end offset, now final.

        `meanwhile` is called once, while Kafka's controller writes the settings.
        Raises KafkaRefusedError or KafkaUnreachableError; the topics may then be sealed in part,
        and sealing again goes on.
        """
        deadline = self._deadline(deadline_s, [topic.name for topic in topics])
        return self._sealer.seal(topics, deadline, meanwhile)

    def look(self, topics: Sequence[str], deadline_s: float) -> dict[str, KafkaTopic | None]:
        """Kafka's state of these topics; None for one that it does not have. The answer lacks a
        topic that Kafka does not describe.
        """
        return look(self._admin, topics, self.told, deadline_s)

    def strays(
        self, topic: str, ends: Sequence[int], deadline_s: float, most: int
    ) -> dict[int, list[int]]:
        """Offsets of messages at or behind these ends, by partition. Raises the errors of
        `seal`.
        """
        found: dict[int, list[int]] = {}
        for message in strays(self._connection, topic, ends, deadline_s, most):
            found.setdefault(message.partition() or 0, []).append(message.offset() or 0)
        return found

    def retain(self, topics: Iterable[str], deadline_s: float) -> None:
        """Has Kafka keep messages of those that are there as the settings say now."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in _kept(self._settings).items()
        ]
        names = list(topics)
        deadline = self._deadline(deadline_s, names)

        def ask(left: Collection[str]) -> dict[str, Future[Any]]:
            kind = ConfigResource.Type.TOPIC
            asked = [ConfigResource(kind, each, incremental_configs=entries) for each in left]
            futures = self._admin.incremental_alter_configs(asked)
            return {found.name: future for found, future in futures.items()}

        for start in range(0, len(names), _TOPICS_AT_ONCE):
            self._each(
                names[start : start + _TOPICS_AT_ONCE],
                ask,
                "to set the retention of topic",
                {KafkaError.UNKNOWN_TOPIC_OR_PART},
                deadline,
            )

    def delete(self, topics: Iterable[str], deadline_s: float) -> None:
        """Deletes the topics that are there."""
        names = list(topics)
        deadline = self._deadline(deadline_s, names)
        for start in range(0, len(names), _TOPICS_AT_ONCE):
            self._each(
                names[start : start + _TOPICS_AT_ONCE],
                lambda left: self._admin.delete_topics(list(left)),
                "to delete topic",
                {KafkaError.UNKNOWN_TOPIC_OR_PART},
                deadline,
            )

    def delete_groups(self, groups: Iterable[str], deadline_s: float) -> list[str]:
        """Deletes the groups that are there; returns those that still have members.

        Those go by themselves once their members have left and their offsets have expired.
        """
        names = list(groups)
        # A client of its own: it ends with its open requests, long before their time is over.
        admin = self._connection.admin()
        deadline = Deadline(self._connection, deadline_s, partial(_notice, admin))
        answers = self._each(
            names,
            lambda left: admin.delete_consumer_groups(list(left), request_timeout=COORDINATOR_S),
            "to delete group",
            {KafkaError.GROUP_ID_NOT_FOUND, KafkaError.NON_EMPTY_GROUP},
            deadline,
        )
        return [
            group
            for group, answer in answers.items()
            if isinstance(answer, KafkaError) and answer.code() == KafkaError.NON_EMPTY_GROUP
        ]

    # --- steps --------------------------------------------------------------------------

    def _deadline(self, seconds: float, names: Sequence[str]) -> Deadline:
        def refresh() -> None:
            # Any name tells the controller; a sealed topic's name also tells its leader.
            _notice(self._admin)
            for name in names[:_NAMES_REFRESHED]:
                with contextlib.suppress(KafkaException):
                    self._admin.list_topics(name, timeout=_REFRESH_S_MAX)

        return Deadline(self._connection, seconds, refresh)

    def _each(
        self,
        names: Collection[str],
        ask: Callable[[Collection[str]], Mapping[str, Future[Any]]],
        doing: str,
        fine: set[int],
        deadline: Deadline,
    ) -> _Answers:
        """Asks again for those names that failed otherwise than with a `fine` error."""
        answers: _Answers = {}
        left = list(names)
        while left:
            for name, future in ask(left).items():
                answer = deadline.answer(future, f"{doing} {name}")
                if not isinstance(answer, KafkaError) or answer.code() in fine:
                    answers[name] = answer
            left = [name for name in left if name not in answers]
            if left:
                deadline.pause(f"{doing} {left[0]}")
        return answers

    def _create(
        self, topics: Sequence[SegmentTopic], room: Room | None, deadline: Deadline
    ) -> set[str]:
        """The topics that were there already, from an earlier attempt or from elsewhere."""
        partitions = {topic.name: topic.partitions for topic in topics}

        def ask(left: Collection[str]) -> dict[str, Future[None]]:
            # Placed anew at each try: a broker may have died since the one before.
            wanted = {name: partitions[name] for name in left}
            placed = self._placed(wanted, room, deadline) if room is not None else {}
            new = [self._new(name, count, placed.get(name)) for name, count in wanted.items()]
            return self._admin.create_topics(new)

        answers = self._each(
            partitions, ask, "to create topic", {KafkaError.TOPIC_ALREADY_EXISTS}, deadline
        )
        return {name for name, answer in answers.items() if isinstance(answer, KafkaError)}

    def _placed(
        self, topics: Mapping[str, int], room: Room, deadline: Deadline
    ) -> dict[str, Assignment]:
        """The brokers for the topics; empty if Kafka is to choose them.

        Kafka knows best what to do if fewer brokers live than there are to be copies.
        """
        copies = self._settings.replication_factor
        name = next(iter(topics))
        doing = f"to learn which brokers live, for topic {name}"
        while (live := self._living(name, deadline, doing)) is None:
            deadline.pause(doing)
        racks = {each.broker_id: each.rack for each in room.brokers if each.broker_id in live}
        if len(live) == 1:
            racks = dict.fromkeys(live, "")
        elif strange := live - racks.keys():  # the survey did not see them
            racks |= self._racks.ask(strange, min(deadline.left_s(doing), _CLUSTER_S))
        brokers = allowed(room, racks, copies)
        if len(racks) == 1 or len(brokers) < copies:
            return {}
        return self._placer.place(room, brokers, topics, copies)

    def _new(self, name: str, partitions: int, placed: Assignment | None) -> NewTopic:
        """`placed`: None for where Kafka likes."""
        settings = self._settings
        where: dict[str, Any] = {"replication_factor": settings.replication_factor}
        if placed is not None:
            where = {"replica_assignment": [list(replicas) for replicas in placed]}
        kept = {}
        if settings.oldest_ms >= 0:
            # Event time would have it deleted at once: better that Kafka refuses it.
            oldest_ms = max(settings.oldest_ms, _PAST_MS_MIN)
            kept = {"message.timestamp.before.max.ms": str(oldest_ms)}
        return NewTopic(
            name,
            num_partitions=partitions,
            **where,
            config={
                **lived_by(settings),
                "max.message.bytes": str(settings.max_message_bytes),
                "min.insync.replicas": str(settings.min_insync_replicas),
                "message.timestamp.after.max.ms": str(FUTURE_MS_MAX),
                "unclean.leader.election.enable": "false",
                **kept,
            },
        )

    def _await_leaders(self, topics: Sequence[SegmentTopic], deadline: Deadline) -> None:
        waiting = {topic.name: topic.partitions for topic in topics}
        while waiting:
            doing = f"to find the leaders of topic {next(iter(waiting))}"
            futures = self._admin.describe_topics(TopicCollection(list(waiting)))
            for name, future in futures.items():
                found = deadline.answer(future, doing)
                if isinstance(found, KafkaError):
                    continue
                if len(found.partitions) != waiting[name]:
                    raise SegmentExistsError(name, len(found.partitions), waiting[name])
                if all(partition.leader is not None for partition in found.partitions):
                    del waiting[name]
            if waiting:
                deadline.pause(doing)


def together(
    topics: Iterable[SegmentTopic], most: int, of_topic: int
) -> Iterator[list[SegmentTopic]]:
    """The topics in as few runs as requests may hold, of `most` partitions each.

    `of_topic`: the number of partitions that each topic counts in addition.
    """
    run: list[SegmentTopic] = []
    count = 0
    for topic in topics:
        more = topic.partitions + of_topic
        if run and count + more > most:
            yield run
            run, count = [], 0
        run.append(topic)
        count += more
    if run:
        yield run


def _notice(admin: AdminClient) -> None:
    """A client that is not let in only says so when it is asked."""
    admin.poll(0)
