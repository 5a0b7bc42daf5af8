"""The simulation of topics finds planted bugs: a test breaks one rule, and a seed must notice."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from anabranch.client.consumer_core import ConsumerCore
from anabranch.client.flows import Flow, FlowTable, Held
from anabranch.client.holding import Holding
from anabranch.client.topic_layout import TopicLayout
from anabranch.core import assignment, controller, instances, topic_fold
from anabranch.core.coordinator import SubscriptionCoordinator
from anabranch.core.hashing import hash32, segment_hash
from anabranch.core.layout import SegmentLayout
from anabranch.core.segment_tasks import DeleteSegments, SealSegments, next_task
from anabranch.core.segments import SegmentInfo
from anabranch.core.state import StateReader
from anabranch.core.timing import Timing
from anabranch.core.topic_guards import TOPIC_GUARDS
from anabranch.core.topics import TOPIC_TABLE, ScalableTopic, TopicGuard
from simulation import producers, topic_host
from simulation.planted import quiet, stormy, violation_found
from simulation.segment_store import SegmentStore
from simulation.topic_host import TopicHost

pytestmark = pytest.mark.simulation


def without(*omitted: TopicGuard) -> dict[int, object]:
    """The fold's guards of topics, without some."""
    return {
        id(arrow): tuple(TOPIC_GUARDS[guard] for guard in arrow.guards if guard not in omitted)
        for arrow in TOPIC_TABLE.values()
    }


# --- producers ------------------------------------------------------------------------------


def test_a_producer_that_sends_again_what_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Flow.was_refused

    def certain(self: Flow, message: Held, in_doubt: bool) -> None:
        refused(self, message, in_doubt=False)

    monkeypatch.setattr(Flow, "was_refused", certain)
    violation_found("was stored twice")


def test_a_producer_that_takes_what_is_in_doubt_for_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolved = Flow.resolved

    def hopeful(self: Flow, found: int) -> list[Held]:
        return resolved(self, len(self.refused))

    monkeypatch.setattr(Flow, "resolved", hopeful)
    violation_found("was stored out of order")


def test_a_producer_that_does_not_wait_for_what_it_sent_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hasty(self: FlowTable[Flow], key: bytes) -> Flow:
        position = hash32(key)
        return self._flow_at(self._segment_at(segment_hash(position)), position)

    monkeypatch.setattr(FlowTable, "route", hasty)
    violation_found("was stored out of order")


def test_a_producer_that_leaves_children_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by seed 37: with an old layout it sent to a child in a loop, and lost messages."""

    def is_leaving(self: TopicLayout, segment_id: int) -> bool:
        part = self.segments.get(segment_id)
        if part is None or not part.info.is_active:
            return True
        return self.sealing and segment_id in self.parents_under_way

    stormy(monkeypatch, operation_interval_s=0.2, kafka_fails=0.1, sends_per_s=10.0)
    monkeypatch.setattr(TopicLayout, "is_leaving", is_leaving)
    violation_found("")


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
    violation_found("was stored twice")


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
    violation_found("both serve")


def test_a_consumer_that_calls_drained_what_is_not_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drained = property(lambda self: self.end_offset is not None and self.delivered is not None)
    monkeypatch.setattr(Holding, "drained", drained)
    violation_found("is called drained by")


def test_drains_of_a_deleted_subscription_that_count_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by seed 193: the group that a subscribe speaks of was not told."""
    stormy(monkeypatch, passing_topics=1, topics=1, operation_interval_s=0.1, sends_per_s=10.0)
    monkeypatch.setattr(topic_host, "is_same_group", lambda asked, known: True)
    violation_found("is called drained by")


# --- the coordinator ------------------------------------------------------------------------


def test_segments_given_out_before_what_is_above_them_is_drained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def everything(layout: SegmentLayout, drained: Iterable[int]) -> list[SegmentInfo]:
        done = frozenset(drained)
        parts = (part for part in layout.segments.values() if part.segment_id not in done)
        return sorted(parts, key=lambda part: (part.start, part.end, part.segment_id))

    monkeypatch.setattr(assignment, "assignable", everything)
    violation_found("right after")


def test_buckets_granted_while_another_may_serve_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances.Held, "allows", lambda self, bucket, asker: True)
    violation_found("both serve")


def test_a_controller_that_takes_a_silent_consumer_for_gone_too_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    too_soon = property(lambda self: self.session_timeout_s * 0.6)
    monkeypatch.setattr(Timing, "lapse_s", too_soon)
    violation_found("both serve")


def test_a_new_controller_that_takes_consumers_for_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = instances.Instance.__init__

    def idle(self: object, number: int, now: float, *, known: bool) -> None:
        begin(self, number, now, known=True)  # type: ignore[arg-type]

    monkeypatch.setattr(instances.Instance, "__init__", idle)
    violation_found("both serve")


def test_a_controller_that_remembers_what_it_knew_before_another_took_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reconcile = TopicHost._reconcile

    def keeping(self: TopicHost, name: str) -> None:
        if self.controller(name) is not None:
            reconcile(self, name)

    often = ("crash", "close", "restart")
    stormy(monkeypatch, consumers=4, client_faults=often, client_fault_interval_s=0.4)
    monkeypatch.setattr(TopicHost, "_discard", lambda self, unit: None)
    monkeypatch.setattr(TopicHost, "_reconcile", keeping)
    violation_found("both serve")


def test_a_second_process_registered_under_a_name_while_the_first_may_serve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next controller knows of the second one only."""
    faults = ("pause", "twin")
    stormy(monkeypatch, consumers=1, client_faults=faults, client_fault_interval_s=0.7)
    monkeypatch.setattr(SubscriptionCoordinator, "is_lapsing", lambda self, name, instance: False)
    violation_found("both serve")


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
    monkeypatch.setattr(topic_fold, "_GUARDS_OF", without(TopicGuard.CHILDREN_FIT))
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
        state: StateReader, name: str, topic: ScalableTopic, log_ms: int, retention_s: float
    ) -> tuple[int, ...]:
        return tuple(part.segment_id for part in topic.segments if not part.is_active)

    monkeypatch.setattr(controller, "prunable", all_sealed)
    monkeypatch.setattr(topic_fold, "_GUARDS_OF", without(TopicGuard.PRUNABLE))
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
