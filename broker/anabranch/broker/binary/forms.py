"""A topic's state as the binary protocol's messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from anabranch.broker.errors import PreconditionError
from anabranch.broker.topics.watches import Mark, WatchedTopic
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.subscription import Subscription, SubscriptionKind
from anabranch.core.entities.topic import ScalableTopic, TopicState
from anabranch.core.hashing import RING16, bucket_starts
from anabranch.core.names import full_name
from anabranch.core.subscriptions.coordinator import ConsumerAssignment
from anabranch.core.subscriptions.draining import Bucket
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic, segment_topic
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import layouts
from anabranch.wire.entries import ENTRIES_MAX

_DAGS_MAX: Final = 256


class ClientSettings(msgspec.Struct, frozen=True):
    """The settings of this node that clients are told."""

    topic_prefix: str
    bootstrap_servers: str
    max_message_bytes: int
    session_timeout_ms: int


class Dags:
    """Layouts as messages; the last few are kept, since many clients ask for the same one."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._known: dict[str, tuple[Mark, pb.ScalableTopicDAG]] = {}

    def of(self, name: str, topic: ScalableTopic, seen: WatchedTopic) -> pb.ScalableTopicDAG:
        """The message, which must not be changed."""
        known = self._known.get(name)
        if known is not None and known[0] == seen.mark:
            return known[1]
        while len(self._known) >= _DAGS_MAX:
            del self._known[next(iter(self._known))]
        dag = self._made(name, topic, seen)
        self._known[name] = (seen.mark, dag)
        return dag

    def _made(self, name: str, topic: ScalableTopic, seen: WatchedTopic) -> pb.ScalableTopicDAG:
        def form(part: SegmentInfo) -> pb.SegmentInfoProto:
            return segment_form(self._settings, name, topic, part)

        dag = pb.ScalableTopicDAG(
            epoch=topic.epoch,
            version=topic.version,
            segments=[form(part) for part in topic.segments],
            segment_brokers=_brokers(topic, seen),
            controller_broker_url=seen.service_url or None,
            controller_broker_url_tls=seen.service_url_tls or None,
            bootstrap_servers=self._settings.bootstrap_servers,
            children=[form(part) for part in topic.children],
            parents_under_way=topic.parents,
            incarnation=topic.incarnation,
            sealing=topic.state is TopicState.SEALING,
            max_message_bytes=_bytes_max(self._settings, topic),
            adopted_from=topic.adopted_from or None,
        )
        layouts.fit(dag)
        return dag


def _bytes_max(settings: ClientSettings, topic: ScalableTopic) -> int:
    """What every segment takes that producers write to, or soon will: an adopted one takes less."""
    parts = (*topic.segments, *topic.children)
    others = (part.bytes_max for part in parts if part.is_active and part.bytes_max)
    return min((settings.max_message_bytes, *others))


def _brokers(topic: ScalableTopic, seen: WatchedTopic) -> list[pb.SegmentBrokerAddress]:
    """The node that answers for each active segment: the topic's controller, for all of them."""
    if not (seen.service_url or seen.service_url_tls):
        return []
    with_tls = seen.service_url_tls or None
    return [
        pb.SegmentBrokerAddress(
            segment_id=part.segment_id, broker_url=seen.service_url, broker_url_tls=with_tls
        )
        for part in topic.segments
        if part.is_active
    ]


def segment_form(
    settings: ClientSettings, name: str, topic: ScalableTopic, part: SegmentInfo
) -> pb.SegmentInfoProto:
    """A segment of a layout, with where its messages are."""
    form = pb.SegmentInfoProto(
        segment_id=part.segment_id,
        hash_start=part.start,
        hash_end=part.end,
        state=pb.SegmentState.ACTIVE if part.is_active else pb.SegmentState.SEALED,
        parent_ids=part.parent_ids,
        child_ids=part.child_ids,
        created_at_epoch=part.created_at_epoch,
        created_at_ms=part.created_at_ms,
        entry_bucket_splits=bucket_starts(part.buckets),
        kafka_topic=kafka_topic(settings.topic_prefix, name, topic.incarnation, part),
    )
    if part.is_legacy:
        form.legacy_topic_name = part.legacy_topic
        form.partitioner = part.partitioner
        form.start_offsets.extend(part.start_offsets)
    if not part.is_active:
        form.sealed_at_epoch = part.sealed_at_epoch
        form.sealed_at_ms = part.sealed_at_ms
        form.end_offsets.extend(part.end_offsets)
    return form


def assignment_form(
    settings: ClientSettings,
    name: str,
    topic: ScalableTopic,
    subscription: str,
    known: Subscription,
    assignment: ConsumerAssignment,
    goes_on: Mapping[Bucket, int],
) -> pb.ScalableConsumerAssignment:
    """Returns a consumer's assignment, with all that it must know to serve it.

    `goes_on`: positions that are newer than the log's.
    """
    form = pb.ScalableConsumerAssignment(
        layout_epoch=assignment.epoch,
        incarnation=topic.incarnation,
        group_id=kafka_group(settings.topic_prefix, name, subscription, known.group_offset),
        session_timeout_ms=settings.session_timeout_ms,
        bootstrap_servers=settings.bootstrap_servers,
        sequence=assignment.sequence,
        begun_at=known.created_offset,
        commits_again=assignment.commits_again or None,
    )
    if known.dead_letter:
        form.dead_letter.topic = full_name(known.dead_letter)
        form.dead_letter.deliveries_max = known.deliveries_max
    parts = {part.segment_id: part for part in topic.segments}
    there = {*parts, *(part.segment_id for part in topic.children)}
    form.pruned.extend(
        pb.ScalablePrunedSegment(segment_id=each.segment_id, end_offsets=each.offsets)
        for each in known.positions
        if known.kind is SubscriptionKind.CHECKPOINT and each.segment_id not in there
    )
    starts = {each.segment_id: each.offsets for each in known.positions}
    every = assignment.fences or ((),) * len(assignment.shares)
    for (segment_id, buckets), fences in zip(assignment.shares, every, strict=True):
        part = parts.get(segment_id)
        if part is not None:
            noted = starts.get(segment_id)
            begins = [
                max(goes_on.get((segment_id, b), 0), noted[b] if noted is not None else 0)
                for b in buckets
            ]
            form.segments.append(
                pb.ScalableAssignedSegment(
                    segment_id=segment_id,
                    hash_start=part.start,
                    hash_end=part.end,
                    segment_topic=segment_topic(name, part),
                    bucket_ranges=bucket_ranges(part) if len(buckets) < part.buckets else (),
                    kafka_topic=kafka_topic(settings.topic_prefix, name, topic.incarnation, part),
                    buckets=buckets,
                    end_offsets=part.end_offsets,
                    start_offsets=begins if any(begins) else (),
                    fences=fences,
                )
            )
    return form


def bucket_ranges(part: SegmentInfo) -> Iterator[pb.IntRange]:
    """All of a segment's buckets, by the hashes that they hold; only a shared one's are told."""
    for start, end in pairwise((0, *bucket_starts(part.buckets), RING16)):
        yield pb.IntRange(start=start, end=end - 1)


def buckets_of(
    forms: Sequence[pb.SegmentBuckets], topic: ScalableTopic | None
) -> tuple[Bucket, ...]:
    """Segment ids and buckets, one by one. Raises PreconditionError for more than there can be."""
    most = max(ENTRIES_MAX, sum(part.buckets for part in topic.segments) if topic else 0)
    found: list[Bucket] = []
    for form in forms:
        segment_id, buckets = form.segment_id, form.buckets
        if len(found) + len(buckets) > most:  # of what was pruned meanwhile there may be some
            raise PreconditionError(f"more than {most} buckets are named: no more are looked at")
        # A plain list is gone through in half the time.
        found += [(segment_id, bucket) for bucket in buckets[:]]
    return tuple(found)


def committed_of(forms: Sequence[pb.SegmentBuckets]) -> dict[Bucket, int]:
    """Returns each bucket's committed position, if the consumer knows it."""
    return {
        (form.segment_id, bucket): at
        for form in forms
        for bucket, at in zip(form.buckets, form.committed, strict=False)
        if at >= 0
    }
