"""Who shall have which buckets: what is late, what is urgent, and what is not there."""

from __future__ import annotations

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.subscriptions.handover import BucketsInUse, Instance
from anabranch.core.subscriptions.target_assignment import ParallelDrain, TargetAssignment
from anabranch.core.subscriptions.timing import Timing
from support.desk import EMPTY

TIMING = Timing(grace_s=60, session_timeout_s=10)
ONE = SegmentLayout.initial(1, bucket_budget=2)


def since(opened_at: float) -> Instance:
    known = Instance(1, opened_at, known=True)
    known.opened_at = opened_at
    return known


def test_only_another_set_of_segments_to_drain_at_once_is_another_target() -> None:
    drain = ParallelDrain(10.0)
    drain.changed(ONE, EMPTY, 0.0)
    assert not drain.look(0.0)
    drain.changed(SegmentLayout.initial(1, bucket_budget=4).split_segment(0), EMPTY, 0.0)
    assert not drain.look(9.0)
    assert drain.look(10.0)
    assert drain.draining == {0}
    assert not drain.look(11.0)


def test_what_is_urgent_goes_to_who_has_been_there_for_longest_if_anybody_is() -> None:
    deal = TargetAssignment(TIMING)
    deal.changed(ONE, EMPTY.with_consumer("a", 1).with_consumer("b", 2))
    assert deal.wanted() == {"a": {0: (0,)}, "b": {0: (1,)}}
    deal.unserved.look([(0, 0)], set(), 0.0)
    assert deal.look(TIMING.urgent_s + 1)
    deal.hurry({}, BucketsInUse([]))
    assert deal.wanted() == {"a": {0: (0,)}, "b": {0: (1,)}}
    deal.hurry({"a": since(5.0), "b": since(3.0)}, BucketsInUse([]))
    assert deal.wanted() == {"a": {}, "b": {0: (0, 1)}}


def test_a_bucket_exists_if_its_segment_has_so_many() -> None:
    deal = TargetAssignment(TIMING)
    assert deal.existing([(0, 0)]) == set()
    deal.changed(ONE, EMPTY)
    assert deal.existing([(0, -1), (0, 0), (0, 1), (0, 2), (1, 0)]) == {(0, 0), (0, 1)}
