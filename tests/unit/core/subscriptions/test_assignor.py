"""Who shall have which buckets."""

from __future__ import annotations

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.subscription import Subscription, SubscriptionKind
from anabranch.core.subscriptions.assignor import (
    Shares,
    taken_over,
    target,
)
from anabranch.core.subscriptions.draining import (
    assignable,
    drainable,
)

STREAM, QUEUE = SubscriptionKind.STREAM, SubscriptionKind.QUEUE
CHECKPOINT = SubscriptionKind.CHECKPOINT


def subscribed(
    *names: str, drained: tuple[int, ...] = (), kind: SubscriptionKind = STREAM
) -> Subscription:
    instances = tuple(range(1, len(names) + 1))
    return Subscription(1, kind, 0, tuple(sorted(names)), instances, drained, 0, 0, "p")


def test_segments_go_round_robin_by_range_to_consumers_by_name() -> None:
    shares = target(SegmentLayout.initial(5, bucket_budget=5), subscribed("c-2", "c-10"))
    assert list(shares["c-10"]) == [0, 2, 4], "names are compared as strings"
    assert list(shares["c-2"]) == [1, 3]


def test_surplus_consumers_share_the_buckets_of_segments_in_runs() -> None:
    shares = target(SegmentLayout.initial(3, bucket_budget=6), subscribed("a", "b", "c", "d"))
    assert shares == {"a": {0: (0,)}, "b": {0: (1,)}, "c": {1: (0, 1)}, "d": {2: (0, 1)}}


def test_consumers_beyond_all_buckets_stay_idle() -> None:
    shares = target(SegmentLayout.initial(2, bucket_budget=2), subscribed("a", "b", "c"))
    assert shares == {"a": {0: (0,)}, "b": {1: (0,)}, "c": {}}


def test_a_checkpoint_group_shares_what_a_stream_does() -> None:
    layout = SegmentLayout.initial(1, bucket_budget=4).split_segment(0).split_segment(1)
    for names in (("a",), ("a", "b"), ("a", "b", "c", "d", "e")):
        stream, group = subscribed(*names), subscribed(*names, kind=CHECKPOINT)
        assert target(layout, group, drainable(layout, group)) == target(
            layout, stream, drainable(layout, stream)
        )
        assert drainable(layout, group) == {0}


def test_a_grandchild_waits_for_all_its_ancestors() -> None:
    layout = SegmentLayout.initial(1).split_segment(0).split_segment(1)
    assert [part.segment_id for part in assignable(layout, (1,))] == [0], "0 is not drained"
    assert [part.segment_id for part in assignable(layout, (0,))] == [1, 2]
    assert [part.segment_id for part in assignable(layout, (0, 1))] == [3, 4, 2]


def test_a_merged_segment_waits_for_both_parents() -> None:
    layout = SegmentLayout.initial(2).merge_segments(0, 1)
    assert [part.segment_id for part in assignable(layout, (0,))] == [1]
    assert [part.segment_id for part in assignable(layout, (0, 1))] == [2]


def test_a_pruned_parent_counts_as_drained() -> None:
    layout = SegmentLayout.initial(1).split_segment(0).prune_segment(0)
    assert [part.segment_id for part in assignable(layout, ())] == [1, 2]


# --- a backlog that several drain ----------------------------------------------------------------


def test_a_draining_segment_is_dealt_out_by_buckets_whatever_else_its_readers_have() -> None:
    layout = SegmentLayout.initial(3, bucket_budget=12).split_segment(1)
    waiting = subscribed("a", "b")
    assert drainable(layout, waiting) == {1}
    full = (0, 1, 2, 3)
    assert target(layout, waiting) == {"a": {0: full, 2: full}, "b": {1: full}}
    shares = target(layout, waiting, drainable(layout, waiting))
    assert shares == {"a": {0: full, 2: full, 1: (2, 3)}, "b": {1: (0, 1)}}, "nothing else moves"


def test_as_many_drain_a_segment_as_it_has_buckets() -> None:
    layout = SegmentLayout.initial(2, bucket_budget=4).split_segment(0).split_segment(1)
    waiting = subscribed("a", "b", "c", "d")
    shares = target(layout, waiting, drainable(layout, waiting))
    assert shares == {"a": {0: (0,)}, "b": {0: (1,)}, "c": {1: (0,)}, "d": {1: (1,)}}
    alone = target(layout, subscribed("a"), drainable(layout, waiting))
    assert alone == {"a": {0: (0, 1), 1: (0, 1)}}


def test_what_has_one_bucket_or_waits_or_is_a_queues_is_not_drained_by_several() -> None:
    layout = SegmentLayout.initial(1, bucket_budget=4).split_segment(0).split_segment(1)
    assert drainable(layout, subscribed("a", "b")) == {0}, "segment 1 waits for segment 0"
    assert drainable(layout, subscribed("a", "b", kind=QUEUE)) == frozenset()
    narrow = SegmentLayout.initial(1, bucket_budget=1).split_segment(0)
    assert drainable(narrow, subscribed("a", "b")) == frozenset()
    assert drainable(layout, subscribed("a", drained=(0,))) == {1}


# --- consumers that are away ---------------------------------------------------------------------


def test_what_an_absent_one_does_not_keep_goes_bucket_by_bucket_to_who_has_fewest() -> None:
    layout = SegmentLayout.initial(1, bucket_budget=32)
    everybody = subscribed("a", "b", "c")
    a, b, c = (target(layout, everybody)[name][0] for name in "abc")
    assert (len(a), len(b), c[0]) == (10, 11, 21)
    assert target(layout, everybody, absent={"c": {(0, each) for each in c[3:]}}) == {
        "a": {0: (*a, 21, 22)},
        "b": {0: (*b, 23)},
        "c": {0: c[3:]},
    }


def test_what_several_absent_ones_do_not_keep_is_all_dealt_to_who_is_there() -> None:
    layout = SegmentLayout.initial(3, bucket_budget=6)
    away = {"b": {(1, 0)}, "c": {(2, 1)}}
    assert target(layout, subscribed("a", "b", "c"), absent=away) == {
        "a": {0: (0, 1), 1: (1,), 2: (0,)},
        "b": {1: (0,)},
        "c": {2: (1,)},
    }


def test_what_nobody_keeps_waits_while_nobody_is_there() -> None:
    layout = SegmentLayout.initial(1, bucket_budget=2)
    assert target(layout, subscribed("a"), absent={"a": {(0, 1)}}) == {"a": {0: (1,)}}


def test_what_one_takes_over_the_others_lose() -> None:
    shares: dict[str, Shares] = {"a": {0: (0, 1)}, "b": {1: (0,)}}
    assert taken_over(shares, "b", {(0, 1)}) == {"a": {0: (0,)}, "b": {0: (1,), 1: (0,)}}
