"""What a checkpoint consumer names, and what it says of what is lost, by the buckets it has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from anabranch import client as sdk
from anabranch.client._consumer.assignment import AssignedSegment, Assignment
from anabranch.core.entities.layout import SegmentLayout
from anabranch.wire import anabranch_pb2 as pb
from support.still_watch import layout_of, lone_member
from support.there import there

_SETTLE_S = 30.0
_SESSION_S = 1_000.0
_INCARNATION = 7


class Scene:
    """A consumer whose controller, clock and messages are the test's."""

    def __init__(
        self, checkpoint: sdk.Checkpoint | None = None, position_of: sdk.PositionOf | None = None
    ) -> None:
        self.now = 0.0
        settings = sdk.ConsumerSettings(settle_timeout_s=_SETTLE_S)
        self.consumer = sdk.CheckpointConsumer(
            lone_member("lake"), settings, checkpoint, position_of
        )
        self.consumer._now = lambda: self.now
        self.core = self.consumer._core
        self.pruned: dict[int, tuple[int, ...]] = {}
        self._sequence = 0

    def subscribe(self, *buckets: int, incarnation: int = _INCARNATION) -> None:
        order = self.core.begin_subscribe(self.now)
        self.core.on_subscribed(order.number, self._assignment(buckets, (), incarnation), self.now)

    def assign(self, *buckets: int, ends: tuple[int, ...] = ()) -> None:
        self.core.on_assignment(self._assignment(buckets, ends, _INCARNATION), self.now)

    def receive(self, bucket: int, end: int, begin: int = 0) -> None:
        (holding,) = (h for h in self.core.holdings.values() if h.place.bucket == bucket)
        self.core.on_position(there(holding.fetch).number, begin)
        holding.deliver(end)

    def report(self) -> None:
        self.core.tick(self.now)
        self.core.on_reported(there(self.core.begin_report(self.now)).number, self.now)

    def save(self, checkpoint: sdk.Checkpoint | None = None) -> bool:
        """Whether all of it is kept, by default of where the consumer is."""
        try:
            self.consumer.saved(checkpoint or self.consumer.checkpoint())
        except sdk.BucketLostError:
            return False
        return True

    @property
    def named(self) -> dict[int, int]:
        return self.consumer.checkpoint().positions.get(0, {})

    def _assignment(
        self, buckets: tuple[int, ...], ends: tuple[int, ...], incarnation: int
    ) -> Assignment:
        self._sequence += 1
        segments = (AssignedSegment(0, "k", buckets, ends),) if buckets else ()
        return Assignment(
            self._sequence, incarnation, 1, "g", _SESSION_S, segments, pruned=self.pruned
        )


async def elsewhere(_segment_id: int, _bucket: int) -> int | None:
    return None


def both_at_five(scene: Scene) -> None:
    scene.subscribe(0, 1)
    for bucket in (0, 1):
        scene.receive(bucket, 5)
    assert scene.save()
    assert scene.named == {0: 5, 1: 5}


async def test_what_was_not_saved_in_time_is_told_once_and_its_bucket_is_named_no_more() -> None:
    scene = Scene()
    both_at_five(scene)
    for bucket in (0, 1):
        scene.receive(bucket, 10)
    scene.assign(0)
    assert scene.named == {0: 10, 1: 10}, "it is not another consumer's before it is released"
    scene.now += _SETTLE_S + 1
    scene.report()
    assert scene.named == {0: 10}
    assert not scene.save(), "5 to 10 are delivered again"
    assert scene.save()
    assert scene.named == {0: 10}


async def test_a_bucket_that_went_with_all_of_it_saved_is_named_no_more() -> None:
    scene = Scene()
    both_at_five(scene)
    both = scene.consumer.checkpoint()
    scene.assign(0)
    scene.consumer._marks.clear()
    assert scene.save(both)
    assert list(scene.consumer._marks) == [("k", 0)], "the other's may be told by another by now"
    scene.report()
    assert scene.named == {0: 5}, "another consumer stores the position of the other one"
    assert scene.save()


async def test_what_a_lapse_lost_is_told_once_also_when_the_bucket_comes_back_before() -> None:
    scene = Scene(position_of=elsewhere)
    both_at_five(scene)
    scene.receive(0, 8)
    old = scene.consumer.checkpoint()
    scene.now += _SESSION_S + 1
    scene.core.tick(scene.now)
    assert scene.named == {}
    scene.subscribe(0)
    assert scene.named == {}, "where to begin is asked for"
    scene.receive(0, 9, begin=5)
    assert scene.named == {0: 9}
    assert not scene.save(old)
    assert scene.save()


async def test_a_bucket_that_was_read_to_its_sealed_end_stays_named() -> None:
    scene = Scene()
    both_at_five(scene)
    scene.assign(0, 1, ends=(5, 6))
    scene.receive(1, 6)
    assert scene.save()
    scene.report()
    scene.assign()
    scene.report()
    assert (scene.core.holdings, scene.named) == ({}, {0: 5, 1: 6})
    assert scene.save()


async def test_a_bucket_that_began_at_its_sealed_end_is_saved_once_it_is_over_too() -> None:
    scene = Scene(position_of=elsewhere)
    scene.subscribe()
    scene.assign(0, ends=(5,))
    scene.receive(0, 5, begin=5)
    named = scene.consumer.checkpoint()
    assert named.positions == {0: {0: 5}}
    scene.report()
    scene.assign()
    scene.report()
    assert scene.core.holdings == {}
    assert [scene.save(named) for _ in range(2)] == [True, True]
    assert scene.save()


async def test_a_bucket_that_went_before_anything_came_of_it_has_lost_nothing() -> None:
    scene = Scene(position_of=elsewhere)
    scene.subscribe(0)
    scene.receive(0, 5, begin=5)
    named = scene.consumer.checkpoint()
    scene.assign()
    scene.report()
    assert scene.save(named)


async def test_a_checkpoint_stands_for_buckets_to_come_unless_others_store_theirs() -> None:
    given = sdk.Checkpoint(_INCARNATION, {0: {0: 3, 1: 4}})
    for position_of, known in ((None, {0: 3, 1: 4}), (elsewhere, {})):
        scene = Scene(given, position_of)
        scene.subscribe(0)
        assert scene.named == known
        scene.receive(0, 6, begin=3)
        assert scene.named == {**known, 0: 6}


async def test_nothing_is_known_of_a_topic_that_was_made_again() -> None:
    scene = Scene()
    both_at_five(scene)
    scene.subscribe(0, incarnation=_INCARNATION + 1)
    assert scene.consumer.checkpoint() == sdk.Checkpoint(_INCARNATION + 1, {})
    scene.receive(0, 2)
    assert scene.named == {0: 2}


@pytest.mark.parametrize(
    ("named", "pruned", "why"),
    [
        ({0: {0: 5, 1: 9}}, {0: (5, 9)}, ""),
        ({0: {1: 9}, 1: {0: 3}}, {0: (5, 9)}, ""),  # the others' buckets are in other hands
        ({0: {0: 5, 1: 8}}, {0: (5, 9)}, "bucket 1 of segment 0 .* ended at 9, and .* is 8: it is"),
        ({0: {0: 5, 1: 9}}, {}, "nobody can tell whether segment 0 .* was read to its end: it is"),
        ({0: {0: 5}}, {0: (0, 0)}, "bucket 0 of segment 0 .* ended at 0, and .* is 5: it is"),
        ({7: {0: 5}}, {}, ""),  # of a segment yet to come
    ],
)
@pytest.mark.parametrize("asks", [False, True])
async def test_a_segment_that_is_gone_must_have_been_read_to_its_end(
    named: dict[int, dict[int, int]], pruned: dict[int, tuple[int, ...]], why: str, asks: bool
) -> None:
    async def position_of(segment_id: int, bucket: int) -> int | None:
        return named.get(segment_id, {}).get(bucket)

    given = None if asks else sdk.Checkpoint(_INCARNATION, named)
    scene = Scene(given, position_of if asks else None)
    scene.pruned = pruned
    left = SegmentLayout.initial(1).split_segment(0).prune_segment(0)
    scene.consumer._watch._layout = layout_of(left, incarnation=_INCARNATION)
    scene.subscribe(0)
    if why and not (asks and not pruned):  # nobody asks for what nobody has heard of
        with pytest.raises(sdk.PositionGoneError, match=why):
            await scene.consumer._resume()
    else:
        assert await scene.consumer._resume() == (not asks or 0 in pruned)


async def test_what_others_have_stored_counts_for_more_than_an_own_checkpoint() -> None:
    async def position_of(segment_id: int, bucket: int) -> int | None:
        return {(0, 0): 5, (0, 1): 9}.get((segment_id, bucket))

    scene = Scene(sdk.Checkpoint(_INCARNATION, {0: {0: 3}, 9: {0: 1}}), position_of)
    scene.pruned = {0: (5, 9)}
    left = SegmentLayout.initial(1).split_segment(0).prune_segment(0)
    scene.consumer._watch._layout = layout_of(left, incarnation=_INCARNATION)
    scene.subscribe(0)
    assert await scene.consumer._resume()


async def test_a_segment_older_than_all_whose_ends_are_kept_is_not_judged() -> None:
    scene = Scene(sdk.Checkpoint(_INCARNATION, {0: {0: 3}, 1: {0: 4}}))
    scene.pruned = {1: (4,)}
    left = SegmentLayout.initial(2).split_segment(0).split_segment(1)
    scene.consumer._watch._layout = layout_of(
        left.prune_segment(0).prune_segment(1), incarnation=_INCARNATION
    )
    scene.subscribe(0)
    assert await scene.consumer._resume()


@pytest.mark.parametrize("asks", [False, True])
async def test_who_was_in_the_middle_of_a_lost_segment_does_not_pass_over_it(asks: bool) -> None:
    async def position_of(segment_id: int, bucket: int) -> int | None:
        return 5 if (segment_id, bucket) == (0, 1) else None

    given = None if asks else sdk.Checkpoint(_INCARNATION, {0: {1: 5}})
    children = SegmentLayout.initial(1).split_children(0)
    lost = SegmentLayout.initial(1).replaced((0,), children, {0: (0, 0, 0, 0)}, 0)
    why = "bucket 1 of segment 0 .* was read up to 5: what came next is lost"
    scene = Scene(given, position_of if asks else None)
    scene.consumer._watch._layout = layout_of(lost, incarnation=_INCARNATION)
    scene.subscribe(0)
    with pytest.raises(sdk.PositionGoneError, match=why):
        await scene.consumer._resume()
    live = Scene(None, elsewhere)
    live.subscribe(0)
    live.receive(0, 5)
    live.assign(0, ends=(0,))
    with pytest.raises(sdk.PositionGoneError, match=r"bucket 0 .* read up to 5: what came next"):
        live.consumer._commit_if_due(0.0)


async def test_what_a_group_that_was_left_did_not_hear_its_successor_is_not_told() -> None:
    async def commit(_offsets: object, _until: float) -> None:
        raise RuntimeError("its thread has ended")

    scene = Scene()
    group: Any = SimpleNamespace(commit=commit)
    await scene.consumer._tell(group, {("k", 0): 5})
    assert scene.consumer._marks == {}
    scene.consumer._reading.offsets = group
    with pytest.raises(RuntimeError):
        await scene.consumer._tell(group, {("k", 0): 5})


async def test_positions_of_segments_that_are_gone_are_dropped_and_those_to_come_are_kept() -> None:
    scene = Scene(sdk.Checkpoint(_INCARNATION, {segment: {0: 3} for segment in range(5)}))
    scene.subscribe(0)
    parts = [pb.SegmentInfoProto(segment_id=number, hash_end=1) for number in (0, 3)]
    dag = pb.ScalableTopicDAG(epoch=2, incarnation=_INCARNATION, segments=parts)
    scene.consumer._layout_changed(sdk.TopicLayout.from_proto("public/default/orders", dag))
    assert scene.consumer.checkpoint().positions == {s: {0: 3} for s in (0, 3, 4)}
