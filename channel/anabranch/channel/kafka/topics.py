"""The topics of a cluster: their names, their making, and the check that they are sound.

A topic with wrong settings is never mended silently, because somebody made it so, and records may
have been lost already. The error names the topic, the setting and the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Final, TypeVar

import msgspec
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    ClusterMetadata,
    ConfigResource,
)
from confluent_kafka.cimpl import NewTopic

from anabranch.channel.errors import (
    KafkaRefusedError,
    KafkaTooOldError,
    WrongTopicError,
)
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.deadline import Deadline, asking_anew
from anabranch.channel.kafka.makes import Make, Proof, make_of
from anabranch.channel.kafka.propagation import values_of
from anabranch.core.errors import InvalidInputError

_T = TypeVar("_T")

_PREFIX: Final = re.compile(r"[-._A-Za-z0-9]{1,40}")
RECORD_BYTES_MAX: Final = 8 << 20  # for a record or state; a topic of 65,536 segments takes 3 MB
_AT_LEAST: Final = ("max.message.bytes",)  # settings that may be higher than asked for
_KAFKA_OLDEST: Final = (3, 6)  # the first with the time bounds of segments' topics (KIP-937)
# Kafka 4 no longer has this setting; before, it tells which release the brokers speak as.
_OLD_KAFKA_SETTING: Final = "inter.broker.protocol.version"
_RELEASE: Final = re.compile(r"(\d+)\.(\d+)")


class Topics(msgspec.Struct, frozen=True):
    """Names, all made from one prefix. Raises InvalidInputError."""

    prefix: str

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):
            raise InvalidInputError(
                f"topicPrefix {self.prefix!r} is not valid: use 1 to 40 letters, digits and . _ -"
            )

    @property
    def wal(self) -> str:
        """Every proposal, in one total order."""
        return f"{self.prefix}wal"

    @property
    def snapshot(self) -> str:
        """The folded state and its horizon."""
        return f"{self.prefix}snapshot"

    @property
    def load(self) -> str:
        """Loads of segments."""
        return f"{self.prefix}load"

    @property
    def broker_load(self) -> str:
        """Loads of brokers, which every node reads."""
        return f"{self.prefix}broker-load"

    @property
    def top_bundles(self) -> str:
        """The highest loaded bundles of each broker, which the leader reads."""
        return f"{self.prefix}top-bundles"

    @property
    def brokers(self) -> str:
        """Heartbeats."""
        return f"{self.prefix}brokers"

    @property
    def compactor_id(self) -> str:
        """The transactional id that fences a deposed leader's compactor."""
        return f"{self.prefix}compactor"

    def archive_group(self, archive: str) -> str:
        """The consumer group whose committed offset says how far this archive has got."""
        return f"{self.prefix}archive.{archive}"


class TopicSettings(msgspec.Struct, frozen=True):
    """A cluster operator's settings of the topics."""

    replication_factor: int = 1
    min_insync_replicas: int = 1


class _Wanted(msgspec.Struct, frozen=True):
    """The settings of a new topic: `must` is checked on a topic that exists, `may` is not."""

    must: Mapping[str, str]
    may: Mapping[str, str]


# A load that does not change is written once: a record older than this is of no use even so.
_LOAD_KEPT_MS: Final = 7 * 86_400_000
_COMPACT: Final = {"segment.bytes": "67108864", "min.cleanable.dirty.ratio": "0.2"}


def _wanted(topics: Topics) -> dict[str, _Wanted]:
    stamped = {"message.timestamp.type": "LogAppendTime"}
    kept = {"retention.ms": "-1", "retention.bytes": "-1"}
    safe = {
        "unclean.leader.election.enable": "false",
        "max.message.bytes": str(RECORD_BYTES_MAX),
    }
    load = _Wanted(
        {"cleanup.policy": "compact,delete", **stamped},
        {"retention.ms": str(_LOAD_KEPT_MS), **_COMPACT},
    )
    return {
        topics.wal: _Wanted({"cleanup.policy": "delete", **kept, **stamped, **safe}, {}),
        topics.snapshot: _Wanted({"cleanup.policy": "compact", **safe}, _COMPACT),
        topics.load: load,
        topics.broker_load: load,
        topics.top_bundles: load,
        topics.brokers: _Wanted({"cleanup.policy": "compact", **stamped}, _COMPACT),
    }


def ensure_topics(
    connection: KafkaConnection,
    topics: Topics,
    settings: TopicSettings,
    deadline_s: float,
    unproven: Callable[[Make], None] = lambda make: None,
) -> list[str]:
    """Makes the topics that are missing and checks all; returns the names of those it made.

    `unproven` is told first of a Kafka on which no seal is proven. Several nodes may do this at
    once. Raises KafkaUnreachableError, KafkaTooOldError, KafkaRefusedError or WrongTopicError.
    """
    keeper = _Keeper(connection, deadline_s, topics.wal)
    _, make = keeper.check_release()
    if make.seal is Proof.UNPROVEN:
        unproven(make)
    wanted = _wanted(topics)
    there = keeper.partitions(wanted)
    made = [
        name
        for name, topic in wanted.items()
        if name not in there and keeper.create(name, topic, settings)
    ]
    for name, replicas in keeper.all_partitions(wanted).items():
        check_topic(name, replicas, keeper.config(name), wanted[name].must, settings)
    return made


class Inspection(msgspec.Struct, frozen=True):
    """A node's findings: the number of Kafka's brokers and their make, sound topics, and those it
    would make.
    """

    brokers: int
    make: Make
    sound: list[str]
    missing: list[str]


def inspect_topics(
    connection: KafkaConnection, topics: Topics, settings: TopicSettings, deadline_s: float
) -> Inspection:
    """Returns what `ensure_topics` would find, and makes nothing: Kafka only says if it would.

    Raises what that would raise.
    """
    keeper = _Keeper(connection, deadline_s, topics.wal)
    brokers, make = keeper.check_release()
    wanted = _wanted(topics)
    there = keeper.partitions(wanted)
    for name, replicas in there.items():
        check_topic(name, replicas, keeper.config(name), wanted[name].must, settings)
    missing = [name for name in wanted if name not in there]
    for name in missing:
        keeper.create(name, wanted[name], settings, only_asked=True)
    return Inspection(brokers, make, list(there), missing)


def check_kafka(connection: KafkaConnection, deadline_s: float) -> int:
    """Counts Kafka's brokers. Raises KafkaUnreachableError, KafkaTooOldError or ..Refused."""
    return _Keeper(connection, deadline_s).check_release()[0]


def exists(connection: KafkaConnection, topic: str, deadline_s: float) -> bool:
    """Tells whether Kafka shows the topic. Raises KafkaUnreachableError or KafkaRefusedError."""
    return topic in _Keeper(connection, deadline_s).partitions([topic])


class TopicFacts(msgspec.Struct, frozen=True):
    """What Kafka says of a topic: its id, its number of partitions, its settings in force."""

    topic_id: str
    partitions: int
    settings: dict[str, str]


def topic_facts(connection: KafkaConnection, topic: str, deadline_s: float) -> TopicFacts | None:
    """The facts, None if Kafka does not show it.

    Raises KafkaUnreachableError or KafkaRefusedError.
    """
    keeper = _Keeper(connection, deadline_s)
    partitions = keeper.partitions([topic]).get(topic)
    if partitions is None:
        return None
    return TopicFacts(keeper.topic_id(topic), len(partitions), keeper.config(topic))


def topic_id(connection: KafkaConnection, topic: str, deadline_s: float) -> str:
    """Kafka's own id of a topic: another one once the topic was deleted and made anew.

    Raises KafkaUnreachableError or KafkaRefusedError.
    """
    return _Keeper(connection, deadline_s).topic_id(topic)


def check_topic(
    name: str,
    replicas: list[int],
    config: Mapping[str, str],
    must: Mapping[str, str],
    settings: TopicSettings,
) -> None:
    """Raises WrongTopicError unless the topic is fit; `replicas` has one count per partition."""
    if len(replicas) != 1:
        raise WrongTopicError(
            f"topic {name} has {len(replicas)} partitions, not 1: a total order needs exactly one. "
            "Partitions cannot be taken away: choose another topicPrefix, or delete the topic if "
            "nothing in it is needed, and start again"
        )
    if replicas[0] < settings.replication_factor:
        raise WrongTopicError(
            f"topic {name} has replication factor {replicas[0]}, expected at least "
            f"{settings.replication_factor}: reassign it with kafka-reassign-partitions.sh, or set "
            f"the cluster's replicationFactor to {replicas[0]}"
        )
    for setting, expected in must.items():
        found = config.get(setting, "")
        if setting in _AT_LEAST and found and int(found) >= int(expected):
            continue
        if set(found.split(",")) != set(expected.split(",")):
            raise WrongTopicError(_wrong(name, setting, found, expected))
    in_sync = config.get("min.insync.replicas", "1")
    if int(in_sync) < settings.min_insync_replicas:
        raise WrongTopicError(
            _wrong(name, "min.insync.replicas", in_sync, str(settings.min_insync_replicas))
        )


def _wrong(name: str, setting: str, found: str, expected: str) -> str:
    value = f"[{expected}]" if "," in expected else expected
    return (
        f"topic {name} has {setting}={found or '(none)'}, expected {expected}. If the topic is "
        "meant for this cluster and nothing was lost under that setting, mend it with "
        f"kafka-configs.sh --alter --entity-type topics --entity-name {name} "
        f"--add-config {setting}={value}; otherwise choose another topicPrefix"
    )


def check_release(settings: Mapping[str, str], servers: str) -> None:
    """Raises KafkaTooOldError if a broker's own settings are those of an old release.

    One with ZooKeeper is as old: its brokers put a seal into force in no order that proves it.
    """
    spoken = settings.get(_OLD_KAFKA_SETTING, "")
    release = _RELEASE.match(spoken)
    if release is None:
        return
    too_old = tuple(map(int, release.groups())) < _KAFKA_OLDEST
    if too_old or not settings.get("process.roles"):
        oldest = ".".join(map(str, _KAFKA_OLDEST))
        raise KafkaTooOldError(
            f"Kafka at {servers} speaks as release {spoken.partition('-')[0]}"
            f"{'' if too_old else ' with ZooKeeper'}; Anabranch needs {oldest} or newer without "
            "ZooKeeper: upgrade the brokers, or name others in bootstrapServers"
        )


class _Keeper:
    """Questions to and changes of a cluster's metadata, all before one deadline.

    `topics`: one that it may describe, if it has to change something.
    """

    def __init__(self, connection: KafkaConnection, seconds: float, *topics: str) -> None:
        self._connection = connection
        self._admin: AdminClient = connection.admin()
        self._deadline = Deadline(connection, seconds, asking_anew(self._admin, topics))

    def _answer(self, ask: Callable[[], Future[_T]], doing: str) -> _T:
        """Asks until Kafka answers: not all of its nodes hear of a new topic at once."""
        while isinstance(answer := self._deadline.answer(ask(), doing), KafkaError):
            self._deadline.pause(doing)
        return answer

    def _metadata(self, doing: str) -> ClusterMetadata:
        try:
            return self._admin.list_topics(timeout=self._deadline.left_s(doing))
        except KafkaException as error:
            self._admin.poll(0)
            raise self._connection.explained(error, doing) from None

    def partitions(self, names: Collection[str]) -> dict[str, list[int]]:
        """Returns the replica count of each partition of each topic that exists and can be used."""
        topics = self._metadata("to list topics").topics
        return {
            name: [len(partition.replicas) for partition in topics[name].partitions.values()]
            for name in names
            if name in topics
            and topics[name].error is None
            and topics[name].partitions
            and all(partition.leader >= 0 for partition in topics[name].partitions.values())
        }

    def all_partitions(self, names: Collection[str]) -> dict[str, list[int]]:
        """Returns the same once all can be used: news of a new topic spreads by and by."""
        while len(found := self.partitions(names)) < len(names):
            self._deadline.pause("to find the topics that were made")
        return found

    def create(
        self, name: str, topic: _Wanted, settings: TopicSettings, *, only_asked: bool = False
    ) -> bool:
        """Makes the topic; returns False if somebody else was faster.

        `only_asked`: Kafka checks whether it would, and makes nothing.
        """
        new = NewTopic(
            name,
            num_partitions=1,
            replication_factor=settings.replication_factor,
            config={
                **topic.must,
                **topic.may,
                "min.insync.replicas": str(settings.min_insync_replicas),
            },
        )
        doing = f"to create topic {name}"
        while True:
            asked = self._admin.create_topics([new], validate_only=only_asked)
            answer = self._deadline.answer(asked[name], doing)
            if not isinstance(answer, KafkaError):
                return True
            if answer.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            self._deadline.pause(doing)

    def config(self, name: str) -> dict[str, str]:
        """The settings in force of a topic."""
        topic = ConfigResource(ConfigResource.Type.TOPIC, name)
        return values_of(
            self._answer(
                lambda: self._admin.describe_configs([topic])[topic], f"to describe topic {name}"
            )
        )

    def topic_id(self, name: str) -> str:
        """Returns the topic's id as Kafka's own tools print it."""
        asked = TopicCollection([name])
        doing = f"to describe topic {name}"
        return str(self._answer(lambda: self._admin.describe_topics(asked)[name], doing).topic_id)

    def check_release(self) -> tuple[int, Make]:
        """Counts the brokers and tells their make. Raises KafkaTooOldError, unless their settings
        are hidden, and KafkaRefusedError for a make on which no seal holds.
        """
        found = self._metadata("to say who is there")
        brokers = found.brokers
        servers = self._connection.bootstrap_servers
        hosts = [str(each.host) for each in brokers.values()]
        make = make_of([*re.findall(r"[^\s,:/]+", servers), *hosts], str(found.cluster_id))
        if make.seal is Proof.NONE:
            raise KafkaRefusedError(f"Kafka at {servers} cannot be used: {make.told}")
        broker = ConfigResource(ConfigResource.Type.BROKER, str(min(brokers)))
        asked = self._admin.describe_configs([broker])[broker]
        try:
            answer = self._deadline.answer(asked, "to describe a broker")
        except KafkaRefusedError:
            return len(brokers), make
        if not isinstance(answer, KafkaError):
            check_release(values_of(answer), servers)
        return len(brokers), make
