"""The simulation of topics finds planted bugs: a test breaks one rule, and a seed must notice."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.broker.topics.controllers.service import TopicService
from anabranch.broker.topics.subscriptions import consumers
from anabranch.client import Segment
from anabranch.client._consumer.assignment import Holding
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._producer.partition_writer import PartitionWriter
from anabranch.client._producer.router import Router
from anabranch.core.hashing import hash32
from anabranch.core.log.state import StateReader
from anabranch.core.subscriptions import admission, instances
from anabranch.core.subscriptions.coordinator import SubscriptionCoordinator
from anabranch.core.subscriptions.timing import Timing
from anabranch.core.topics import controller
from anabranch.core.topics import evolve as topic_fold
from anabranch.core.topics.guards import CHILDREN_FIT, PRUNABLE
from anabranch.core.topics.layout import SegmentLayout
from anabranch.core.topics.machine import LAYOUTS
from anabranch.core.topics.segment import SegmentInfo
from anabranch.core.topics.tasks import DeleteSegments, SealSegments, next_task
from anabranch.core.topics.topic import ScalableTopic
from faults.planted import BUGS
from simulation import producers
from simulation.kafka_client import Writer
from simulation.planted import quiet, stormy, violation_found
from simulation.segment_store import SegmentStore
from support.state_machines import without

pytestmark = pytest.mark.simulation


# --- producers ------------------------------------------------------------------------------


def test_a_producer_that_sends_again_what_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS["doubt-forgotten"].plant(monkeypatch.setattr)
    violation_found("was stored twice", first_seed=7)


def test_a_producer_that_takes_what_is_in_doubt_for_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    BUGS["doubt-taken-for-stored"].plant(monkeypatch.setattr)
    violation_found("was stored out of order")


def test_a_producer_that_does_not_wait_for_what_it_sent_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hasty(self: Router[PartitionWriter], key: bytes) -> PartitionWriter:
        return self._writer(*self._place_at(hash32(key)))

    monkeypatch.setattr(Router, "route", hasty)
    violation_found("was stored out of order")


def test_a_producer_that_moves_because_sealing_is_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So it was: who had heard wrote to the child while others still wrote to the parent."""
    shared_by_all(monkeypatch)
    BUGS["moves-when-announced"].plant(monkeypatch.setattr)
    violation_found("which had been acknowledged when it was sent")


def test_a_producer_that_begins_in_the_child_while_its_parent_is_sealed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared_by_all(monkeypatch)
    BUGS["begins-in-child"].plant(monkeypatch.setattr)
    violation_found("which had been acknowledged when it was sent")


def test_a_refused_bucket_that_is_taken_for_its_whole_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka's brokers obey a seal each at its own time."""

    def rash(self: Router[PartitionWriter], part: Segment, _bucket: int) -> bool:
        return any(part.segment_id == segment_id for _, segment_id, _ in self._left)

    shared_by_all(monkeypatch)
    monkeypatch.setattr(Router, "_has_left", rash)
    violation_found("was stored out of order", "which had been acknowledged when it was sent")


def test_a_producer_that_leaves_at_a_refusal_though_there_are_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy that leads next may take appends still."""
    shared_by_all(monkeypatch, kafka_copies=2)
    monkeypatch.setattr(Writer, "has_copies", False)
    violation_found("was stored out of order", "which had been acknowledged when it was sent")


def test_a_seal_that_asks_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_sealed(store: SegmentStore, place: tuple[str, int]) -> bool:
        partition = store.partitions.get(place)
        return partition is None or partition.sealed

    shared_by_all(monkeypatch, kafka_copies=2)
    monkeypatch.setattr(SegmentStore, "_is_sealed", is_sealed)
    violation_found("is committed as sealed at")


def shared_by_all(monkeypatch: pytest.MonkeyPatch, kafka_copies: int = 1) -> None:
    """Producers answer one another all the time, and segments are replaced as often."""
    stormy(
        monkeypatch,
        shared_keys=6,
        kafka_brokers=3,
        kafka_copies=kafka_copies,
        kafka_fails=0.0,
        seeks=0.0,
        checkpoints=False,
        client_faults=("producer_crash", "producer_pause"),
        topics=1,
        passing_topics=0,
        subscriptions=1,
        bucket_budget=6,
        operation_interval_s=0.3,
        producers=3,
        sends_per_s=10.0,
        consumers=1,
    )
    quiet(monkeypatch)


def test_one_writer_for_all_buckets_where_kafka_has_several_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is in doubt at a broker that seals later is sent again under a new epoch (0011)."""
    stormy(
        monkeypatch,
        kafka_brokers=3,
        kafka_fails=0.1,
        client_faults=(),
        topics=1,
        passing_topics=0,
        segments=1,
        bucket_budget=6,
        operation_interval_s=0.3,
        producers=6,
        sends_per_s=20.0,
        keys=6,
        hot_key=0.0,
        consumers=1,
    )
    quiet(monkeypatch)
    monkeypatch.setattr(producers, "writers_of", lambda buckets, brokers: 1)
    violation_found("was stored twice", first_seed=15)


# --- consumers ------------------------------------------------------------------------------


def test_a_consumer_that_releases_before_it_has_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def release(self: Holding, now: float) -> None:
        if self.settled(now):
            self.phase = type(self.phase).RELEASED

    monkeypatch.setattr(Holding, "release_if_settled", release)
    violation_found("had acknowledged and released it")


def test_a_consumer_that_serves_on_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    lapses_at = ConsumerCore._lapses_at
    monkeypatch.setattr(ConsumerCore, "_lapses_at", lambda self: lapses_at(self) + 3.0)
    violation_found("both serve", first_seed=38)


def test_a_consumer_that_calls_drained_what_is_not_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    BUGS["drained-early"].plant(monkeypatch.setattr)
    violation_found("is called drained by", "is called drained, and")


def test_drains_of_a_deleted_subscription_that_count_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by the simulation: the group that a subscribe speaks of was not told."""
    stormy(monkeypatch, passing_topics=1, topics=1, operation_interval_s=0.1, sends_per_s=10.0)
    for asked in (admission, consumers):
        monkeypatch.setattr(asked, "is_same_group", lambda wish, group_id: True)
    violation_found("is called drained by", first_seed=28)


# --- the coordinator ------------------------------------------------------------------------


def test_segments_given_out_before_what_is_above_them_is_drained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    BUGS["child-opened-early"].plant(monkeypatch.setattr)
    violation_found("right after", "was stored")


def test_buckets_granted_while_another_may_serve_them(monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS["granted-unreleased"].plant(monkeypatch.setattr)
    violation_found("both serve")


def test_a_controller_that_takes_a_silent_consumer_for_gone_too_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    too_soon = property(lambda self: self.session_timeout_s * 0.6)
    monkeypatch.setattr(Timing, "lapse_s", too_soon)
    violation_found("both serve", first_seed=15)


def test_a_new_controller_that_takes_consumers_for_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = instances.Instance.__init__

    def idle(self: object, number: int, now: float, *, known: bool) -> None:
        begin(self, number, now, known=True)  # type: ignore[arg-type]

    monkeypatch.setattr(instances.Instance, "__init__", idle)
    violation_found("both serve", first_seed=16)


def test_a_controller_that_remembers_what_it_knew_before_another_took_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reconcile = TopicService.reconcile

    def keeping(self: TopicService, name: str, *, idle: bool = True) -> None:
        if self.controller(name) is not None:
            reconcile(self, name, idle=idle)

    often = ("crash", "close", "restart")
    stormy(monkeypatch, consumers=4, client_faults=often, client_fault_interval_s=0.4)
    monkeypatch.setattr(TopicService, "_discard", lambda self, unit: None)
    monkeypatch.setattr(TopicService, "_forget", lambda self, name: None)
    monkeypatch.setattr(TopicService, "reconcile", keeping)
    violation_found("both serve", first_seed=109)


def test_a_second_process_registered_under_a_name_while_the_first_may_serve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next controller knows of the second one only."""
    faults = ("pause", "twin")
    stormy(monkeypatch, consumers=1, client_faults=faults, client_fault_interval_s=0.7)
    monkeypatch.setattr(SubscriptionCoordinator, "is_lapsing", lambda self, name, instance: False)
    violation_found("both serve", first_seed=10)


def test_drained_segments_that_are_never_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SubscriptionCoordinator, "drained_segments", lambda self: ())
    violation_found("not at rest")


# --- the layout -----------------------------------------------------------------------------


def test_a_seal_that_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SegmentStore, "_is_sealed", lambda self, place: True)
    violation_found("is committed as sealed at")


def test_segments_that_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SegmentStore, "_make", lambda self, place: None)
    violation_found("was made")


def test_children_that_do_not_cover_their_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    split = SegmentLayout.split_children

    def gap(self: SegmentLayout, segment_id: int) -> tuple[SegmentInfo, ...]:
        low, high = split(self, segment_id)
        return msgspec.structs.replace(low, end=max(low.start, low.end - 1)), high

    monkeypatch.setattr(SegmentLayout, "split_children", gap)
    monkeypatch.setattr(topic_fold, "_CASES", without(LAYOUTS, CHILDREN_FIT))
    violation_found("do not tile the ring")


def test_segments_deleted_that_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def eager(state: StateReader, name: str, topic: ScalableTopic) -> object:
        task = next_task(state, name, topic)
        if isinstance(task, DeleteSegments):
            return msgspec.structs.replace(task, segments=(*task.segments, *topic.segments))
        return task

    monkeypatch.setattr(controller, "next_task", eager)
    violation_found("was deleted while its topic needs it")


def test_segments_pruned_that_somebody_has_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_sealed(
        state: StateReader, name: str, topic: ScalableTopic, log_ms: int, kept_s: float
    ) -> tuple[int, ...]:
        return tuple(part.segment_id for part in topic.segments if not part.is_active)

    monkeypatch.setattr(controller, "prunable", all_sealed)
    monkeypatch.setattr(topic_fold, "_CASES", without(LAYOUTS, PRUNABLE))
    violation_found("")


def test_an_operation_that_nobody_goes_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(state: StateReader, name: str, topic: ScalableTopic) -> object:
        task = next_task(state, name, topic)
        return None if isinstance(task, SealSegments) else task

    monkeypatch.setattr(controller, "next_task", forgetful)
    violation_found("not at rest")


def test_a_fold_of_topics_that_depends_on_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = topic_fold._moved
    calls = iter(range(1_000_000_000))

    def stamped(*args: object) -> object:
        topic, arrow, record, offset, timestamp_ms = args
        odd = next(calls) % 2
        return moved(topic, arrow, record, offset, timestamp_ms + odd)  # type: ignore[arg-type, operator]

    monkeypatch.setattr(topic_fold, "_moved", stamped)
    violation_found("the view of")
