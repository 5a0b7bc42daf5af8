"""What must hold of scalable topics at every instant, seen with true time and perfect sight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from anabranch.client._consumer.holding import Holding, Phase
from anabranch.core.entities.segment import SegmentInfo, tile
from anabranch.core.entities.subscription import SubscriptionKind, SubscriptionOp
from anabranch.core.entities.topic import ScalableTopic, TopicMove, TopicState
from anabranch.core.hashing import hash32, segment_hash
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import SubscriptionChange, TopicChange
from anabranch.core.subscriptions.draining import unread
from anabranch.core.subscriptions.known_positions import mark_of
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic
from simulation.handler_checks import HandlerChecks
from simulation.old_topics import is_plain
from simulation.running_checks import RunningChecks
from simulation.scheduler import ViolationError
from simulation.seek_checks import SeekChecks
from simulation.segment_store import Message, Place
from simulation.shared_keys import is_shared

if TYPE_CHECKING:
    from simulation.consumers import Consumer
    from simulation.topic_world import TopicWorld


class _Reading:
    """Who was given a message, as which holding."""

    __slots__ = ("consumer", "holding", "life")

    def __init__(self, consumer: Consumer, holding: Holding) -> None:
        self.consumer = consumer
        self.life = consumer.life
        self.holding = holding


class TopicChecks:
    """The observer of messages, consumers and layouts."""

    def __init__(self, world: TopicWorld) -> None:
        self._world = world
        self.seeks = SeekChecks(world)
        self.handlers = HandlerChecks()
        self.running = RunningChecks(world)
        self._segments: dict[str, tuple[str, SegmentInfo]] = {}  # by Kafka topic
        self._homes: dict[str, str] = {}  # by segment, as `_named` names it: its topic
        self._adopted: dict[str, list[SegmentInfo]] = {}  # by Kafka topic, all that it was
        self.stored: dict[str, int] = {}  # key -> its last message in Kafka
        self.in_doubt: set[Message] = set()  # nobody can tell whether they are stored
        self.taken: set[Message] = set()  # by retention
        self._unordered: set[Message] = set()  # Kafka's own clients write them, or nobody does
        # Group and key: the last message delivered, and from where.
        self.delivered_up_to: dict[tuple[str, str], tuple[int, Place]] = {}
        # By Kafka group, not by name: a subscription made again is another one.
        self._readings: dict[tuple[str, Place, int], _Reading] = {}
        self._confirmed: dict[tuple[str, Place], int] = {}
        self._stale: set[Holding] = set()  # of what strangers have made anew since: others' offsets
        self._serving: dict[Consumer, frozenset[Place]] = {}
        # By topic and subscription: what the log says last of positions, by segment and bucket.
        self._written_down: dict[tuple[str, str], dict[tuple[int, int], int]] = {}
        self.deliveries: Counter[Place] = Counter()
        self.redelivered = 0
        self.handed_on = 0  # of these, to another consumer

    # --- the log ------------------------------------------------------------------------

    def folded(self, folded: Folded) -> None:
        """A record was accepted, and the truth folded."""
        record = folded.record
        if isinstance(record, SubscriptionChange):
            self.seeks.folded(record, self._pruned(record.topic))
            which = (record.topic, record.subscription)
            if record.op in (SubscriptionOp.CREATE, SubscriptionOp.RESET, SubscriptionOp.POSITIONS):
                self._written_down[which] = {
                    (each.segment_id, bucket): offset
                    for each in record.positions
                    for bucket, offset in enumerate(each.offsets)
                }
            if record.op in (SubscriptionOp.DRAINED, SubscriptionOp.RESET):
                self._must_be_consumed(record, self._written_down.get(which, {}))
        if not isinstance(record, TopicChange):
            return
        topic = self._world.cluster.checks.truth.topic(record.topic)
        if topic is None:
            return
        for part in (*topic.segments, *topic.children):
            name = kafka_topic("", record.topic, topic.incarnation, part)
            if part.is_legacy:
                self._adopted.setdefault(name, []).append(part)
            self._segments.setdefault(name, (record.topic, part))
            self._homes[_named(name, part)] = record.topic
        if not tile(topic.layout.active):
            raise ViolationError(f"the segments of {record.topic} do not tile the ring: {record}")
        match record.move:
            case TopicMove.OPEN:
                self._must_exist(record, topic, topic.segments)
            case TopicMove.SEALING:
                self._must_exist(record, topic, topic.children)
            case TopicMove.COMMIT:
                self._must_be_sealed(record, topic)
                self._write_down(record.topic, topic)
            case _:
                pass

    def home_of(self, place: Place) -> str:
        """The topic whose messages lie there."""
        return self._segments[place[0]][0] if place[0] in self._segments else ""

    def _pruned(self, name: str) -> frozenset[str]:
        """Kafka topics of segments that the topic has had, and has no more."""
        topic = self._world.cluster.checks.truth.topic(name)
        parts = (*topic.segments, *topic.children) if topic is not None else ()
        number = topic.incarnation if topic is not None else 0
        kept = {_named(kafka_topic("", name, number, part), part) for part in parts}
        had = {each for each, home in self._homes.items() if home == name}
        return frozenset(had - kept)

    def opened(self, sealed: SegmentInfo) -> None:
        """A Kafka topic is given back: what is appended from now on is another segment's."""
        home, _ = self._segments[sealed.legacy_topic]
        topic = self._world.cluster.checks.truth.topic(home)
        if topic is None or topic.continued != sealed:
            raise ViolationError(f"a node opens {sealed.legacy_topic}, which nobody gives back")
        for part in topic.segments:
            if part.segment_id in topic.parents:
                for bucket in range(part.buckets):
                    place = (kafka_topic("", home, topic.incarnation, part), bucket)
                    if not self._world.store.is_sealed(place):
                        raise ViolationError(f"{sealed.legacy_topic} is open, and {place} yet")
        self._segments[sealed.legacy_topic] = (home, topic.children[0])

    def _write_down(self, name: str, topic: ScalableTopic) -> None:
        """What is given back begins for each subscription where the log says."""
        for part in topic.segments:
            for each, _ in self._world.cluster.checks.truth.subscriptions(name):
                known = self._written_down.setdefault((name, each), {})
                for bucket, offset in enumerate(part.start_offsets):
                    known.setdefault((part.segment_id, bucket), offset)

    def _places(self, record: TopicChange, topic: ScalableTopic, part: SegmentInfo) -> list[Place]:
        name = kafka_topic("", record.topic, topic.incarnation, part)
        return [(name, bucket) for bucket in range(part.buckets)]

    def _must_exist(
        self, record: TopicChange, topic: ScalableTopic, parts: tuple[SegmentInfo, ...]
    ) -> None:
        for part in parts:
            for place in self._places(record, topic, part):
                if place not in self._world.store.partitions:
                    raise ViolationError(f"{record.move.name} before {place} was made")

    def _must_be_sealed(self, record: TopicChange, topic: ScalableTopic) -> None:
        for part in topic.segments:
            if part.sealed_at_epoch != topic.epoch:
                continue
            for place, end in zip(self._places(record, topic, part), part.end_offsets, strict=True):
                partition = self._world.store.partitions[place]
                if not partition.sealed or len(partition.messages) != end:
                    raise ViolationError(f"{place} is committed as sealed at {end} and is not")

    def _must_be_consumed(
        self, record: SubscriptionChange, starts: Mapping[tuple[int, int], int]
    ) -> None:
        truth, store = self._world.cluster.checks.truth, self._world.store
        topic = truth.topic(record.topic)
        known = truth.subscription(record.topic, record.subscription)
        if topic is None or known is None:
            raise ViolationError(f"{record} was accepted of what does not exist")
        sink = self._world.sinks.get((record.topic, record.subscription))
        if sink is not None:
            for segment_id in record.segment_ids:
                sink.must_have(topic, record.topic, segment_id)
            return
        group = kafka_group("", record.topic, record.subscription, known.group_offset)
        for segment_id in record.segment_ids:
            part = topic.layout.segment(segment_id)
            name = kafka_topic("", record.topic, topic.incarnation, part)
            for bucket, end in enumerate(part.end_offsets):
                start = starts.get((segment_id, bucket), 0)
                mark = mark_of(known.created_offset)
                committed = max(start, store.reached.get((group, mark, (name, bucket)), 0))
                if unread(end, committed, store.partitions[name, bucket].begin):
                    raise ViolationError(
                        f"{name} is called drained by {group}, which has committed {committed} "
                        f"of {end} of bucket {bucket}"
                    )

    # --- Kafka --------------------------------------------------------------------------

    def appended(self, place: Place, messages: list[Message]) -> None:
        """Each key's messages are stored once, in their order, where the key belongs."""
        for message in messages:
            # Kafka keeps a topic that is released: what its producer has given up may come late.
            if is_plain(message.key) or (message in self.in_doubt and place[0] in self._adopted):
                self.seeks.stored(message, self._name_of(place))
                self._unordered.add(message)
                continue
            name, part = self._segments[place[0]]
            position = hash32(message.key)
            homes = self._adopted.get(place[0], [part])
            at_home = segment_hash(position) in part
            if not at_home or all(h.bucket(message.key, position) != place[1] for h in homes):
                raise ViolationError(f"{message} was stored in {place}, where it does not belong")
            self._world.old.stored(name, part, place, message)
            if is_shared(message.key):
                self._world.shared.stored(message, part.segment_id)
                self.seeks.stored(message, self._name_of(place))
                continue
            before = self.skipped(message.key, self.stored.get(message.key, 0))
            if message.sequence != before + 1:
                what = "twice" if message.sequence <= before else "out of order"
                raise ViolationError(f"{message} was stored {what} in {place} after {before}")
            self.stored[message.key] = message.sequence
            self.seeks.stored(message, self._name_of(place))

    def _name_of(self, place: Place) -> str:
        known = self._segments.get(place[0])
        return place[0] if known is None else _named(place[0], known[1])

    def is_ordered(self, message: Message) -> bool:
        """Whether its key lies where it belongs."""
        return message not in self._unordered

    def is_numbered(self, message: Message) -> bool:
        """Whether its number is its place in the key's order."""
        return self.is_ordered(message) and not is_shared(message.key)

    def given_up(self, message: Message) -> None:
        """Its producer was told neither yes nor no, and what could tell is deleted."""
        self.in_doubt.add(message)

    def forget(self, place: Place) -> None:
        """A stranger makes anew what was there."""
        self.removed(self._world.store.partitions[place].messages)
        self.running.forget(place)
        self._stale |= {each.holding for key, each in self._readings.items() if key[1] == place}
        for consumer in self._serving:  # what was read of it may be queued yet
            held = consumer.core.holdings.values()
            self._stale |= {each for each in held if each.partition == place}
        self._readings = {key: it for key, it in self._readings.items() if key[1] != place}
        self._confirmed = {key: end for key, end in self._confirmed.items() if key[1] != place}

    def removed(self, messages: Iterable[Message]) -> None:
        """Retention has taken them: whoever has not read them need not."""
        self.taken.update(messages)

    def skipped(self, key: str, before: int, group: str = "") -> int:
        """Up to where a key's messages need not be there: to be stored, or for a group to read."""
        while True:
            following = Message(key, before + 1)
            gone = following in self.in_doubt or following in self.taken
            if not gone and not self.seeks.may_lack(group, following):
                return before
            before += 1

    def deleted(self, place: Place) -> None:
        """What is deleted is in no layout, and nobody has to read it."""
        if place not in self._world.store.partitions:
            return
        name, part = self._segments[place[0]]
        topic = self._world.cluster.checks.truth.topic(name)
        if topic is None or topic.state is TopicState.DELETING:
            return
        if kafka_topic("", name, topic.incarnation, part) != place[0]:
            return
        if any(part.segment_id == each.segment_id for each in (*topic.segments, *topic.children)):
            raise ViolationError(f"{place} was deleted while its topic needs it: {topic}")

    # --- consumers ----------------------------------------------------------------------

    def consumer_acted(self, consumer: Consumer) -> None:
        """At most one consumer of a subscription may serve a bucket at any instant.

        Only what this event added needs a look: without events, sessions only lapse.
        """
        serving = consumer.serving()
        before = self._serving.get(consumer, frozenset())
        fresh = serving.keys() - before
        self._serving[consumer] = frozenset(serving)
        if not fresh:
            return
        origin = self.seeks.origin(consumer.group)
        for other in self._world.consumers:
            if other is consumer or self.seeks.origin(other.group) != origin:
                continue
            both = fresh & other.serving().keys()
            if both:
                raise ViolationError(f"{consumer} and {other} both serve {sorted(both)}")

    def delivered(
        self, consumer: Consumer, holding: Holding, place: Place, offset: int, message: Message
    ) -> None:
        """An application is given a message: in its key's order, and not again unless it must."""
        if place not in consumer.serving():
            raise ViolationError(f"{consumer} delivers {message} of {place} without serving it")
        who = consumer.group
        self.seeks.delivered(who, message)
        if place[0] in self._segments:
            self._world.old.must_be_drained(consumer, self._segments[place[0]][1], place, message)
        if message in self._unordered:
            self._world.old.delivered(who, message)
            self._delivered_at(consumer, holding, place, offset, message)
            return
        # What a topic held when it was deleted is never delivered, and who is late begins anywhere.
        whole = (consumer.topic, consumer.subscription) in self._world.subscriptions
        if is_shared(message.key):
            if whole:
                self._world.shared.delivered(who, message)
            self._delivered_at(consumer, holding, place, offset, message)
            return
        key = (who, message.key)
        before, source = self.delivered_up_to.get(key, (0, place))
        sink = self._world.sinks.get((consumer.topic, consumer.subscription))
        # A process that began from an older checkpoint may have gone back meanwhile.
        had = before if sink is None else max(before, sink.applied(message.key))
        had = max(had, self.running.begun_up_to(who, message.key))
        ahead = whole and message.sequence > self.skipped(message.key, had, who) + 1
        behind = message.sequence <= before and source != place
        if ahead or behind:
            raise ViolationError(
                f"{message} came to {consumer} from {place} right after {before} from {source}"
            )
        is_again = self._delivered_at(consumer, holding, place, offset, message)
        if not is_again and message.sequence <= before:
            raise ViolationError(f"{message} came to {consumer} twice, now from {place}")
        self.delivered_up_to[key] = (message.sequence, place)

    def _delivered_at(
        self, consumer: Consumer, holding: Holding, place: Place, offset: int, message: Message
    ) -> bool:
        """Whether what lies there was delivered before, which it must be excused for."""
        who = consumer.group
        if not consumer.runs:
            self.running.received(consumer, place, offset, message)
        origin = self.seeks.origin(who)
        if message not in self._unordered:  # a partition more, and its key is in another one
            self.handlers.begins(origin, message.key, consumer, holding, offset + 1)
        former = self._readings.get((who, place, offset))
        if former is not None:
            self.redelivered += 1
            if consumer.kind is SubscriptionKind.STREAM:
                self._must_be_excused(consumer, former, place, offset, message)
            if former.consumer is not consumer:
                self.handed_on += 1
        self._readings[who, place, offset] = _Reading(consumer, holding)
        self.deliveries[place] += 1
        return former is not None

    def _must_be_excused(
        self, consumer: Consumer, former: _Reading, place: Place, offset: int, message: Message
    ) -> None:
        """Again only what was not known to be committed, of a holder that ended or ran late."""
        who = consumer.group
        again = f"{message} came to {consumer} from {place} at {offset} again, after"
        if offset < self._confirmed.get((who, place), 0):
            raise ViolationError(f"{again} {former.consumer} had committed it")
        ended = not former.consumer.alive or former.consumer.life != former.life
        holding = former.holding
        if ended or holding.phase is Phase.LOST or not former.consumer.is_in_session():
            return
        if holding.acknowledged is not None and offset < holding.acknowledged:
            raise ViolationError(f"{again} {former.consumer} had acknowledged and released it")

    def confirmed(self, group: str, holding: Holding, end: int) -> None:
        """A consumer knows that all below `end` is committed."""
        if holding in self._stale:
            return
        place = (holding.kafka_topic, holding.place.bucket)
        self._confirmed[group, place] = max(self._confirmed.get((group, place), 0), end)

    # --- after the faults ---------------------------------------------------------------

    def unread(self) -> list[str]:
        """What some subscription has still to be given."""
        found = []
        for topic, subscription in self._world.subscriptions:
            known = self._world.cluster.checks.truth.subscription(topic, subscription)
            if known is None:
                found.append(f"{topic} has no subscription {subscription}")
                continue
            group = kafka_group("", topic, subscription, known.created_offset)
            sink = self._world.sinks.get((topic, subscription))
            for key, last in self.stored.items():
                got, _ = self.delivered_up_to.get((group, key), (0, None))
                got = sink.applied(key) if sink is not None else got
                got = max(got, self.running.begun_up_to(group, key))
                if key.startswith(f"{topic}|") and self.skipped(key, got, group) < last:
                    found.append(f"{subscription} has {key} up to {got} of {last}")
            found += self._world.old.unread(topic, subscription, group)
            found += self.running.undone(group)
            if not self._world.plan.seeks and not self._world.plan.removes:
                found += self._world.shared.unread(group, topic)
        return found


def _named(kafka: str, part: SegmentInfo) -> str:
    """A segment's name in a run: that of its Kafka topic, which may be another one's later."""
    return f"{kafka} from {part.start_offsets}" if part.start_offsets else kafka
