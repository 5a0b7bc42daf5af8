"""Partitions in memory as a `Sealer` sees them: leaders that obey late, and replicas that lag.

Only what sealing asks of Kafka is here: settings, probes, a partition's lock, the latest offset
that clients are told (the high watermark), and what a leader says to a consumer that is put behind
its log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, cast

from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.offsets import Place
from anabranch.channel.segments.copies import Address
from anabranch.channel.segments.sealing import Sealer
from support.told_offsets import ToldOffset

_UNKNOWN: Final = KafkaError.UNKNOWN_TOPIC_OR_PART


@dataclass(slots=True)
class Partition:
    """`end`: of the leader's own log; `replicated`: the high watermark.

    `obeys_after`: so many probes are still answered as by an open partition. `late`: at which look
    at the offsets (from 1) an append that had passed the size check before lands in the log, and
    with one replica is replicated. `begun`: so many records are being appended, by whoever has the
    lock; they land when it is given up.
    """

    end: int
    replicated: int
    obeys_after: int = 0
    late: Sequence[int] = ()
    begun: int = 0
    epoch: int | None = 0
    probes: int = 0
    looks: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    replicas: Sequence[int] = (1,)
    leader: int = 1


class SealableKafka:
    """By topic, its partitions. `catches_up`: replicas take one more record with each look."""

    def __init__(self, *, catches_up: bool = True, **topics: Sequence[Partition]) -> None:
        self.topics = topics
        self.deleted: set[str] = set()
        self.hesitates: set[str] = set()  # topics whose settings it changes when asked again
        self._catches_up = catches_up
        self._assigned: list[TopicPartition] = []
        self._unanswered: list[tuple[Callable[..., None], KafkaError, _Message]] = []
        self.producing: dict[str, object] = {}
        self.probes: list[Mapping[str, object]] = []
        self.put_behind: list[
            tuple[str, int, int, int | None]
        ] = []  # offset and leader's epoch at last
        self.patience: list[float] = []  # that its flushes had
        self.isolation: object = None  # of its consumer
        self.closed = 0
        self.refused: set[str] = set()  # of "write" and "read": what it gives no right to
        self.lockless = 0  # so often it does not answer who wants a lock
        self.look_s: list[float] = []  # that its looks at the offsets had
        self.brokers = {1}
        self.changes: dict[str, list[dict[str, str]]] = {}  # of each topic's settings
        self.silent: set[int] = set()  # brokers that librdkafka alone can ask
        self.described: set[int] = set()  # those that it has asked
        self.shown: dict[Place, int] = {}  # epochs, as each broker has read
        self.lags: dict[int, int] = {}  # so often a broker, when asked, has read of no further one
        self.read: dict[int, int] = {}  # of so many each broker has read that was asked
        self.in_one_round: set[int] = set()  # brokers that read of all the first changes at once
        self._began_with: dict[int, int] = {}  # so many did these read of in their first round
        self._asked: Counter[int] = Counter()  # by broker
        self.read_back: list[str] = []
        self.ignored: set[str] = set()  # settings that it takes and does not keep
        self.forbidden: set[str] = set()  # settings that nobody may change
        self.obeying: set[int] = set()  # that had put the first into force when it was probed first

    def sealer(self, *, asks: bool = False) -> Sealer:
        """A sealer whose clients are all this. `asks`: brokers by connections of its own."""
        return Sealer(cast(KafkaConnection, self), cast(AdminClient, self), self if asks else None)

    # --- as a connection ----------------------------------------------------------------

    def producer(self, **settings: object) -> SealableKafka:
        self.producing = settings
        return self

    def consumer(self, **settings: object) -> SealableKafka:
        self.isolation = settings.get("isolation_level")
        return self

    def unreachable(self, doing: str) -> Exception:
        return TimeoutError(doing)

    bootstrap_servers = "memory"

    # --- as an admin client -------------------------------------------------------------

    def incremental_alter_configs(
        self, resources: Sequence[ConfigResource], *, validate_only: bool
    ) -> dict[ConfigResource, Future[None]]:
        assert not validate_only
        answers: dict[ConfigResource, Future[None]] = {}
        for resource in resources:
            answers[resource] = Future()
            if resource.name in self.deleted | self.hesitates:
                code = _UNKNOWN if resource.name in self.deleted else KafkaError._TIMED_OUT
                answers[resource].set_exception(KafkaException(KafkaError(code)))
                self.hesitates.discard(resource.name)
                continue
            wanted = {
                each.name: str(each.value)
                for each in resource.incremental_configs
                if each.incremental_operation == AlterConfigOpType.SET
            }
            if self.forbidden & set(wanted):
                error = KafkaError(KafkaError.INVALID_CONFIG)
                answers[resource].set_exception(KafkaException(error))
                continue
            self.changes.setdefault(resource.name, []).append(wanted)
            kept = {n: value for n, value in wanted.items() if n not in self.ignored}
            for partition in self.topics[resource.name]:
                partition.settings.update(kept)
            answers[resource].set_result(None)
        return answers

    def list_topics(self, name: str, timeout: float) -> SimpleNamespace:
        """Everybody knows who leads."""
        assert timeout > 0
        found = SimpleNamespace(error=None, partitions=dict(enumerate(self.topics[name])))
        brokers = {number: SimpleNamespace(host="kafka", port=number) for number in self.brokers}
        return SimpleNamespace(topics={name: found}, brokers=brokers)

    def describe_configs(
        self, asked: Sequence[ConfigResource], request_timeout: float = 0
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        if not request_timeout:  # any broker
            (topic,) = asked
            self.read_back.append(topic.name)
            kept = {n: ConfigEntry(n, v) for n, v in self._at(topic.name, 0).settings.items()}
            return {topic: _done(kept)}
        own, *topics = asked
        self.described.add(int(own.name))
        answers: dict[ConfigResource, Future[dict[str, ConfigEntry]]] = {}
        told = self._told(int(own.name), [each.name for each in topics])
        for each in topics:
            entries = {n: ConfigEntry(n, value) for n, value in told[each.name].items()}
            answers[each] = _done(entries)
        return answers

    def _told(self, broker: int, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """What one broker has read of: each time one change more, unless it lags."""
        assert broker in self.brokers
        self._asked[broker] += 1
        rounds = self._asked[broker] // (1 + self.lags.get(broker, 0))
        if rounds and broker in self.in_one_round:
            first = self._began_with.setdefault(broker, min(map(len, self.changes.values())))
            rounds = first + rounds - 1
        self.read[broker] = rounds
        told = {"max.message.bytes": "1048588", "message.timestamp.after.max.ms": str(2**63 - 1)}
        found = {topic: dict(told) for topic in topics}
        for topic in topics:
            for change in self.changes[topic][: self.read[broker]]:
                found[topic] |= change
        return found

    # --- as what each broker has read ---------------------------------------------------

    def settings(
        self, brokers: Iterable[Address], topics: Sequence[str], names: Collection[str]
    ) -> dict[Address, dict[str, dict[str, str]]]:
        return {each: self._told(each[1], topics) for each in brokers if each[1] not in self.silent}

    def epochs(
        self, brokers: Iterable[Address], topics: Sequence[str]
    ) -> dict[Address, dict[Place, int]]:
        return dict.fromkeys(brokers, self.shown)

    def delete_records(
        self, asked: Sequence[TopicPartition], operation_timeout: float
    ) -> dict[TopicPartition, Future[Any]]:
        """Takes the lock, once whoever has it gives it up; there is nothing to delete."""
        answers: dict[TopicPartition, Future[Any]] = {}
        for place in asked:
            assert place.offset == 0
            answers[place] = Future()
            if self.lockless:
                self.lockless -= 1
                answers[place].set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
                continue
            partition = self._at(place.topic, place.partition)
            partition.end += partition.begun
            partition.replicated += partition.begun
            partition.begun = 0
            answers[place].set_result(None)
        return answers

    # --- as a producer ------------------------------------------------------------------

    def produce(
        self, topic: str, *, partition: int, on_delivery: Callable[..., None], **probe: object
    ) -> None:
        if partition >= len(self.topics[topic]):
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        if not self.probes:
            self.obeying = {
                broker
                for broker, read in self.read.items()
                if read > self._began_with.get(broker, 1)
            }
        self.probes.append(probe)
        at = self._at(topic, partition)
        at.probes += 1
        sealed = at.settings.get("max.message.bytes") in ("78", "1") and at.probes > at.obeys_after
        code = KafkaError.MSG_SIZE_TOO_LARGE if sealed else KafkaError.INVALID_TIMESTAMP
        if "write" in self.refused:
            code = KafkaError.TOPIC_AUTHORIZATION_FAILED
        self._unanswered.append((on_delivery, KafkaError(code), _Message(topic, partition)))

    def flush(self, seconds: float) -> int:
        self.patience.append(seconds)
        for on_delivery, error, message in self._unanswered:
            on_delivery(error, message)
        self._unanswered.clear()
        return 0

    # --- as a consumer ------------------------------------------------------------------

    def offsets_for_times(
        self, asked: Sequence[TopicPartition], timeout: float
    ) -> list[ToldOffset]:
        """The latest offsets, of which each is a look."""
        self.look_s.append(timeout)
        answers: list[ToldOffset] = []
        for place in asked:
            assert place.offset == OFFSET_END
            told = ToldOffset(place.topic, place.partition)
            answers.append(told)
            if place.partition >= len(self.topics[place.topic]):
                told.error = KafkaError(_UNKNOWN)
                continue
            partition = self._at(place.topic, place.partition)
            partition.looks += 1
            if partition.looks in partition.late:
                partition.replicated += int(partition.replicated == partition.end)
                partition.end += 1
            told.offset, told.leader_epoch = partition.replicated, partition.epoch
            if self._catches_up:
                partition.replicated = min(partition.end, partition.replicated + 1)
        return answers

    def poll(self, _timeout: float) -> None:
        """It has heard nothing."""

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self._assigned = list(places)
        self.put_behind = [
            (each.topic, each.partition, each.offset, each.leader_epoch) for each in places
        ]

    def unassign(self) -> None:
        self._assigned = []

    def consume(self, _most: int, _timeout: float) -> list[_Message]:
        """A leader whose log ends before the place says so, one whose log has it sends it once it
        is replicated; else silence.
        """
        said: list[_Message] = []
        for place in self._assigned:
            if "read" in self.refused:
                error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
                said.append(_Message(place.topic, place.partition, error))
                continue
            partition = self._at(place.topic, place.partition)
            if partition.end < place.offset:
                error = KafkaError(KafkaError._AUTO_OFFSET_RESET)
                said.append(_Message(place.topic, place.partition, error))
            elif partition.replicated > place.offset:
                said.append(_Message(place.topic, place.partition))
        return said

    def close(self) -> None:
        self.closed += 1

    def _at(self, topic: str, number: int) -> Partition:
        return self.topics[topic][number]


def _done(entries: dict[str, ConfigEntry]) -> Future[dict[str, ConfigEntry]]:
    future: Future[dict[str, ConfigEntry]] = Future()
    future.set_result(entries)
    return future


class _Message:
    def __init__(self, topic: str, partition: int, error: KafkaError | None = None) -> None:
        self._topic, self._partition, self._error = topic, partition, error

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def error(self) -> KafkaError | None:
        return self._error
