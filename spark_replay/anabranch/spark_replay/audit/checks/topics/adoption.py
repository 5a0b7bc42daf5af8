"""Adoption: each of others' Kafka topics is one scalable topic's at a time, and stays in Kafka.

The record of an adoption carries the entry of `adoptableTopics` that allows it. Until a preparation
replaces it, the segment stays active, and no record has its Kafka topic deleted. Only what was cut
over is given back, from its ends on. The fold looks for
a second adoption in one namespace only, because a replay is divided by tenant. `check_adoption`
looks at all of them, after the parts were replayed (docs/decisions/0032).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from anabranch.core.adoption.adoptable import allows
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.topic import Operation, ScalableTopic, TopicMove
from anabranch.core.log.records import TopicChange
from anabranch.core.names import namespace_of
from anabranch.spark_replay.audit.tally import CheckTally

HELD_YET: Final = 1 << 62  # at the end of the log
_HELD_MAX: Final = 100_000  # of one part


class Adopted(msgspec.Struct, frozen=True, order=True):
    """A scalable topic's time with a Kafka topic, from one offset of the log to another one."""

    kafka_topic: str
    since: int
    until: int
    topic: str


class Adoption:
    """Follows the adopted topics of one part of the replay."""

    def __init__(self) -> None:
        self.tally = CheckTally()
        self._since: dict[tuple[str, str], int] = {}  # by topic and Kafka topic
        self._held: list[Adopted] = []

    def start(self, offset: int, name: str, topic: ScalableTopic) -> None:
        """Begins a replay from a snapshot with this topic."""
        self._note(offset, name, None, topic)

    def changed(
        self,
        offset: int,
        record: TopicChange,
        before: ScalableTopic | None,
        after: ScalableTopic | None,
    ) -> None:
        """Checks an accepted record that has turned `before` into `after`."""
        adopted = _adopted(before) | _adopted(after)
        if not adopted and not any(part.is_legacy for part in record.segments):
            return
        self.tally.examined += 1
        for fault in _faults(record, before, after):
            self.tally.violate(offset, f"{record.topic}: {fault}")
        self._note(offset, record.topic, before, after)

    def held(self) -> list[Adopted]:
        """Returns who had which Kafka topic, and when."""
        yet = [Adopted(kafka, at, HELD_YET, name) for (name, kafka), at in self._since.items()]
        return (self._held + yet)[:_HELD_MAX]

    def _note(
        self, offset: int, name: str, before: ScalableTopic | None, after: ScalableTopic | None
    ) -> None:
        was, now = _adopted(before), _adopted(after)
        for kafka in was - now:
            self._held.append(Adopted(kafka, self._since.pop((name, kafka), 0), offset, name))
        for kafka in now - was:
            self._since[name, kafka] = offset


def check_adoption(held: Iterable[Adopted]) -> CheckTally:
    """Checks that no two scalable topics of the cluster had a Kafka topic at once."""
    tally = CheckTally()
    last: Adopted | None = None
    for each in sorted(held):
        tally.examined += 1
        if last is not None and last.kafka_topic == each.kafka_topic and each.since < last.until:
            tally.violate(
                each.since,
                f"{each.topic}: adopted Kafka topic {each.kafka_topic}, which {last.topic} had",
            )
        if last is None or last.kafka_topic != each.kafka_topic or each.until > last.until:
            last = each
    return tally


def _faults(
    record: TopicChange, before: ScalableTopic | None, after: ScalableTopic | None
) -> Iterator[str]:
    creates = record.move is TopicMove.CREATE
    returned = record.operation is Operation.GIVE_BACK and record.move is TopicMove.BEGIN
    if returned:
        yield from _returned(record, before)
    for kafka in () if returned else sorted(_legacy(record.segments)):
        if not creates:
            yield f"{record.move.name} makes a segment of Kafka topic {kafka}"
        elif not allows(record.adoptable, namespace_of(record.topic), kafka):
            entry = repr(record.adoptable) if record.adoptable else "no entry"
            yield f"Kafka topic {kafka} was adopted, but {entry} allows it"
    for kafka in sorted(
        _adopted(after) - (_legacy(record.segments) if creates else _adopted(before))
    ):
        yield f"{record.move.name} made a segment of Kafka topic {kafka}"
    if record.move is TopicMove.BEGIN and record.operation is not Operation.PREPARE:
        parts = before.segments if before is not None else ()
        for kafka in sorted(_legacy(part for part in parts if part.segment_id in record.parents)):
            yield f"a {record.operation.name} replaces adopted Kafka topic {kafka}"
    for kafka in sorted(_legacy(after.garbage) if after is not None else ()):
        yield f"adopted Kafka topic {kafka} is to be deleted in Kafka"


def _returned(record: TopicChange, before: ScalableTopic | None) -> Iterator[str]:
    """Checks that what goes on is what was cut over, at the ends that its COMMIT told."""
    sealed = {
        (part.legacy_topic, part.topic_id, part.partitioner, part.end_offsets)
        for part in (before.segments if before is not None else ())
        if part.is_legacy and not part.is_active
    }
    for part in record.segments:
        told = part.legacy_topic, part.topic_id, part.partitioner, part.start_offsets
        if told not in sealed:
            yield f"a GIVE_BACK opens {part.legacy_topic!r}, which was not cut over so"


def _adopted(topic: ScalableTopic | None) -> set[str]:
    return _legacy(topic.segments) if topic is not None else set()


def _legacy(parts: Iterable[SegmentInfo]) -> set[str]:
    return {part.legacy_topic for part in parts if part.is_legacy}
