"""The simulation of topics finds planted bugs: a test breaks one rule, and a seed must notice."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from anabranch.client import TopicLayout
from anabranch.client._consumer.assignment import Holding, Phase
from anabranch.client._producer.partition_writer import PartitionWriter, Step
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.log.state import StateReader
from anabranch.core.subscriptions import instances
from anabranch.core.subscriptions.coordinator import SubscriptionCoordinator
from anabranch.core.topics import controller
from anabranch.core.topics import machine as topic_fold
from anabranch.core.topics.machine import CHILDREN_FIT, LAYOUTS, PRUNABLE
from anabranch.core.topics.tasks import DeleteSegments, next_task
from faults.planted import BUGS
from simulation.handler_checks import HandlerChecks
from simulation.planted import noticed, quiet, stormy
from simulation.segment_store import SegmentStore
from simulation.topic_checks import TopicChecks
from support.state_machines import without

pytestmark = pytest.mark.simulation

violation_found = partial(noticed, "topics")


@pytest.mark.parametrize(
    ("bug", "first_seed", "found"),
    [
        ("doubt-forgotten", 7, ["was stored twice"]),
        ("doubt-taken-for-stored", 2, ["was stored out of order"]),
        ("serves-unanswered", 45, ["both serve"]),
        ("drained-early", 2, ["is called drained by", "is called drained, and"]),
        ("child-opened-early", 2, ["works on it", "right after", "was stored"]),
        ("granted-unreleased", 1, ["both serve"]),
    ],
)
def test_what_is_planted_in_containers_is_found_here(
    monkeypatch: pytest.MonkeyPatch, bug: str, first_seed: int, found: list[str]
) -> None:
    BUGS[bug].plant(monkeypatch.setattr)
    violation_found(*found, first_seed=first_seed)


# --- producers ------------------------------------------------------------------------------


def test_a_producer_that_begins_in_the_child_while_its_parent_is_sealed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared_by_all(monkeypatch)
    BUGS["begins-in-child"].plant(monkeypatch.setattr)
    violation_found("which had been acknowledged when it was sent", first_seed=1)


def test_a_producer_that_leaves_at_a_refusal_though_there_are_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy that leads next may take appends still."""
    shared_by_all(monkeypatch, kafka_copies=2)
    sound = PartitionWriter.step

    def alone(writer: PartitionWriter, layout: TopicLayout) -> Step:
        writer.copies = 1
        return sound(writer, layout)

    monkeypatch.setattr(PartitionWriter, "step", alone)
    violation_found("was stored out of order", "which had been acknowledged when it was sent")


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


# --- consumers ------------------------------------------------------------------------------


def test_a_consumer_that_releases_before_it_has_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    def release(self: Holding, now: float) -> None:
        if self.settled(now):
            self.phase = type(self.phase).RELEASED

    monkeypatch.setattr(Holding, "release_if_settled", release)
    violation_found("had acknowledged and released it", first_seed=2)


def test_a_handler_that_is_not_told_before_its_bucket_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(self: Holding, phase: Phase) -> None:
        self.phase = phase

    stormy(monkeypatch, slow_work=0.2, settle_s=2.0, consumers=3)
    monkeypatch.setattr(Holding, "_end", end)
    violation_found("works on it")


def test_a_position_that_is_believed_whoever_wrote_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger, or a consumer from before a seek."""

    def believed(
        store: SegmentStore, group: str, begun_at: int, place: tuple[str, int]
    ) -> int | None:
        told = store.committed.get((group, place))
        return None if told is None else told.offset

    stormy(monkeypatch, forgets=True, consumers=3, checkpoints=False)
    monkeypatch.setattr(SegmentStore, "believed", believed)
    violation_found("right after", "is called drained by", "had committed it", first_seed=1)


def test_a_drain_before_its_time_that_the_audit_alone_looks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    BUGS["drained-early"].plant(monkeypatch.setattr)
    stormy(monkeypatch, checkpoints=False, consumers=2, operation_interval_s=0.3)
    monkeypatch.setattr(TopicChecks, "_must_be_consumed", lambda *_: None)
    monkeypatch.setattr(HandlerChecks, "begins", lambda *_: None)
    violation_found("the audit accuses by segments")


# --- the coordinator ------------------------------------------------------------------------


def test_a_new_controller_that_takes_consumers_for_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = instances.Instance.__init__

    def idle(self: object, number: int, now: float, *, known: bool) -> None:
        begin(self, number, now, known=True)  # type: ignore[arg-type]

    monkeypatch.setattr(instances.Instance, "__init__", idle)
    violation_found("both serve", "works on it", first_seed=18)


def test_a_second_process_registered_under_a_name_while_the_first_may_serve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next controller knows of the second one only."""
    stormy(monkeypatch, consumers=1, client_faults=("pause", "twin"), client_fault_interval_s=0.7)
    monkeypatch.setattr(SubscriptionCoordinator, "is_lapsing", lambda self, name, instance: False)
    violation_found("both serve", "is called drained", first_seed=13)


def test_drained_segments_that_are_never_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SubscriptionCoordinator, "drained_segments", lambda self: ())
    violation_found("not at rest")


# --- the layout -----------------------------------------------------------------------------


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
    violation_found("do not tile the ring", first_seed=1)


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
    violation_found("", first_seed=3)


def test_a_fold_of_topics_that_depends_on_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = topic_fold._moved
    calls = iter(range(1_000_000_000))

    def stamped(*args: object) -> object:
        topic, arrow, record, offset, timestamp_ms = args
        odd = next(calls) % 2
        return moved(topic, arrow, record, offset, timestamp_ms + odd)  # type: ignore[arg-type, operator]

    monkeypatch.setattr(topic_fold, "_moved", stamped)
    violation_found("the view of")
