"""Kafka topics that others have made and write to, simulated: some become scalable topics.

Their writers use Kafka's own clients, and go on until they are refused. Strangers add a partition,
or make a topic anew. Nothing of ours may change one before its cut-over, and nothing deletes one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from anabranch.broker.topics.controllers import worker
from anabranch.channel.errors import KafkaRefusedError
from anabranch.core.entities.segment import SegmentInfo, legacy_segment
from anabranch.core.entities.topic import Operation, ScalableTopic, TopicMove, TopicState
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import TopicChange
from anabranch.core.partitioners import Partitioner, partition_of
from anabranch.core.topics.findings import KafkaTopic
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic
from simulation.scheduler import ViolationError
from simulation.segment_store import Answer, Batch, Message, Place

if TYPE_CHECKING:
    from simulation.consumers import Consumer
    from simulation.topic_world import TopicWorld

ENTRY = "public/default=old.*"
STRANGERS_S = 4.0
KEYS = 6
_MARK = "|plain."


def is_plain(key: str) -> bool:
    """Whether Kafka's own clients write it. Its messages' numbers tell them apart, no more."""
    return _MARK in key


class OldTopic(msgspec.Struct):
    """One of them. `known`: the partitioner that its adoption names, "" for none."""

    name: str
    home: str  # the scalable topic that may adopt it
    topic_id: str
    partitions: int
    partitioner: Partitioner
    known: str
    changed_at: float = -1.0
    grown: bool = False  # keys of ours have other partitions since
    sealing: bool = False  # the log has said so
    given_back: bool = False

    def segment(self) -> SegmentInfo:
        """The segment as which it is adopted now."""
        return legacy_segment(self.name, self.topic_id, self.partitions, self.known)


class OldTopics:
    """All of one run, their writers, and the observer of what becomes of them."""

    def __init__(self, world: TopicWorld) -> None:
        self._world = world
        self._sched = world.sched
        adopting = [world.lasting[0], *world.passing] if world.plan.adopts else []
        self._all: dict[str, OldTopic] = {}
        self._current = {home: self._new(home) for home in adopting}
        self._numbers = 0
        self._acked: dict[str, set[Message]] = defaultdict(set)  # by scalable topic
        self._delivered: dict[str, set[Message]] = defaultdict(set)  # by group
        self._begun_at: dict[str, float] = {}
        self.counts: Counter[str] = Counter()

    def _new(self, home: str) -> OldTopic:
        rng = self._sched.rng
        number = len(self._all)
        partitioner = rng.choice(tuple(Partitioner))
        known = rng.choice(
            (partitioner.value, partitioner.value, rng.choice((*Partitioner,)).value, "")
        )
        count = rng.choice((1, 3, 5))
        old = OldTopic(f"old.{number}", home, f"id-{number}", count, partitioner, known)
        self._all[old.name] = old
        for bucket in range(count):
            self._world.store.begin((old.name, bucket))
        self._sched.after(rng.random(), partial(self._write, old))
        return old

    def start(self) -> None:
        if self._current:
            self._sched.after(STRANGERS_S, self._meddle)

    # --- who writes and meddles -------------------------------------------------------------

    def _write(self, old: OldTopic) -> None:
        rng = self._sched.rng
        if self._world.faults_over or self._current.get(old.home, old) is not old:
            return
        self._sched.after(rng.expovariate(self._world.plan.sends_per_s), partial(self._write, old))
        self._numbers += 1
        message = Message(f"{old.home}{_MARK}{rng.randrange(KEYS)}", self._numbers)
        bucket = partition_of(old.partitioner, message.key.encode(), old.partitions)

        def done(answer: Answer, _offset: int) -> None:
            if answer is Answer.STORED:
                self._acked[old.home].add(message)

        # Each in a batch of its own, tried once: what goes unanswered may come late, or never.
        batch = Batch(self._world.new_number(), 0, 1, (message,))
        self._world.store.produce((old.name, bucket), batch, done)

    def _meddle(self) -> None:
        """Only with topics whose losses nobody counts."""
        if self._world.faults_over:
            return
        rng = self._sched.rng
        self._sched.after(rng.expovariate(1.0 / STRANGERS_S), self._meddle)
        found = [each for home, each in self._current.items() if home in self._world.passing]
        if not found:
            return
        old = rng.choice(found)
        topic = self._world.cluster.checks.truth.topic(old.home)
        if old.sealing or old.given_back:
            return
        at_rest = topic is None or topic.state not in (TopicState.PREPARING, TopicState.SEALING)
        old.changed_at = self._sched.now
        if at_rest and not old.known and rng.random() < 0.5:
            self._sched.note(f"{old.name} is made anew")
            self.counts["made_anew"] += 1
            old.topic_id += "+"
            for bucket in range(old.partitions):
                self._world.checks.forget((old.name, bucket))
                self._world.store.begin((old.name, bucket))
        else:
            self._sched.note(f"{old.name} is given a partition")
            self.counts["partitions_added"] += 1
            self._world.store.begin((old.name, old.partitions))
            old.partitions += 1
            old.grown = True

    # --- what nodes do with them --------------------------------------------------------------

    def to_adopt(self, home: str) -> OldTopic | None:
        """What a scalable topic is to be made of; now and then what another one has already."""
        old = self._current.get(home)
        used = old is not None and (old.sealing or old.given_back)
        if old is not None and (used or (old.grown and old.known)):
            old = self._current[home] = self._new(home)
        if home in self._world.passing and self._sched.chance(0.2):
            return next((each for each in self._adopted() if each.home != home), old)
        return old

    def _adopted(self) -> Iterable[OldTopic]:
        truth = self._world.cluster.checks.truth
        for home, old in self._current.items():
            topic = truth.topic(home)
            if topic is not None and home in self._world.lasting and topic.legacy is not None:
                yield old

    def compare(self, parts: Iterable[SegmentInfo], refused: list[str]) -> None:
        """As nodes do before they make segments."""
        keeper: Any = self
        try:
            worker.must_be_as_adopted(keeper, list(parts))
        except KafkaRefusedError as error:
            refused.append(str(error))

    def look(self, names: Iterable[str], _deadline_s: float) -> dict[str, KafkaTopic]:
        """Kafka's answer about them, as `SegmentAdmin.look` gives it."""
        found = ((name, self._all[name]) for name in names)
        return {name: KafkaTopic(old.topic_id, old.partitions, {}) for name, old in found}

    # --- what must hold -----------------------------------------------------------------------

    def made(self, place: Place) -> None:
        """A node makes a partition."""
        if place[0] in self._all:
            raise ViolationError(f"a node makes {place}, which others have made")

    def deleted(self, place: Place) -> None:
        """A node deletes a partition."""
        if place[0] in self._all:
            raise ViolationError(f"a node deletes {place}, which others have made")

    def sealed(self, name: str) -> None:
        """A node seals a topic."""
        old = self._all.get(name)
        if old is not None and not old.sealing:
            raise ViolationError(f"a node seals {name} before the log says SEALING")

    def folded(self, folded: Folded) -> None:
        """An accepted record, which the truth holds already."""
        record = folded.record
        if not isinstance(record, TopicChange):
            return
        topic = self._world.cluster.checks.truth.topic(record.topic)
        if record.move is TopicMove.CREATE:
            self._must_be_once(record)
        first = topic.legacy if topic is not None else None
        if topic is None or first is None:
            return
        old = self._all[first.legacy_topic]
        match record.move:
            case TopicMove.OPEN:
                self.counts["adopted"] += 1
            case TopicMove.BEGIN if first.segment_id in record.parents:
                self._begun_at[record.topic] = self._sched.now
                if record.operation is not Operation.PREPARE:
                    raise ViolationError(f"{old.name} is replaced by a {record.operation.name}")
            case TopicMove.SEALING if first.segment_id in topic.parents:
                self._must_be_unchanged(old, first, self._begun_at[record.topic])
                old.sealing = True
            case TopicMove.COMMIT if first.sealed_at_epoch == topic.epoch:
                self.counts["cut_over"] += 1
            case TopicMove.COMMIT if first.is_active and first.created_at_epoch == topic.epoch:
                self.counts["given_back"] += 1
                old.sealing, old.given_back = False, True
            case TopicMove.ABORT if first.is_active and old.segment() != first:
                self.counts["cut_over_refused"] += 1
            case TopicMove.DELETE:
                self.counts["released" if first.is_active else "forgotten"] += 1
            case _:
                pass

    def _must_be_once(self, record: TopicChange) -> None:
        truth = self._world.cluster.checks.truth
        wanted = {part.legacy_topic for part in record.segments if part.is_legacy}
        for name in self._world.topics:
            topic = truth.topic(name) if name != record.topic else None
            parts = topic.segments if topic is not None else ()
            if any(part.legacy_topic in wanted for part in parts):
                raise ViolationError(f"{record.topic} adopts what {name} has: {wanted}")

    def _must_be_unchanged(self, old: OldTopic, part: SegmentInfo, begun_at: float) -> None:
        changed = old.topic_id != part.topic_id or old.partitions != part.buckets
        if changed and old.changed_at < begun_at:
            raise ViolationError(
                f"{old.name} is to be sealed, though others had changed it before: {part}"
            )

    def stored(self, name: str, part: SegmentInfo, place: Place, message: Message) -> None:
        """A producer of ours has stored a message of that topic in that segment."""
        legacy = self._parent(name, part, place)
        if legacy is None:
            return
        for bucket in range(legacy.buckets):
            if not self._world.store.is_sealed((legacy.legacy_topic, bucket)):
                raise ViolationError(
                    f"{message} was stored in {place}, and bucket {bucket} of "
                    f"{legacy.legacy_topic} takes messages yet"
                )

    def must_be_drained(
        self, consumer: Consumer, part: SegmentInfo, place: Place, message: Message
    ) -> None:
        """A child of an adopted topic is read only when its subscription has drained that."""
        name = consumer.topic
        if self._parent(name, part, place) is None:
            return
        known = self._world.cluster.checks.truth.subscription(name, consumer.subscription)
        if known is None or consumer.group != kafka_group(
            "", name, consumer.subscription, known.created_offset
        ):
            return  # of a former life of the subscription
        legacy = self._parent(name, part, place)
        if legacy is not None and legacy.segment_id not in known.drained:
            raise ViolationError(
                f"{message} came to {consumer} from {part.descriptor} before the adopted topic "
                "was drained"
            )

    def _parent(self, name: str, part: SegmentInfo, place: Place) -> SegmentInfo | None:
        topic: ScalableTopic | None = self._world.cluster.checks.truth.topic(name)
        if topic is None or kafka_topic("", name, topic.incarnation, part) != place[0]:
            return None  # of a former life of the topic
        first = topic.legacy
        return first if first is not None and first.segment_id in part.parent_ids else None

    def delivered(self, group: str, message: Message) -> None:
        """A subscription is given what Kafka's own clients have written."""
        self._delivered[group].add(message)

    def unread(self, topic: str, subscription: str, group: str) -> list[str]:
        """What was acknowledged to them, and the subscription has still to be given."""
        checks = self._world.checks
        sink = self._world.sinks.get((topic, subscription))
        got = sink.plain if sink is not None else self._delivered[group]
        left = self._acked[topic] - got - checks.taken
        return [
            f"{subscription} has not {each}"
            for each in sorted(left, key=lambda each: each.sequence)
            if not checks.seeks.may_lack(group, each)
        ]
