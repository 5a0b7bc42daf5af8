"""What a layout says of its segments: which take nothing more, and which are about to."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from anabranch.client import Segment, TopicLayout
from anabranch.core.errors import UncoveredHashError
from anabranch.core.topics.layout import SegmentLayout

_PLAIN = SegmentLayout.initial(2, 8)
_CHILDREN = _PLAIN.split_children(0)


def told(layout: SegmentLayout, **fields: object) -> TopicLayout:
    parts = {each: Segment(part, f"t{each}") for each, part in layout.segments.items()}
    plain = TopicLayout("public/default/orders", incarnation=1, epoch=1, segments=parts)
    return replace(plain, **fields)


_SEALING = told(
    _PLAIN,
    children=tuple(Segment(part, f"t{part.segment_id}") for part in _CHILDREN),
    parents_under_way=frozenset({0}),
    sealing=True,
)


def test_a_segment_that_is_to_be_sealed_is_not_sealed() -> None:
    assert (_SEALING.is_leaving(0), _SEALING.is_sealed(0)) == (True, False)
    assert (_SEALING.is_leaving(1), _SEALING.is_sealed(1)) == (False, False)


def test_a_key_that_no_segment_covers_is_placed_nowhere() -> None:
    """Rather an error than a message that nobody finds under its key again."""
    half = told(SegmentLayout(1, 2, [_PLAIN.segments[1]]))
    assert half.active_at(0x8000).segment_id == 1
    with pytest.raises(UncoveredHashError, match="7fff: the active ones are 8000-ffff-1"):
        half.active_at(0x7FFF)


def test_a_child_under_way_is_neither_sealed_nor_leaving() -> None:
    """It is not in the layout yet; what was and is not any more is sealed."""
    assert (_SEALING.is_leaving(2), _SEALING.is_sealed(2)) == (False, False)
    assert (_SEALING.is_leaving(9), _SEALING.is_sealed(9)) == (True, True)


def test_a_committed_layout_says_that_all_buckets_of_the_parents_refuse() -> None:
    committed = told(_PLAIN.replaced((0,), _CHILDREN, {0: (1, 1, 1, 1)}, 0))
    assert [committed.is_sealed(each) for each in (0, 1, 2, 3)] == [True, False, False, False]
    assert committed.as_deleted().is_sealed(1)
