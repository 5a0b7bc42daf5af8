"""`Merges`: which merges are above each segment of a DAG, so that each counts once.

To work them out for a whole DAG takes longer than all else that a decision about it does, so what
is known of a layout is handed on to the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from anabranch.core.segments import SegmentInfo


class Merges(msgspec.Struct, frozen=True):
    """`masks`: by segment, the merges above it and itself, as a set of bits; none: 0. `next_bit`:
    the one of the next merge.
    """

    masks: Mapping[int, int] = {}
    next_bit: int = 1

    def depth(self, segment_id: int) -> int:
        """How many merges are above that segment or are it."""
        return self.masks.get(segment_id, 0).bit_count()

    def with_segments(self, parts: Iterable[SegmentInfo]) -> Merges:
        """Of the same DAG and these new segments, given in the order of their ids: so parents,
        which have lower ones, come before their children.
        """
        masks = dict(self.masks)
        bit = self.next_bit
        for part in parts:
            parents = part.parent_ids
            if len(parents) > 1:
                above = bit
                for parent in parents:
                    above |= masks.get(parent, 0)
                masks[part.segment_id] = above
                bit <<= 1
            elif parents and parents[0] in masks:
                masks[part.segment_id] = masks[parents[0]]
        return Merges(masks, bit)
