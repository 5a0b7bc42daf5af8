"""The seal of a segment: Kafka is made to refuse every append, and then says the segment's end.

`max.message.bytes` of 78 refuses every append of a client. It lets the end of a transaction pass,
which Kafka writes by itself. Otherwise a transaction that is open at the seal would stay open, and
nobody could read beyond its first message. Each partition's leader obeys at a time of its own, so
each is *probed* until it does. The probe is an append that Kafka stores in no case. Its time-stamp
is too far in the future, for which an open segment refuses it (INVALID_TIMESTAMP). But Kafka looks
at the size first, and a sealed one refuses it for that (MSG_SIZE_TOO_LARGE).

Nor may a later leader take any. A broker reads metadata in rounds. It puts the leaders into force
first, and the settings last. A follower that is behind may read in one round of the seal and of its
own leadership. It then leads for a while without refusing: for seconds, if it has other topics'
logs to make. So each broker that has a copy is asked what it has read. As soon as the seal is
written, a setting is changed once more that does not matter (the *stamp*). A broker that shows
another stamp than it first showed with the seal has read of the seal in a round before, and put it
into force. A broker may first show the seal with the newest stamp, because it read of both in one
round. Then one more stamp is written. Without other copies there is no broker to ask.

Nor may an append land that Kafka had begun before. An append that has passed the check of its size
waits for the partition's lock, behind others, or while its thread has no processor. In the lock
Kafka looks at the size again if it has to compress the batch anew. So a seal changes the
compression, too, to one that is not the batch's own. The sealer also waits for an append that has
the lock already: to delete records, even none, takes the lock (`delete_nothing`).

Earlier appends may not be replicated yet. Kafka's end (the high watermark) does not count them,
though they will be acknowledged. So the sealer asks for the end in another way as well. It puts a
consumer behind the end, under its leader's epoch, and the leader tells the consumer how far its own
log reaches ("truncation detected"). Only when both agree, and agree again, is that the end. A
former leader, which does not know yet that it is none, is recognized by its epoch, and not
believed. The leader's word and the looks after it must be later than the seal, the first look need
not.

Tried and dropped: an oversized probe, which open and sealed partitions refuse alike; asking for the
topic's settings, which tells one Kafka broker's reading and not the leader's action; reading the
end twice, which proves nothing about a follower that is slow.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

import msgspec
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from anabranch.channel.errors import SegmentExistsError
from anabranch.channel.kafka.connection import (
    NO_GROUP,
    KafkaConnection,
)
from anabranch.channel.kafka.deadline import Deadline
from anabranch.channel.kafka.deletion import delete_nothing, led_of
from anabranch.channel.kafka.offsets import ASKING, LATEST, Answers, PartitionOffsets, Place
from anabranch.channel.segments.copies import (
    Address,
    Obedience,
    Views,
    newest_epochs,
    what_is_shown,
)
from anabranch.channel.segments.seal_settings import (
    LIMIT,
    STAMP,
    Changes,
    SealForm,
    change,
    changed,
)
from anabranch.core.topics.kafka_names import FUTURE_MS_MAX

PROBE_HEADER: Final = "anabranch-probe"
_PROBE_TIMESTAMP_MS: Final = 1 << 55
_STAMPS: Final = 1 << 30
_SHOWN: Final = (LIMIT, STAMP)  # what brokers are asked for
_ANSWER_S: Final = 0.1  # the leader's word on its log; silence means that it is longer
_CLOSE_S: Final = 2.0
_LOOK_S_MIN: Final = 0.5

_OPEN_OR_SEALED: Final = (KafkaError.INVALID_TIMESTAMP, KafkaError.MSG_SIZE_TOO_LARGE)

_Look = Future[Answers]


class SegmentTopic(msgspec.Struct, frozen=True):
    """A segment's Kafka topic and how many partitions it has. `is_legacy`: others have made it."""

    name: str
    partitions: int
    is_legacy: bool = False


def nothing() -> None:
    """Has nothing to do."""


class Sealer:
    """Seals topics, and finds their final ends. To be used by one thread.

    `views`: None if Kafka cannot be asked so.
    """

    def __init__(
        self, connection: KafkaConnection, admin: AdminClient, views: Views | None
    ) -> None:
        self._admin = admin
        self._views = views
        self._form = SealForm(admin)
        # Without sequence numbers, so that refusals leave nothing behind, and for the leader alone.
        self._producer: Producer = connection.producer(
            enable_idempotence=False, acks=1, message_send_max_retries=0, message_timeout_ms=5_000
        )
        self._consumer: Consumer = connection.consumer(**ASKING)
        self._offsets = PartitionOffsets(connection, self._consumer)
        self._led: set[Place] = set()  # the admin client's last word
        self._epochs: dict[Place, int] = {}  # the newest ones that brokers have shown

    def close(self) -> None:
        """Ends all clients."""
        self._producer.flush(_CLOSE_S)
        self._offsets.close()
        if self._views is not None:
            self._views.close()

    def seal(
        self,
        topics: Sequence[SegmentTopic],
        deadline: Deadline,
        meanwhile: Callable[[], None] = nothing,
    ) -> dict[str, tuple[int, ...]]:
        """End offsets of every partition of every topic, once none takes appends any more.

        A topic that is not there any more ends where it began. `meanwhile` is called once, while
        Kafka's controller writes the settings.
        """
        names = [topic.name for topic in topics]
        self._led.clear()
        self._epochs = {}
        self._get_acquainted(names[1:], deadline)  # appends go on meanwhile
        changes = self._form.begin(names)
        self._get_acquainted(names[:1], deadline)
        meanwhile()
        found = self._copies(names, deadline)
        gone = self._form.end(names, changes, deadline)
        there = [name for name in names if name not in gone]
        gone_since, copies = self._await_copies(there, found, deadline)
        gone |= gone_since
        places = [
            (topic.name, number)
            for topic in topics
            if topic.name not in gone
            for number in range(topic.partitions)
        ]
        doing = f"to wait until what topic {names[0] if names else ''} is being appended is stored"

        def await_lock() -> None:
            """The holder of a partition's lock since before the seal has to give it up."""
            delete_nothing(self._admin, places, self._led, deadline, doing)

        def note_epochs_and_await_lock() -> None:
            if self._views is not None:
                self._epochs = newest_epochs(self._views, there, copies)
            await_lock()

        # Leaders that have copies obey already, so the lock can be asked for beside the probes.
        left = places
        if not copies:
            # A Kafka broker obeys for all partitions that it leads at once, and has the children's
            # logs to make first. Until one refuses, asking the others would only keep it busy.
            self._probe(places[:1], deadline)
            left = places[1:]
        look = self._look(places, deadline)  # comes while the others are asked
        if not self._probe(left, deadline, note_epochs_and_await_lock if copies else nothing):
            look = self._look(places, deadline)
            await_lock()
        elif not copies:
            await_lock()
        ends = self._ends(places, look, deadline)
        return {
            topic.name: tuple(
                ends.get((topic.name, number), 0) for number in range(topic.partitions)
            )
            for topic in topics
        }

    # --- making it refuse ---------------------------------------------------------------

    def _await_copies(
        self, names: Sequence[str], there: Mapping[int, Address] | None, deadline: Deadline
    ) -> tuple[set[str], Mapping[int, Address]]:
        """Returns once no broker with a copy that may come to lead takes appends any more.

        Returns the topics that somebody has deleted meanwhile, and the brokers that have copies,
        as `there` has those that had one a moment ago.
        """
        gone: set[str] = set()
        left = list(names)
        obedience = Obedience()
        changes: Changes = {}  # of the newest stamp, until they are answered
        stamp: dict[str, str] = {}

        def write_stamp(names: Sequence[str]) -> Changes:
            return change(self._admin, stamp, names)

        while left:
            doing = f"to wait until every Kafka broker has sealed topic {left[0]}"
            is_asked = not there or obedience.of(there, left)
            if is_asked:
                there = self._copies(left, deadline)
            if there is None:
                deadline.pause(doing)
                continue
            if not there or (is_asked and obedience.of(there, left)):
                # There are no copies, or all that have one now had obeyed before that was asked.
                return gone | changed(changes, write_stamp, deadline), there
            if not changes and obedience.needs_stamp:
                stamp = {STAMP: obedience.stamped(FUTURE_MS_MAX + 1 + secrets.randbelow(_STAMPS))}
                changes = write_stamp(left)
            shown = what_is_shown(self._views, self._admin, there, left, _SHOWN, deadline, doing)
            if not obedience.take(shown):
                there = None
                deadline.pause(doing)
            if all(future.done() for future in changes.values()):
                gone |= changed(changes, write_stamp, deadline)
                left = [name for name in left if name not in gone]
                changes = {}
        return gone, {}

    def _copies(self, names: Sequence[str], deadline: Deadline) -> dict[int, Address] | None:
        """The brokers that are there and have a copy, if some partition has several copies; None
        if it is not known.

        A broker that has the only copy of another partition is among them: its lock is asked for
        beside the first probe.
        """
        found: dict[int, Address] = {}
        several = False
        for name in names:
            doing = f"to find the copies of topic {name}"
            try:
                metadata = self._admin.list_topics(name, timeout=deadline.left_s(doing))
            except KafkaException as error:
                deadline.passing(error.args[0], doing)
                return None
            topic = metadata.topics[name]
            if topic.error is not None:
                return None
            self._led |= led_of(name, topic)
            for partition in topic.partitions.values():
                several |= len(partition.replicas) > 1
                for number in metadata.brokers.keys() & set(partition.replicas):
                    broker = metadata.brokers[number]
                    found[number] = (str(broker.host), broker.port)
        return found if several else {}

    def _get_acquainted(self, names: Iterable[str], deadline: Deadline) -> None:
        """Tells both clients who leads: the consumer would find out in its own time, a second."""
        for name in names:
            doing = f"to find the leaders of topic {name}"
            try:
                for client in (self._consumer, self._producer):
                    client.list_topics(name, timeout=deadline.left_s(doing))
            except KafkaException as error:
                deadline.passing(error.args[0], doing)

    def _probe(
        self,
        places: Sequence[Place],
        deadline: Deadline,
        meanwhile: Callable[[], None] = nothing,
    ) -> bool:
        """Returns once all of them refuse appends; tells whether they did so at once.

        `meanwhile` is called while the leaders answer for the first time.
        """
        left = list(places)
        at_once = True
        while left:
            name, number = left[0]
            doing = f"to probe whether topic {name}, partition {number}, is sealed"
            answers = self._append(left, deadline, doing, meanwhile)
            meanwhile = nothing
            for place, error in answers.items():
                if error is not None and error.code() not in _OPEN_OR_SEALED:
                    deadline.passing(error, f"{doing}, {place[0]}")
            for topic in {place[0] for place, error in answers.items() if _is_unknown(error)}:
                self._must_be_there(topic, places, deadline)
            left = [place for place in left if not _is_sealed(answers.get(place))]
            if left:
                at_once = False
                deadline.pause(doing)
        return at_once

    def _append(
        self,
        places: Iterable[Place],
        deadline: Deadline,
        doing: str,
        meanwhile: Callable[[], None],
    ) -> dict[Place, KafkaError | None]:
        """Returns what a probe of each partition was answered with, as far as it was in time."""
        answers: dict[Place, KafkaError | None] = {}

        def answered(error: KafkaError | None, message: Message) -> None:
            answers[message.topic() or "", message.partition() or 0] = error

        for topic, partition in places:
            try:
                self._producer.produce(
                    topic,
                    value=b"",
                    partition=partition,
                    timestamp=_PROBE_TIMESTAMP_MS,
                    headers=[(PROBE_HEADER, b"")],
                    on_delivery=answered,
                )
            except KafkaException as error:  # for a partition that it knows not to be there
                answers[topic, partition] = error.args[0]
        meanwhile()
        self._producer.flush(deadline.left_s(doing))
        return answers

    def _must_be_there(self, name: str, places: Iterable[Place], deadline: Deadline) -> None:
        """Raises SegmentExistsError if the topic has fewer partitions than these.

        Somebody has deleted it, and it was made anew: the ends of the missing ones are unknown.
        """
        expected = 1 + max(number for topic, number in places if topic == name)
        doing = f"to count the partitions of topic {name}"
        try:
            found = self._producer.list_topics(name, timeout=deadline.left_s(doing)).topics[name]
        except KafkaException as error:
            deadline.passing(error.args[0], doing)
            return
        if found.error is None and len(found.partitions) < expected:
            raise SegmentExistsError(name, len(found.partitions), expected)

    # --- where it ends ------------------------------------------------------------------

    def _ends(self, places: Sequence[Place], look: _Look, deadline: Deadline) -> dict[Place, int]:
        """The ends of the logs of partitions that refuse appends. `look` may be from before that,
        because it only gives the ends that the leaders are asked to confirm.
        """
        if not places:
            return {}
        doing = f"to find where topic {places[0][0]} ends"
        while True:
            ends = self._latest(places, look, deadline, doing)
            if self._nothing_beyond(ends, deadline, doing):
                again = self._latest(places, self._look(places, deadline), deadline, doing)
                if again == ends:
                    return {place: offset for place, (offset, _) in ends.items()}
            deadline.pause(doing)
            self._get_acquainted({topic for topic, _ in places}, deadline)  # leaders may be gone
            look = self._look(places, deadline)

    def _look(self, places: Iterable[Place], deadline: Deadline) -> _Look:
        """Asks what the latest offsets are, and does not wait for the answers.

        A leader that is gone does not answer, and librdkafka asks no other one instead: the
        question is given up in time for another.
        """
        seconds = max(_LOOK_S_MIN, deadline.left_s("to find where segments end") / 4)
        return self._offsets.soon(places, LATEST, seconds)

    def _latest(
        self, places: Sequence[Place], look: _Look, deadline: Deadline, doing: str
    ) -> dict[Place, tuple[int, int]]:
        """Asks each partition's high watermark and the epoch of its leader; -1 for unknown."""
        found: dict[Place, tuple[int, int]] = {}
        while True:
            answers = deadline.answer(look, doing)
            former: set[str] = set()  # topics of which a former leader has answered
            if isinstance(answers, dict):
                for place, answer in answers.items():
                    if isinstance(answer, KafkaError):
                        deadline.passing(answer, f"to find where topic {place[0]} ends")
                    elif 0 <= answer.leader_epoch < self._epochs.get(place, 0):
                        former.add(place[0])
                    else:
                        found[place] = answer.offset, answer.leader_epoch
            if len(found) == len(places):
                return found
            self._get_acquainted(former, deadline)
            deadline.pause(doing)
            look = self._look([place for place in places if place not in found], deadline)

    def _nothing_beyond(
        self, ends: dict[Place, tuple[int, int]], deadline: Deadline, doing: str
    ) -> bool:
        """Tells whether every leader says that its log reaches no further than `ends`."""
        behind = []
        for (topic, number), (offset, epoch) in ends.items():
            place = TopicPartition(topic, number, offset + 1)
            if epoch >= 0:
                place = TopicPartition(topic, number, offset + 1, leader_epoch=epoch)
            behind.append(place)
        self._consumer.assign(behind)
        try:
            left = set(ends)
            quiet_at = time.monotonic() + _ANSWER_S
            while left and time.monotonic() < quiet_at:
                wait_s = min(_ANSWER_S, deadline.left_s(doing))
                for message in self._consumer.consume(len(left), wait_s):
                    error = message.error()
                    if error is None:
                        return False
                    if error.code() == KafkaError._AUTO_OFFSET_RESET:  # it must not be followed
                        left.discard((message.topic(), message.partition()))
                    elif error.code() != NO_GROUP:
                        deadline.passing(error, doing)
            return not left
        finally:
            self._consumer.unassign()


def _is_sealed(answer: KafkaError | None) -> bool:
    return answer is not None and answer.code() == KafkaError.MSG_SIZE_TOO_LARGE


def _is_unknown(answer: KafkaError | None) -> bool:
    return answer is not None and answer.code() == KafkaError._UNKNOWN_PARTITION
