"""Which segments a subscription is through with."""

from __future__ import annotations

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.subscriptions.draining import drained_segments

ONCE = SegmentLayout.initial(1, bucket_budget=2).split_segment(0)  # 1 and 2 in place of 0
TWICE = ONCE.split_segment(1)  # 3 and 4 in place of 1


def whole(*segment_ids: int) -> set[tuple[int, int]]:
    return {(each, bucket) for each in segment_ids for bucket in range(2)}


def test_a_segment_that_takes_messages_is_never_drained() -> None:
    assert drained_segments(ONCE, set(), whole(0, 1, 2)) == (0,)


def test_what_is_logged_is_not_told_again_and_holds_up_nothing_after_it() -> None:
    assert drained_segments(TWICE, {0}, whole(0, 1)) == (1,)
    assert drained_segments(TWICE, {0, 1}, whole(0, 1)) == ()


def test_a_child_is_drained_only_after_its_parent_logged_before_or_told_with_it() -> None:
    assert drained_segments(TWICE, set(), whole(1)) == ()
    assert drained_segments(TWICE, set(), whole(0, 1)) == (0, 1)
    assert drained_segments(TWICE, {0}, whole(1)) == (1,)
