"""`SegmentLayout`: the DAG of a scalable topic's segments at one epoch (PIP-468).

Immutable: every operation returns another layout. An operation here is the whole of it at once. The
log takes it in steps (`topic`), and the last step makes the layout of this module.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final, Self

import msgspec
from msgspec.structs import replace

from anabranch.core.entities.segment import (
    BUCKETS_MAX,
    RING16_END,
    SEGMENTS_MAX,
    SegmentInfo,
    SegmentState,
    descent,
    new_segment,
    parents_of,
)
from anabranch.core.errors import InvalidInputError, UncoveredHashError, UnknownSegmentError
from anabranch.core.hashing import RING16

_ACTIVE: Final = SegmentState.ACTIVE


def initial_segments(
    count: int, bucket_budget: int = 4, buckets_max: int = BUCKETS_MAX
) -> tuple[SegmentInfo, ...]:
    """`count` segments that tile the ring, with ids from 0 on; sizes differ by one at most.

    The budget of entry buckets is divided among them, each having at least one and at most
    `buckets_max` (PIP-486). Raises InvalidInputError.
    """
    if not 1 <= count <= SEGMENTS_MAX:
        raise InvalidInputError(
            f"numInitialSegments must be >= 1 and <= {SEGMENTS_MAX}, got {count}"
        )
    buckets = _shared_out(bucket_budget, count, buckets_max)
    ranges = enumerate(_equal_ranges(count))
    return tuple(new_segment(number, start, end, buckets) for number, (start, end) in ranges)


def _equal_ranges(count: int) -> list[tuple[int, int]]:
    edges = [index * RING16 // count for index in range(count + 1)]
    return [(start, edge - 1) for start, edge in pairwise(edges)]


def _shared_out(buckets: int, count: int, most: int) -> int:
    return min(most, max(1, buckets // count))


class Merges(msgspec.Struct, frozen=True):
    """The merges above each segment of a DAG, so that each counts once.

    Computing them for a whole DAG takes longer than the rest of a decision about it. So a layout
    hands its known merges on to the next one.

    `masks`: the merges above each segment and itself, as a set of bits; none: 0. `next_bit`: the
    one of the next merge.
    """

    masks: Mapping[int, int] = {}
    next_bit: int = 1

    def depth(self, segment_id: int) -> int:
        """Returns how many merges are above that segment or are it."""
        return self.masks.get(segment_id, 0).bit_count()

    def with_segments(self, parts: Iterable[SegmentInfo]) -> Merges:
        """The merges of the same DAG with these new segments. The segments come in the order of
        their ids, so parents, which have lower ones, come before their children.
        """
        masks = dict(self.masks)
        bit = self.next_bit
        for part in parts:
            parents = part.parent_ids
            if len(parents) > 1 or (part.is_legacy and part.buckets > 1):  # PIP-475 counts so
                above = bit
                for parent in parents:
                    above |= masks.get(parent, 0)
                masks[part.segment_id] = above
                bit <<= 1
            elif parents and parents[0] in masks:
                masks[part.segment_id] = masks[parents[0]]
        return Merges(masks, bit)


class SegmentLayout:
    """One version of the DAG. `segments` holds all of them, active and sealed, by id."""

    def __init__(
        self,
        epoch: int,
        next_segment_id: int,
        segments: Iterable[SegmentInfo],
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.epoch = epoch
        self.next_segment_id = next_segment_id
        self.segments: Mapping[int, SegmentInfo] = {part.segment_id: part for part in segments}
        self.properties = dict(properties or {})

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SegmentLayout)
            and (self.epoch, self.next_segment_id) == (other.epoch, other.next_segment_id)
            and self.segments == other.segments
            and self.properties == other.properties
        )

    @classmethod
    def initial(cls, count: int, bucket_budget: int = 4, buckets_max: int = BUCKETS_MAX) -> Self:
        """A new topic's layout, at epoch 0. Raises InvalidInputError."""
        return cls(0, count, initial_segments(count, bucket_budget, buckets_max))

    # --- queries ------------------------------------------------------------------------

    @cached_property
    def active(self) -> tuple[SegmentInfo, ...]:
        """The segments that take messages, in ring order: they tile the ring."""
        found = [part for part in self.segments.values() if part.state is _ACTIVE]
        return tuple(sorted(found, key=attrgetter("start")))

    @cached_property
    def _starts(self) -> list[int]:
        return [part.start for part in self.active]

    def segment(self, segment_id: int) -> SegmentInfo:
        """Raises UnknownSegmentError."""
        found = self.segments.get(segment_id)
        if found is None:
            raise UnknownSegmentError(f"Segment not found: {segment_id}")
        return found

    def find_active_segment(self, hash16: int) -> SegmentInfo:
        """The active segment that holds a position of the 16-bit ring. Raises UncoveredHashError,
        also where the layout has a gap, as none has that the log has taken.
        """
        place = bisect_right(self._starts, hash16) - 1
        if place < 0 or hash16 > self.active[place].end:
            raise uncovered(hash16, self.active)
        return self.active[place]

    def ancestors(self, segment_id: int) -> frozenset[int]:
        """Returns the ids of all segments of the DAG that it descends from, itself excluded."""
        return _reached(self.segments, segment_id, attrgetter("parent_ids"))

    def lineage(self, segment_id: int) -> tuple[SegmentInfo, ...]:
        """The segment with its ancestors and its descendants.

        They are in the order of their ids, so that parents come before their children. Raises
        UnknownSegmentError.
        """
        self.segment(segment_id)
        return tuple(self.segments[each] for each in lineage_of(self.segments, segment_id))

    def merge_depth(self, segment_id: int) -> int:
        """Counts the segments of its lineage, itself included, that were merged of several.

        Those that are no longer in the DAG do not count (PIP-483, "Max DAG depth on merges").
        """
        return self._merges.depth(segment_id)

    @cached_property
    def _merges(self) -> Merges:
        return Merges().with_segments(map(self.segments.__getitem__, sorted(self.segments)))

    def following(self, before: SegmentLayout) -> Self:
        """Returns this layout with the results of an earlier one of the same topic."""
        known = vars(before).get("_merges")
        ids, earlier = list(self.segments), list(before.segments)
        if known is not None and ids[: len(earlier)] == earlier:  # so nothing was pruned
            new = sorted(ids[len(earlier) :])
            self._merges = known.with_segments(map(self.segments.__getitem__, new))
        return self

    # --- operations ---------------------------------------------------------------------

    def split_children(self, segment_id: int) -> tuple[SegmentInfo, ...]:
        """The two halves, `[start, mid]` and `[mid + 1, end]`, that a split would make.

        Each gets half the buckets, at least one. Raises UnknownSegmentError, InvalidInputError.
        """
        part = self.segment(segment_id)
        if not part.is_active:
            raise InvalidInputError(f"Cannot split non-active segment: {segment_id}")
        if part.size == 1:
            raise InvalidInputError(
                f"Cannot split range of size 1: segment {segment_id} holds the single hash "
                f"{part.start:04x}; its keys can be spread over buckets only (rebucket)"
            )
        middle = (part.start + part.end) // 2
        buckets = max(1, part.buckets // 2)
        first = self.next_segment_id
        return (
            new_segment(first, part.start, middle, buckets, (segment_id,)),
            new_segment(first + 1, middle + 1, part.end, buckets, (segment_id,)),
        )

    def merge_children(
        self, first_id: int, second_id: int, buckets_max: int = BUCKETS_MAX
    ) -> tuple[SegmentInfo, ...]:
        """The one segment that a merge of two neighbours would make.

        It gets the buckets of both, at most `buckets_max`, and names its parents in the order in
        which they are given. Raises UnknownSegmentError, InvalidInputError.
        """
        first, second = self.segment(first_id), self.segment(second_id)
        if not (first.is_active and second.is_active):
            raise InvalidInputError(
                f"Both segments must be active: {first_id} is {first.state.name}, {second_id} is "
                f"{second.state.name}"
            )
        if not first.is_adjacent(second):
            raise InvalidInputError(
                f"Segments are not adjacent: [{first.start:04x}, {first.end:04x}] and "
                f"[{second.start:04x}, {second.end:04x}]"
            )
        low, high = sorted((first, second), key=lambda part: part.start)
        buckets = min(buckets_max, low.buckets + high.buckets)
        parents = (first_id, second_id)
        return (new_segment(self.next_segment_id, low.start, high.end, buckets, parents),)

    def rebucket_children(
        self, segment_id: int, buckets: int, buckets_max: int = BUCKETS_MAX
    ) -> tuple[SegmentInfo, ...]:
        """The successor of the same range with another number of buckets (PIP-486, "Rollover").

        Raises UnknownSegmentError, InvalidInputError.
        """
        if not 1 <= buckets <= buckets_max:
            raise InvalidInputError(f"bucketCount must be in [1, {buckets_max}]: {buckets}")
        part = self.segment(segment_id)
        if not part.is_active:
            raise InvalidInputError(f"Cannot rebucket non-active segment: {segment_id}")
        if part.buckets == buckets:
            raise InvalidInputError(
                f"Segment {segment_id} already has the requested entry-bucket splits"
            )
        return (new_segment(self.next_segment_id, part.start, part.end, buckets, (segment_id,)),)

    def restore_children(self, segment_id: int) -> tuple[SegmentInfo, ...]:
        """The successor of the same range and buckets, in place of a segment that Kafka has lost.

        Raises UnknownSegmentError, InvalidInputError.
        """
        part = self.segment(segment_id)
        if not part.is_active:
            raise InvalidInputError(f"Cannot restore non-active segment: {segment_id}")
        child = new_segment(self.next_segment_id, part.start, part.end, part.buckets, (segment_id,))
        return (child,)

    def prepare_children(
        self, count: int, buckets: int | None = None, buckets_max: int = BUCKETS_MAX
    ) -> tuple[SegmentInfo, ...]:
        """The new segments with which `count` segments of equal size would be active.

        An active segment of a wanted range stays, unless others have made it; one with another
        number of buckets only if none is asked for. New ones share out the buckets of those that
        they replace, unless `buckets` is given. Each descends from all whose hashes it takes.
        Raises InvalidInputError.
        """
        if not 1 <= count <= SEGMENTS_MAX:
            raise InvalidInputError(f"segmentCount must be in [1, {SEGMENTS_MAX}]: {count}")
        if buckets is not None and not 1 <= buckets <= buckets_max:
            raise InvalidInputError(f"bucketCount must be in [1, {buckets_max}]: {buckets}")
        wanted = _equal_ranges(count)
        there = {
            part.range
            for part in self.active
            if buckets in (None, part.buckets) and not part.is_legacy
        }
        staying = there.intersection(wanted)
        parents = [part for part in self.active if part.range not in staying]
        new = [each for each in wanted if each not in staying]
        if not new:
            return ()
        each = buckets or _shared_out(sum(part.buckets for part in parents), len(new), buckets_max)
        lines = zip(new, descent(parents, new), strict=True)
        return tuple(
            new_segment(number, start, end, each, ids)
            for number, ((start, end), ids) in enumerate(lines, self.next_segment_id)
        )

    def split_segment(self, segment_id: int, now_ms: int = 0) -> Self:
        """The layout after a split at the midpoint."""
        return self.replaced((segment_id,), self.split_children(segment_id), {}, now_ms)

    def merge_segments(self, first_id: int, second_id: int, now_ms: int = 0) -> Self:
        """The layout after a merge of two neighbours."""
        children = self.merge_children(first_id, second_id)
        return self.replaced(children[0].parent_ids, children, {}, now_ms)

    def rebucket_segment(self, segment_id: int, buckets: int, now_ms: int = 0) -> Self:
        """The layout after a rollover to another number of buckets."""
        return self.replaced((segment_id,), self.rebucket_children(segment_id, buckets), {}, now_ms)

    def prepare_segments(self, count: int, buckets: int | None = None, now_ms: int = 0) -> Self:
        """The layout after `prepare_children` took over; this one if there is nothing to do."""
        children = self.prepare_children(count, buckets)
        return self.replaced(parents_of(children), children, {}, now_ms) if children else self

    def replaced(
        self,
        parents: Sequence[int],
        children: Sequence[SegmentInfo],
        end_offsets: Mapping[int, tuple[int, ...]],
        now_ms: int,
        epoch: int | None = None,
    ) -> Self:
        """The layout in which `children` have taken the place of `parents`, which are sealed."""
        epoch = self.epoch + 1 if epoch is None else epoch
        segments = dict(self.segments)
        below: dict[int, list[int]] = {each: [] for each in parents}
        for child in children:
            for each in child.parent_ids:
                below[each].append(child.segment_id)
        for parent_id in parents:
            segments[parent_id] = replace(
                segments[parent_id],
                state=SegmentState.SEALED,
                child_ids=tuple(below[parent_id]),
                sealed_at_epoch=epoch,
                sealed_at_ms=now_ms,
                end_offsets=end_offsets.get(parent_id, ()),
            )
        for child in children:
            segments[child.segment_id] = entered(child, epoch, now_ms)
        next_id = max(self.next_segment_id, *(child.segment_id + 1 for child in children))
        return type(self)(epoch, next_id, segments.values(), self.properties).following(self)

    def prune_segment(self, segment_id: int) -> Self:
        """The layout without a sealed segment; its children lose the parent.

        Raises UnknownSegmentError, InvalidInputError.
        """
        part = self.segment(segment_id)
        if part.is_active:
            raise InvalidInputError(f"Cannot prune active segment: {segment_id}")
        return type(self)(
            self.epoch + 1,
            self.next_segment_id,
            without(self.segments, (segment_id,)),
            self.properties,
        )

    # --- the persisted form -------------------------------------------------------------

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Self:
        """Reads the JSON of PIP-468, with or without what nodes add. Raises InvalidInputError."""
        try:
            segments = [_from_json(part) for part in metadata["segments"].values()]
            return cls(
                int(metadata["epoch"]),
                int(metadata["nextSegmentId"]),
                sorted(segments, key=lambda part: part.segment_id),
                metadata.get("properties") or {},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInputError(f"not the metadata of a scalable topic: {error!r}") from None


def lineage_of(segments: Mapping[int, SegmentInfo], segment_id: int) -> list[int]:
    """The ids of a segment's ancestors, of itself and of its descendants, ascending."""
    up = _reached(segments, segment_id, attrgetter("parent_ids"))
    down = _reached(segments, segment_id, attrgetter("child_ids"))
    return sorted(up | down | {segment_id})


def _reached(
    segments: Mapping[int, SegmentInfo],
    segment_id: int,
    links: Callable[[SegmentInfo], Iterable[int]],
) -> frozenset[int]:
    """All that there are of the segments that its links lead to, and theirs, and so on."""
    found: set[int] = set()
    waiting = [segment_id]
    while waiting:
        part = segments.get(waiting.pop())
        for each in links(part) if part is not None else ():
            if each not in found and each in segments:
                found.add(each)
                waiting.append(each)
    return frozenset(found)


def uncovered(hash16: int | None, active: Iterable[SegmentInfo]) -> UncoveredHashError:
    """Makes the error for a position of the ring that none of these segments covers.

    None: the position of a message without a key, which any segment would cover.
    """
    if hash16 is None:
        return UncoveredHashError("No segment takes a message without a key: none is active")
    if not 0 <= hash16 <= RING16_END:
        return UncoveredHashError(f"No segment covers hash {hash16}: give 0 to {RING16_END}")
    there = ", ".join(part.descriptor for part in active) or "none"
    return UncoveredHashError(f"No segment covers hash {hash16:04x}: the active ones are {there}")


def entered(part: SegmentInfo, epoch: int, now_ms: int) -> SegmentInfo:
    """A new segment with the epoch and time at which it became active."""
    return replace(
        part, created_at_epoch=epoch, sealed_at_epoch=0, created_at_ms=now_ms, sealed_at_ms=0
    )


def without(segments: Mapping[int, SegmentInfo], gone: Sequence[int]) -> list[SegmentInfo]:
    """The segments that are left, none naming one that is gone as parent or child."""
    left = []
    for part in segments.values():
        if part.segment_id in gone:
            continue
        parents = tuple(each for each in part.parent_ids if each not in gone)
        children = tuple(each for each in part.child_ids if each not in gone)
        if parents != part.parent_ids or children != part.child_ids:
            part = replace(part, parent_ids=parents, child_ids=children)
        left.append(part)
    return left


def _from_json(form: Mapping[str, Any]) -> SegmentInfo:
    return SegmentInfo(
        int(form["segmentId"]),
        int(form["hashRange"]["start"]),
        int(form["hashRange"]["end"]),
        SegmentState[form["state"]],
        tuple(int(each) for each in form["parentIds"]),
        tuple(int(each) for each in form["childIds"]),
        int(form["createdAtEpoch"]),
        int(form["sealedAtEpoch"]),
        int(form.get("createdAtMs", 0)),
        int(form.get("sealedAtMs", 0)),
        len(form.get("entryBucketSplits", ())) + 1,
        tuple(int(each) for each in form.get("endOffsets", ())),
    )
