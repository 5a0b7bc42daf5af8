"""Scalable topics in one part of the replay: their checks, and their state at the end."""

from __future__ import annotations

from typing import Final

import msgspec

from anabranch.core.bundles.guards import controller_of
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.subscription import (
    SegmentPositions,
    Subscription,
    SubscriptionKind,
)
from anabranch.core.entities.topic import ScalableTopic, TopicMove, TopicState
from anabranch.core.log.records import SubscriptionChange, TopicChange
from anabranch.core.log.state import Change, Entity, StateReader
from anabranch.spark_replay.audit.checks.topics.adoption import Adopted, Adoption
from anabranch.spark_replay.audit.checks.topics.draining import Draining
from anabranch.spark_replay.audit.checks.topics.layouts import Layouts
from anabranch.spark_replay.audit.checks.topics.noted import NotedPositions
from anabranch.spark_replay.audit.checks.topics.seals import Seals
from anabranch.spark_replay.audit.tally import CheckName, CheckTally

SEALED_MAX: Final = 10_000  # segments of one part that are compared with Kafka
_STUCK_MAX: Final = 10_000
_AT_REST: Final = TopicState.STABLE


class UnfinishedTopic(msgspec.Struct, frozen=True):
    """A topic whose controller has something to finish, with the time since when."""

    name: str
    state: TopicState
    controller: str
    since_ms: int
    since_offset: int


class SealedSegment(msgspec.Struct, frozen=True):
    """A sealed segment at the end of the log."""

    topic: str
    incarnation: int
    segment: SegmentInfo
    offset: int  # that of its topic's last record
    children: tuple[SegmentInfo, ...] = ()


class StreamDrain(msgspec.Struct, frozen=True):
    """The drained segments of a stream subscription at the end of the log, with their logged
    positions.
    """

    topic: str
    name: str
    created_offset: int
    group_offset: int
    drained: list[SegmentPositions]


class TopicsLeft(msgspec.Struct):
    """The state of topics at the end of the log, for one part or for all."""

    topics: int = 0
    unfinished: list[UnfinishedTopic] = []
    sealed: list[SealedSegment] = []
    sealed_count: int = 0  # with those that are too many to name
    drains: list[StreamDrain] = []
    adopted: list[Adopted] = []


class TopicChecks:
    """All checks of topics, fed with accepted records. Snapshot states, if any, come first."""

    def __init__(self) -> None:
        self._layouts = Layouts()
        self._seals = Seals()
        self._draining = Draining()
        self._adoption = Adoption()
        self._noted = NotedPositions()
        self._topics: dict[str, ScalableTopic] = {}
        self._entered: dict[str, tuple[int, int]] = {}  # topic not at rest -> when, and where

    def tallies(self) -> dict[CheckName, CheckTally]:
        """Returns the checks' tallies."""
        return {
            CheckName.LAYOUTS: self._layouts.tally,
            CheckName.SEALS: self._seals.tally,
            CheckName.DRAINING: self._draining.tally,
            CheckName.ADOPTION: self._adoption.tally,
        }

    def start(self, offset: int, key: str, entity: Entity) -> None:
        """Begins a replay from a snapshot, whose horizon is `offset`, with this entity."""
        name = key.partition(":")[2]
        if isinstance(entity, ScalableTopic):
            self._topics[name] = entity
            self._seals.start(name, entity)
            self._adoption.start(offset, name, entity)
            self._layouts.changed(offset, name, entity)
            self._note(name, None, entity)
        elif isinstance(entity, Subscription):
            topic, _, subscription = name.rpartition("/")
            self._draining.start(topic, subscription, entity)
            self._noted.start(topic, subscription, entity)

    def topic(self, offset: int, record: TopicChange, changes: tuple[Change, ...]) -> None:
        """Checks an accepted move of a topic."""
        name = record.topic
        before = self._topics.get(name)
        found = next((entity for key, entity in changes if key == record.key), None)
        after = found if isinstance(found, ScalableTopic) else None
        self._layouts.changed(offset, name, after)
        self._seals.changed(offset, record, before, after)
        self._draining.topic_changed(offset, record, changes, before)
        self._adoption.changed(offset, record, before, after)
        self._note(name, before, after)
        if record.move in (TopicMove.CREATE, TopicMove.REMOVE):
            self._noted.topic_ended(name)
        if after is None:
            self._topics.pop(name, None)
        else:
            self._topics[name] = after

    def subscription(
        self, offset: int, record: SubscriptionChange, changes: tuple[Change, ...]
    ) -> None:
        """Checks an accepted change of a subscription."""
        entity = next((entity for key, entity in changes if key == record.key), None)
        after = entity if isinstance(entity, Subscription) else None
        topic = self._topics.get(record.topic)
        self._draining.subscription_changed(offset, record, topic, after)
        self._noted.changed(record, after)

    def _note(self, name: str, before: ScalableTopic | None, after: ScalableTopic | None) -> None:
        if after is None or after.state is _AT_REST:
            self._entered.pop(name, None)
        elif before is None or before.state is not after.state:
            self._entered[name] = (after.since_ms, after.since_offset)

    def left(self, state: StateReader) -> TopicsLeft:
        """Returns the topics at the end of the log, which has this state."""
        found = TopicsLeft(len(self._topics), adopted=self._adoption.held())
        for name, topic in self._topics.items():
            if name in self._entered and len(found.unfinished) < _STUCK_MAX:
                since_ms, since_offset = self._entered[name]
                controller = controller_of(state, name)[1]
                found.unfinished.append(
                    UnfinishedTopic(name, topic.state, controller, since_ms, since_offset)
                )
            if topic.is_open:
                self._sealed(found, state, name, topic)
        return found

    def _sealed(
        self, found: TopicsLeft, state: StateReader, name: str, topic: ScalableTopic
    ) -> None:
        parts = {part.segment_id: part for part in topic.segments}
        for part in topic.segments:
            if part.is_active or part is topic.continued:  # others may write to that again by now
                continue
            found.sealed_count += 1
            if len(found.sealed) < SEALED_MAX:
                children = tuple(parts[each] for each in part.child_ids if each in parts)
                found.sealed.append(
                    SealedSegment(name, topic.incarnation, part, topic.since_offset, children)
                )
        for subscription, known in state.subscriptions(name):
            drained = self._noted.drained(name, subscription, known)
            if known.kind is SubscriptionKind.STREAM and drained:
                offsets = known.created_offset, known.group_offset
                found.drains.append(StreamDrain(name, subscription, *offsets, drained))


def left_by_all(parts: list[TopicsLeft]) -> TopicsLeft:
    """Returns the topics of the whole log."""
    whole = TopicsLeft()
    for part in parts:
        whole.topics += part.topics
        whole.unfinished += part.unfinished
        whole.sealed += part.sealed
        whole.sealed_count += part.sealed_count
        whole.drains += part.drains
        whole.adopted += part.adopted
    return whole
