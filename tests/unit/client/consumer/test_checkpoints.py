"""What a checkpoint consumer names, and what it says of what is lost, by the buckets it has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from anabranch.client import (
    Checkpoint,
    CheckpointConsumer,
    ConsumerSettings,
    LayoutWatch,
    PositionOf,
    TopicLayout,
)
from anabranch.client._consumer.assignment import AssignedSegment, Assignment
from anabranch.client._consumer.consumer import Membership
from anabranch.client._topics.nodes import Nodes
from anabranch.wire import anabranch_pb2 as pb
from support.still_watch import no_producer

_SETTLE_S = 30.0
_SESSION_S = 1_000.0
_INCARNATION = 7


class Scene:
    """A consumer whose controller, clock and messages are the test's."""

    def __init__(
        self, checkpoint: Checkpoint | None = None, position_of: PositionOf | None = None
    ) -> None:
        nodes = Nodes("pulsar://127.0.0.1:1")
        self.now = 0.0
        watch = LayoutWatch(nodes, "topic://public/default/orders")
        settings = ConsumerSettings(settle_timeout_s=_SETTLE_S)
        self.consumer = CheckpointConsumer(
            Membership(nodes, watch, {}, "lake", "", no_producer), settings, checkpoint, position_of
        )
        self.consumer._now = lambda: self.now
        self.core = self.consumer._core
        self._sequence = 0

    def subscribe(self, *buckets: int, incarnation: int = _INCARNATION) -> None:
        order = self.core.begin_subscribe(self.now)
        self.core.on_subscribed(order.number, self._assignment(buckets, (), incarnation), self.now)

    def assign(self, *buckets: int, ends: tuple[int, ...] = ()) -> None:
        self.core.on_assignment(self._assignment(buckets, ends, _INCARNATION), self.now)

    def receive(self, bucket: int, end: int, begin: int = 0) -> None:
        (holding,) = (h for h in self.core.holdings.values() if h.place.bucket == bucket)
        assert holding.fetch is not None
        self.core.on_position(holding.fetch.number, begin)
        holding.deliver(end)

    def report(self) -> None:
        self.core.tick(self.now)
        report = self.core.begin_report(self.now)
        assert report is not None
        self.core.on_reported(report.number, self.now)

    def save(self) -> bool:
        return self.consumer.saved(self.consumer.checkpoint())

    @property
    def named(self) -> dict[int, int]:
        return self.consumer.checkpoint().positions.get(0, {})

    def _assignment(
        self, buckets: tuple[int, ...], ends: tuple[int, ...], incarnation: int
    ) -> Assignment:
        self._sequence += 1
        segments = (AssignedSegment(0, "k", buckets, ends),) if buckets else ()
        return Assignment(self._sequence, incarnation, 1, "g", _SESSION_S, segments)


async def elsewhere(_segment_id: int, _bucket: int) -> int | None:
    return None


def run(test: Callable[[], None]) -> None:
    async def on_loop() -> None:
        test()

    asyncio.run(on_loop())


def both_at_five(scene: Scene) -> None:
    scene.subscribe(0, 1)
    for bucket in (0, 1):
        scene.receive(bucket, 5)
    assert scene.save()
    assert scene.named == {0: 5, 1: 5}


def test_what_is_stored_of_a_topic_goes_on_counting_but_for_what_is_newer() -> None:
    before, now = Checkpoint(7, {0: {0: 4, 1: 5}}), Checkpoint(7, {0: {1: 9}, 2: {0: 1}})
    assert now.over(before) == Checkpoint(7, {0: {0: 4, 1: 9}, 2: {0: 1}})
    assert before.positions == {0: {0: 4, 1: 5}}
    assert now.over(Checkpoint(6, {0: {0: 4}})) == now  # of a former topic of that name


def test_what_was_not_saved_in_time_is_told_once_and_its_bucket_is_named_no_more() -> None:
    def test() -> None:
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

    run(test)


def test_a_bucket_that_went_with_all_of_it_saved_repeats_nothing_and_is_named_no_more() -> None:
    def test() -> None:
        scene = Scene()
        both_at_five(scene)
        scene.assign(0)
        scene.report()
        assert scene.named == {0: 5}, "another consumer stores the position of the other one"
        assert scene.save()

    run(test)


def test_what_a_lapse_lost_is_told_once_also_when_the_bucket_comes_back_before() -> None:
    def test() -> None:
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
        assert not scene.consumer.saved(old)
        assert scene.save()

    run(test)


def test_a_bucket_that_was_read_to_its_sealed_end_stays_named() -> None:
    def test() -> None:
        scene = Scene()
        both_at_five(scene)
        scene.assign(0, 1, ends=(5, 6))
        scene.receive(1, 6)
        assert scene.save()
        scene.report()
        scene.assign()
        scene.report()
        assert scene.core.holdings == {}
        assert scene.named == {0: 5, 1: 6}
        assert scene.save()

    run(test)


def test_a_bucket_that_began_at_its_sealed_end_is_saved_once_it_is_over_too() -> None:
    def test() -> None:
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
        assert [scene.consumer.saved(named) for _ in range(2)] == [True, True]
        assert scene.save()

    run(test)


def test_a_bucket_that_went_before_anything_came_of_it_has_lost_nothing() -> None:
    def test() -> None:
        scene = Scene(position_of=elsewhere)
        scene.subscribe(0)
        scene.receive(0, 5, begin=5)
        named = scene.consumer.checkpoint()
        scene.assign()
        scene.report()
        assert scene.consumer.saved(named)

    run(test)


def test_a_checkpoint_stands_for_buckets_that_did_not_come_yet_unless_others_store_theirs() -> None:
    def test() -> None:
        given = Checkpoint(_INCARNATION, {0: {0: 3, 1: 4}})
        for position_of, known in ((None, {0: 3, 1: 4}), (elsewhere, {})):
            scene = Scene(given, position_of)
            scene.subscribe(0)
            assert scene.named == known
            scene.receive(0, 6, begin=3)
            assert scene.named == {**known, 0: 6}

    run(test)


def test_nothing_is_known_of_a_topic_that_was_made_again() -> None:
    def test() -> None:
        scene = Scene()
        both_at_five(scene)
        scene.subscribe(0, incarnation=_INCARNATION + 1)
        assert scene.consumer.checkpoint() == Checkpoint(_INCARNATION + 1, {})
        scene.receive(0, 2)
        assert scene.named == {0: 2}

    run(test)


def test_positions_of_segments_that_are_gone_are_dropped_and_those_to_come_are_kept() -> None:
    def test() -> None:
        given = Checkpoint(_INCARNATION, {segment: {0: 3} for segment in range(5)})
        scene = Scene(given)
        scene.subscribe(0)
        parts = [pb.SegmentInfoProto(segment_id=number, hash_end=1) for number in (0, 3)]
        dag = pb.ScalableTopicDAG(epoch=2, incarnation=_INCARNATION, segments=parts)
        scene.consumer._layout_changed(TopicLayout.from_proto("public/default/orders", dag))
        assert scene.consumer.checkpoint().positions == {s: {0: 3} for s in (0, 3, 4)}

    run(test)
