"""What a controller knows of one process, and of buckets that nobody serves."""

from __future__ import annotations

from anabranch.core.subscriptions.handover import Instance
from anabranch.core.subscriptions.target_assignment import UnservedBuckets
from anabranch.core.subscriptions.timing import Timing

TIMING = Timing(grace_s=60, session_timeout_s=10)


def test_a_process_confirms_what_it_was_granted_and_still_has() -> None:
    known = Instance(1, 0.0, known=True)
    known.fresh = {(0, 0), (0, 1)}
    known.sent = (1, ((0, (0, 5)),))  # bucket 1 was taken back meanwhile; 5 it had before
    assert known.confirmed() == {(0, 0)}
    assert known.confirmed() == set()


def test_a_process_that_is_connected_has_not_ended_whatever_it_serves() -> None:
    known = Instance(1, 0.0, known=True)
    known.connection = 11
    assert not known.has_ended(5.0)
    known.connection = None
    assert known.has_ended(5.0)
    assert not known.has_ended(0.0), "it may be about to come"


def test_what_is_served_is_urgent_no_more_and_the_rest_is() -> None:
    unserved = UnservedBuckets(TIMING)
    unserved.look([(0, 0), (0, 1), (0, 2)], {(0, 2)}, 0.0)
    assert not unserved.hurries(TIMING.urgent_s - 1)
    assert unserved.hurries(TIMING.urgent_s + 1)
    assert unserved.urgent == {(0, 0), (0, 1)}
    unserved.served([(0, 0), (0, 2)])
    assert unserved.urgent == {(0, 1)}
    assert not unserved.hurries(TIMING.urgent_s + 1)
