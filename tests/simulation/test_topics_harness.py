"""The simulation of topics finds planted bugs: a test breaks one rule, and a seed must notice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from anabranch.broker.topics.controllers import worker
from anabranch.client import TopicLayout
from anabranch.client._consumer.holding import Holding, Phase
from anabranch.client._producer.partition_writer import PartitionWriter, Step
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.log.state import StateReader
from anabranch.core.subscriptions import handover
from anabranch.core.subscriptions.coordinator import SubscriptionCoordinator
from anabranch.core.topics import controller
from anabranch.core.topics import machine as topic_fold
from anabranch.core.topics.guards import (
    ADOPTED_ONCE,
    CHILDREN_FIT,
    CUTS_OVER,
    PRUNABLE,
    READ_BEFORE,
)
from anabranch.core.topics.tasks import DeleteSegments, MakeSegments, SealSegments, Task, next_task
from faults.planted import BUGS
from simulation.handler_checks import HandlerChecks
from simulation.operators import Operators, is_settled
from simulation.planted import noticed, quiet, stormy
from simulation.process import Process
from simulation.segment_store import SegmentStore
from simulation.topic_checks import TopicChecks
from support.state_machines import topics_without

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
    violation_found("had acknowledged and released it", "works on it", first_seed=2)


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
    begin = handover.Instance.__init__

    def idle(self: object, number: int, now: float, *, known: bool) -> None:
        begin(self, number, now, known=True)  # type: ignore[arg-type]

    monkeypatch.setattr(handover.Instance, "__init__", idle)
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


# --- adopted topics -------------------------------------------------------------------------


def adopting(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    """Adopted topics are cut over soon, while their writers are busy."""
    usual = {"adopts": True, "passing_topics": 1, "operation_interval_s": 0.5, "sends_per_s": 10.0}
    stormy(monkeypatch, **usual | changes)
    quiet(monkeypatch)


def test_a_producer_that_leaves_one_partition_of_an_adopted_topic_before_all_refuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = PartitionWriter.step

    def eager(writer: PartitionWriter, layout: TopicLayout) -> Step:
        part = writer.segment
        ours = msgspec.structs.replace(part.info, legacy_topic="")
        writer.segment = msgspec.structs.replace(part, info=ours)
        try:
            return sound(writer, layout)
        finally:
            writer.segment = part

    adopting(monkeypatch, kafka_brokers=3, kafka_copies=1, producers=3)
    monkeypatch.setattr(PartitionWriter, "step", eager)
    violation_found("takes messages yet")


def test_an_adopted_topic_that_is_cut_over_though_others_have_changed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    adopting(monkeypatch)
    monkeypatch.setattr(worker, "must_be_as_adopted", lambda *_: None)
    violation_found("though others had changed it before", first_seed=4)


def test_an_adopted_topic_that_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    adopting(monkeypatch)
    topics_without(monkeypatch, CUTS_OVER)
    violation_found("is replaced by a")


def test_an_adopted_topic_that_two_topics_have(monkeypatch: pytest.MonkeyPatch) -> None:
    adopting(monkeypatch)
    topics_without(monkeypatch, ADOPTED_ONCE)
    violation_found("adopts what", first_seed=6)


def test_an_adopted_topic_that_is_deleted_in_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of(task: Task, topic: ScalableTopic) -> Task:
        if isinstance(task, DeleteSegments):
            return msgspec.structs.replace(task, segments=topic.segments)
        return task

    adopting(monkeypatch)
    task_becomes(monkeypatch, all_of)
    violation_found("a node deletes")


def test_an_adopted_topic_that_is_sealed_before_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hasty(task: Task, _: ScalableTopic) -> Task:
        if isinstance(task, MakeSegments) and task.legacy:
            return SealSegments(task.topic, task.incarnation, task.legacy)
        return task

    adopting(monkeypatch)
    task_becomes(monkeypatch, hasty)
    violation_found("before the log says SEALING")


def test_children_that_are_read_before_the_adopted_topic_is_drained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    BUGS["child-opened-early"].plant(monkeypatch.setattr)
    adopting(monkeypatch, checkpoints=False, operators=False, shared_keys=0, consumers=3)
    monkeypatch.setattr(HandlerChecks, "begins", lambda *_: None)
    violation_found("before the adopted topic was drained", "right after")


def giving_back(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    """What was cut over is soon given back."""
    adopting(monkeypatch, passing_topics=0, checkpoints=False, **changes)


def test_a_kafka_topic_that_is_given_back_before_all_have_read_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unread(process: Process, _name: str, topic: ScalableTopic) -> bool:
        return topic.cut_over is not None and is_settled(process, topic.cut_over)

    giving_back(monkeypatch, consumers=1, slow_work=0.3)
    topics_without(monkeypatch, READ_BEFORE)
    monkeypatch.setattr(Operators, "_may_give_back", staticmethod(unread))
    violation_found("works on it", "right after", "had not drained", first_seed=10)


def test_a_kafka_topic_that_is_opened_before_all_that_it_replaces_refuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def early(task: Task, topic: ScalableTopic) -> Task:
        if isinstance(task, MakeSegments) and topic.continued is not None:
            return SealSegments(task.topic, task.incarnation, (), (), topic.continued)
        return task

    giving_back(monkeypatch)
    task_becomes(monkeypatch, early)
    violation_found("is open, and")


def test_a_producer_that_goes_to_a_kafka_topic_before_it_is_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = PartitionWriter.step

    def eager(writer: PartitionWriter, layout: TopicLayout) -> Step:
        unknown = tuple(child for child in layout.children if not child.info.partitioner)
        return sound(writer, msgspec.structs.replace(layout, children=unknown))

    giving_back(monkeypatch, kafka_brokers=1, kafka_copies=1)
    monkeypatch.setattr(PartitionWriter, "step", eager)
    violation_found("takes messages yet", "was stored", first_seed=58)


def task_becomes(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Task, ScalableTopic], Task]
) -> None:
    """Has controllers do another task than the one that is due."""

    def changed(state: StateReader, name: str, topic: ScalableTopic) -> Task | None:
        task = next_task(state, name, topic)
        return task if task is None else change(task, topic)

    monkeypatch.setattr(controller, "next_task", changed)


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
    topics_without(monkeypatch, CHILDREN_FIT)
    violation_found("do not tile the ring", first_seed=1)


def test_segments_deleted_that_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def eager(task: Task, topic: ScalableTopic) -> Task:
        if isinstance(task, DeleteSegments):
            return msgspec.structs.replace(task, segments=(*task.segments, *topic.segments))
        return task

    task_becomes(monkeypatch, eager)
    violation_found("was deleted while its topic needs it")


def test_segments_pruned_that_somebody_has_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_sealed(
        state: StateReader, name: str, topic: ScalableTopic, log_ms: int, kept_s: float
    ) -> tuple[int, ...]:
        return tuple(part.segment_id for part in topic.segments if not part.is_active)

    monkeypatch.setattr(controller, "prunable", all_sealed)
    topics_without(monkeypatch, PRUNABLE)
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
