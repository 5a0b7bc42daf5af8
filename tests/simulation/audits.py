"""The audit, beside the simulation: what happens without a planted bug, it accuses nobody of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.channel.codec import Horizon
from anabranch.core.fold import digests
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import SubscriptionChange, TopicChange
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic
from anabranch.spark_replay.audit.checks.topics.segments import SegmentEnds, check_segments
from anabranch.spark_replay.audit.checks.topics.topic_checks import SealedSegment, TopicChecks
from anabranch.spark_replay.audit.verdict import CheckResult
from simulation.scheduler import ViolationError
from simulation.segment_store import Place
from support.history import SnapshotTaken
from support.local_audit import audited

if TYPE_CHECKING:
    from simulation.cluster import Cluster
    from simulation.topic_world import TopicWorld


def accuse_nobody(cluster: Cluster) -> None:
    """Audits the whole log and the heartbeats, and again from the snapshot on, if there is one.

    Raises ViolationError.
    """
    found = audited(cluster, parts=2).checks
    kept = cluster.snapshot
    if kept is not None and kept.horizon:
        digest = digests.to_hex(cluster.checks.digest_at(kept.horizon))
        taken = SnapshotTaken(dict(kept.values), Horizon(kept.horizon, digest))
        found += audited(cluster, parts=2, snapshot=taken, without_before=kept.horizon).checks
    for check in found:
        if check.result is CheckResult.VIOLATED:
            raise ViolationError(f"the audit accuses by {check.name}: {check.witnesses[0].text}")


class Auditor:
    """Holds what Kafka has of sealed segments against the log, as the audit does at the log's end;
    here at many ends.
    """

    def __init__(self, world: TopicWorld) -> None:
        self._world = world
        self._checks = TopicChecks()
        self.drains = 0

    def folded(self, folded: Folded) -> None:
        """A record was accepted."""
        offset, record, changes = folded.offset, folded.record, folded.outcome.changes
        if isinstance(record, TopicChange):
            self._checks.topic(offset, record, changes)
        elif isinstance(record, SubscriptionChange):
            self._checks.subscription(offset, record, changes)

    def look(self) -> None:
        """The log might end here. Raises ViolationError."""
        store = self._world.store
        partitions, committed, believed = store.partitions, store.committed, store.believed
        left = self._checks.left(self._world.cluster.checks.truth)
        places = {(one.topic, one.segment.segment_id): _places(one) for one in left.sealed}
        there = {key: [partitions[p] for p in found] for key, found in places.items()}
        drained = {
            (drain.topic, drain.name, each.segment_id): (
                kafka_group("", drain.topic, drain.name, drain.group_offset),
                drain.created_offset,
            )
            for drain in left.drains
            for each in drain.drained
            if (drain.topic, each.segment_id) in places
        }
        kafka = SegmentEnds(
            {key: tuple(len(each.messages) for each in found) for key, found in there.items()},
            {
                (topic, name, number): tuple(
                    believed(*life, place) if (life[0], place) in committed else -1
                    for place in places[topic, number]
                )
                for (topic, name, number), life in drained.items()
            },
            {key: tuple(each.begin for each in found) for key, found in there.items()},
        )
        self.drains += len(kafka.committed)
        tally = check_segments(left, kafka, self._world.cluster.log_ms())
        if tally.violated:
            raise ViolationError(f"the audit accuses by segments: {tally.witnesses[0].text}")


def _places(one: SealedSegment) -> list[Place]:
    name = kafka_topic("", one.topic, one.incarnation, one.segment)
    return [(name, bucket) for bucket in range(one.segment.buckets)]
