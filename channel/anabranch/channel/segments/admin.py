"""Kafka's side of a scalable topic: the topics of its segments, and its subscriptions' groups.

Blocking calls, all idempotent, each with a deadline, to be made by one thread. A final refusal by
Kafka is a KafkaRefusedError that names the topic and the remedy. Any other failure is tried again
until the deadline, and then is a KafkaUnreachableError. `sealing` says how a segment is sealed.
"""

from __future__ import annotations

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
from anabranch.channel.kafka.brokers import living
from anabranch.channel.kafka.connection import COORDINATOR_S, KafkaConnection
from anabranch.channel.kafka.deadline import Deadline, asking_anew
from anabranch.channel.kafka.deletion import delete_nothing
from anabranch.channel.kafka.propagation import await_known
from anabranch.channel.segments.copies import Views
from anabranch.channel.segments.looks import look, strays
from anabranch.channel.segments.opening import must_open, open_again, own_settings
from anabranch.channel.segments.seal_settings import BOUNDS, SEAL, STAMP, change, changed, is_sealed
from anabranch.channel.segments.sealing import Sealer, SegmentTopic, nothing
from anabranch.core.topics.findings import KafkaTopic
from anabranch.core.topics.kafka_names import FUTURE_MS_MAX

_TOPICS_AT_ONCE: Final = 2_000  # in one request
# Kafka makes at most 10,000 records of one request: for each topic, each setting, each partition.
_RECORDS_AT_ONCE: Final = 9_000
_RECORDS_OF_TOPIC: Final = 10  # settings included

_CLUSTER_S: Final = 1.0  # then it is asked again who there is
_NAMES_REFRESHED: Final = 2  # each may take a moment of every pause

_PAST_MS_MIN: Final = 86_400_000  # a message may wait for its producer that long

_NOT_THERE: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART,)


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

    @property
    def told(self) -> frozenset[str]:
        """The settings that `look` tells."""
        return frozenset((*SEAL, *lived_by(self._settings)))

    def close(self) -> None:
        """Ends the clients; waits for a bounded time."""
        self._sealer.close()

    def create(self, topics: Sequence[SegmentTopic], deadline_s: float) -> None:
        """Makes the topics that are missing; returns when Kafka has written down that they exist.

        One request makes all, or as many as Kafka takes in one. Raises SegmentExistsError for one
        that is there with another number of partitions, other KafkaRefusedErrors, or
        KafkaUnreachableError.
        """
        deadline = self._deadline(deadline_s, [topic.name for topic in topics])
        for some in together(topics, _RECORDS_AT_ONCE, _RECORDS_OF_TOPIC):
            there = self._create(some, deadline)
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

        try:
            deadline.answer_all([group], ask, "to set up share group")
        except KafkaRefusedError as error:
            if "Unknown resource type" not in str(error):
                raise
            raise KafkaRefusedError(f"{error}: queues need Kafka 4.2 or newer") from None

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
        if legacy := [topic.name for topic in topics if topic.is_legacy]:
            self._bound(legacy, deadline)
        return self._sealer.seal(topics, deadline, meanwhile)

    def own_settings(self, topic: str, deadline_s: float) -> dict[str, str]:
        """The topic's own values of the settings that a seal replaces. Raises as `seal`."""
        return own_settings(self._admin, topic, self._deadline(deadline_s, [topic]))

    def must_open(self, topic: str, own: Mapping[str, str], deadline_s: float) -> None:
        """Raises KafkaRefusedError if Kafka would not let `open_again` do its work."""
        must_open(self._admin, topic, own, self._deadline(deadline_s, [topic]))

    def open_again(self, topic: str, own: Mapping[str, str], deadline_s: float) -> None:
        """Lets a sealed topic take appends again, by these own settings. Raises as `seal`."""
        deadline = self._deadline(deadline_s, [topic])
        living = partial(self._living, topic, deadline, f"to open topic {topic} again")
        open_again(self._admin, topic, own, living, deadline)

    def _bound(self, names: Sequence[str], deadline: Deadline) -> None:
        """Has every broker refuse time-stamps in the far future: other people's topics take them.

        A topic that is sealed has that, and one that is gone takes nothing. Raises as `seal`.
        """
        doing = f"to bound the time-stamps of topic {names[0]}"
        seen = self.look(names, deadline.left_s(doing))
        left = [n for n in names if (at := seen.get(n)) is None or not is_sealed(at.settings)]
        for settings in BOUNDS:
            known = partial(_is_bounded, settings[STAMP])
            ask = partial(change, self._admin, settings)
            gone = changed(ask(left) if left else {}, ask, deadline)
            left = [name for name in left if name not in gone]
            if not left:
                return
            await_known(
                self._admin,
                [ConfigResource(ConfigResource.Type.TOPIC, name) for name in left],
                known,
                partial(self._living, left[0], deadline, doing),
                deadline,
                doing,
            )

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
            some = names[start : start + _TOPICS_AT_ONCE]
            deadline.answer_all(some, ask, "to set the retention of topic", _NOT_THERE)

    def delete(self, topics: Iterable[str], deadline_s: float) -> None:
        """Deletes the topics that are there."""
        names = list(topics)
        deadline = self._deadline(deadline_s, names)
        for start in range(0, len(names), _TOPICS_AT_ONCE):
            some = names[start : start + _TOPICS_AT_ONCE]
            deadline.answer_all(some, self._admin.delete_topics, "to delete topic", _NOT_THERE)

    def delete_groups(self, groups: Iterable[str], deadline_s: float) -> list[str]:
        """Deletes the groups that are there; returns those that still have members.

        Those go by themselves once their members have left and their offsets have expired.
        """
        names = list(groups)
        # A client of its own: it ends with its open requests, long before their time is over.
        admin = self._connection.admin()
        deadline = Deadline(self._connection, deadline_s, asking_anew(admin, ()))
        answers = deadline.answer_all(
            names,
            lambda left: admin.delete_consumer_groups(left, request_timeout=COORDINATOR_S),
            "to delete group",
            (KafkaError.GROUP_ID_NOT_FOUND, KafkaError.NON_EMPTY_GROUP),
        )
        return [
            group
            for group, answer in answers.items()
            if isinstance(answer, KafkaError) and answer.code() == KafkaError.NON_EMPTY_GROUP
        ]

    # --- steps --------------------------------------------------------------------------

    def _deadline(self, seconds: float, names: Sequence[str]) -> Deadline:
        refresh = asking_anew(self._admin, names[:_NAMES_REFRESHED])
        return Deadline(self._connection, seconds, refresh)

    def _create(self, topics: Sequence[SegmentTopic], deadline: Deadline) -> set[str]:
        """The topics that were there already, from an earlier attempt or from elsewhere."""
        partitions = {topic.name: topic.partitions for topic in topics}

        def ask(left: Collection[str]) -> dict[str, Future[None]]:
            new = [new_topic(self._settings, name, partitions[name]) for name in left]
            return self._admin.create_topics(new)

        answers = deadline.answer_all(
            partitions, ask, "to create topic", (KafkaError.TOPIC_ALREADY_EXISTS,)
        )
        return {name for name, answer in answers.items() if isinstance(answer, KafkaError)}

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


def new_topic(settings: SegmentSettings, name: str, partitions: int) -> NewTopic:
    """Returns a segment's topic as it is asked for."""
    kept = {}
    if settings.oldest_ms >= 0:
        # Event time would have it deleted at once: better that Kafka refuses it.
        oldest_ms = max(settings.oldest_ms, _PAST_MS_MIN)
        kept = {"message.timestamp.before.max.ms": str(oldest_ms)}
    return NewTopic(
        name,
        num_partitions=partitions,
        replication_factor=settings.replication_factor,
        config={
            **lived_by(settings),
            "max.message.bytes": str(settings.max_message_bytes),
            "min.insync.replicas": str(settings.min_insync_replicas),
            "message.timestamp.after.max.ms": str(FUTURE_MS_MAX),
            "unclean.leader.election.enable": "false",
            **kept,
        },
    )


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


def _is_bounded(bound: str, _broker: int, _topic: str, found: Mapping[str, str]) -> bool:
    return found.get(STAMP) == bound
