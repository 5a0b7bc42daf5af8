"""What a layout says of its segments: which take nothing more, and which are about to."""

from __future__ import annotations

import pytest

from anabranch.client import Segment
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.errors import UncoveredHashError
from support.still_watch import layout_of

_PLAIN = SegmentLayout.initial(2, 8)
_CHILDREN = _PLAIN.split_children(0)


_SEALING = layout_of(
    _PLAIN,
    children=tuple(Segment(part, f"t{part.segment_id}") for part in _CHILDREN),
    parents_under_way=frozenset({0}),
    sealing=True,
)


def test_a_segment_is_leaving_before_it_is_sealed_and_a_child_under_way_is_neither() -> None:
    told_of = [(_SEALING.is_leaving(each), _SEALING.is_sealed(each)) for each in (0, 1, 2, 9)]
    # The last one was and is not any more.
    assert told_of == [(True, False), (False, False), (False, False), (True, True)]


def test_a_key_that_no_segment_covers_is_placed_nowhere() -> None:
    """Rather an error than a message that nobody finds under its key again."""
    half = layout_of(SegmentLayout(1, 2, [_PLAIN.segments[1]]))
    assert half.active_at(0x8000).segment_id == 1
    with pytest.raises(UncoveredHashError, match="7fff: the active ones are 8000-ffff-1"):
        half.active_at(0x7FFF)


def test_a_committed_layout_says_that_all_buckets_of_the_parents_refuse() -> None:
    committed = layout_of(_PLAIN.replaced((0,), _CHILDREN, {0: (1, 1, 1, 1)}, 0))
    assert [committed.is_sealed(each) for each in (0, 1, 2, 3)] == [True, False, False, False]
    assert committed.as_deleted().is_sealed(1)
