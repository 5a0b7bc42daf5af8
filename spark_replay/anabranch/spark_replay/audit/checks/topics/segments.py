"""Segments in Kafka: nothing was appended after a seal, nothing was called drained too early.

The log has the end of every partition of a sealed segment, and Kafka still has most of them. The
ends must be equal, to the offset. A drained part of a stream subscription must lie before one of
three offsets: its group's committed one, its logged one, or the first that Kafka's retention has
left. Kafka forgets the offsets of a group that is not used for a day or more. So a missing one
counts only for segments that were sealed within a day. An offset proves nothing if somebody else,
or a late commit from before a seek (decision 0026), has put it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from anabranch.core.subscriptions.draining import unread
from anabranch.spark_replay.audit.checks.topics.topic_checks import SealedSegment, TopicsLeft
from anabranch.spark_replay.audit.tally import CheckTally

_REMEMBERED_MS: Final = 24 * 3_600_000  # Kafka's offsets.retention.minutes is seven times that


class SegmentEnds(msgspec.Struct, frozen=True):
    """Kafka's answers about the sealed segments and the groups that it has.

    Keys are a topic of the cluster and a segment's id, in `committed` with a subscription between
    them. Values are one offset for each partition. -1 means that Kafka does not know. None means
    that the offset is not of this life of the subscription. The end is the logged one if only ends
    of transactions lie behind that. `begins` has segments in which somebody has not committed all.
    """

    ends: Mapping[tuple[str, int], tuple[int, ...]]
    committed: Mapping[tuple[str, str, int], tuple[int | None, ...]]
    begins: Mapping[tuple[str, int], tuple[int, ...]] = {}


def check_segments(left: TopicsLeft, kafka: SegmentEnds, log_end_ms: int) -> CheckTally:
    """Compares the log's end offsets with Kafka's, which was asked after the end of the log."""
    tally = CheckTally()
    segments = {(one.topic, one.segment.segment_id): one for one in left.sealed}
    for place, one in segments.items():
        for bucket, (wanted, found) in enumerate(
            zip(one.segment.end_offsets, kafka.ends.get(place, ()), strict=False)
        ):
            tally.examined += 1
            if found != wanted:
                where = f"{one.topic}: segment {one.segment.descriptor} partition {bucket}"
                what = "data after its seal" if found > wanted else "lost data"
                tally.violate(
                    one.offset, f"{where}: {what}: it was sealed at {wanted} and ends at {found}"
                )
    for drain in left.drains:
        for each in drain.drained:
            place = (drain.topic, each.segment_id)
            committed = kafka.committed.get((drain.topic, drain.name, each.segment_id))
            if committed is not None and place in segments and place in kafka.ends:
                nothing = (0,) * len(committed)
                begun = segments[place].segment.start_offsets or nothing
                excuses = (each.offsets or nothing, begun, kafka.begins.get(place, nothing))
                _consumed(tally, segments[place], drain.name, committed, excuses, log_end_ms)
    return tally


def _consumed(
    tally: CheckTally,
    one: SealedSegment,
    name: str,
    committed: tuple[int | None, ...],
    excuses: tuple[tuple[int, ...], ...],
    log_end_ms: int,
) -> None:
    """Judges the commits. `excuses` are the logged offsets, and the begins of the segment and of
    Kafka's messages.
    """
    recent = log_end_ms - one.segment.sealed_at_ms < _REMEMBERED_MS
    for bucket, (end, found, *others) in enumerate(
        zip(one.segment.end_offsets, committed, *excuses, strict=False)
    ):
        if found is None or (found < 0 and (not recent or not end)):
            continue
        tally.examined += 1
        if unread(end, found, *others):
            told = found if found >= 0 else "none"
            tally.violate(
                one.offset,
                f"{one.topic}/{name}: segment {one.segment.descriptor} partition {bucket} is "
                f"called drained, but committed {told} of {end}",
            )
