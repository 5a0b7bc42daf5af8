"""The simulation of seeks and of checkpoints finds planted bugs, as that of topics does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.broker.topics.controllers.access import TopicAccess
from anabranch.broker.topics.subscriptions import groups, surveys, usage
from anabranch.broker.topics.subscriptions.groups import StartPositions
from anabranch.broker.topics.subscriptions.positions import Part
from anabranch.client import CheckpointConsumer
from anabranch.client._consumer.assignment import AssignedSegment, Fetch
from anabranch.core.log.records import SubscriptionChange
from anabranch.core.subscriptions import draining
from anabranch.core.subscriptions import evolve as subscription_evolve
from anabranch.core.subscriptions.coordinator import SubscriptionCoordinator
from anabranch.core.subscriptions.instances import Bucket
from anabranch.core.subscriptions.subscription import SegmentPositions, Subscription, SubscriptionOp
from anabranch.core.topics import retention
from anabranch.core.topics.layout import SegmentLayout
from anabranch.core.topics.topic import ScalableTopic
from faults.planted import BUGS
from simulation.planted import stormy, violation_found

pytestmark = pytest.mark.simulation

SEEKS = {"topics": 1, "passing_topics": 0, "checkpoints": False, "seeks": 0.8}
CHECKPOINTS = {
    "topics": 1,
    "passing_topics": 0,
    "subscriptions": 1,
    "checkpoints": True,
    "operation_interval_s": 0.5,
}


# --- seeks ----------------------------------------------------------------------------------


def test_a_seek_that_leaves_out_the_children_of_a_split_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug of the product: what they had was delivered after everything was skipped."""
    parts = groups.written_parts

    def of_old(prefix: str, name: str, topic: ScalableTopic) -> Any:
        return parts(prefix, name, replace(topic, children=()))

    stormy(monkeypatch, **SEEKS, operation_interval_s=0.3, kafka_fails=0.1)
    monkeypatch.setattr(groups, "written_parts", of_old)
    violation_found("was put at", first_seed=13)


def test_a_seek_after_which_all_that_is_sealed_counts_as_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = groups.beginning

    def everything(topic: ScalableTopic, parts: Sequence[Part], starts: Any) -> StartPositions:
        sealed = (part.segment.segment_id for part in parts if not part.segment.is_active)
        return replace(found(topic, parts, starts), drained=tuple(sealed))

    stormy(monkeypatch, **SEEKS)
    monkeypatch.setattr(groups, "beginning", everything)
    violation_found("is called drained by")


def test_a_subscription_that_begins_anew_without_what_it_had_drained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed = subscription_evolve._changed

    def kept(before: Subscription, record: SubscriptionChange, offset: int) -> Subscription:
        after = changed(before, record, offset)
        if record.op is SubscriptionOp.RESET:
            after = replace(after, drained=before.drained)
        return after

    monkeypatch.setattr(subscription_evolve, "_changed", kept)
    violation_found("right after", "which was put at", first_seed=10)


def test_a_seek_that_does_not_wait_for_who_serves_the_former_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everybody = property(lambda self: [each.number for each in self._current.values()])
    stormy(monkeypatch, **SEEKS, client_faults=("crash", "cut", "pause"))
    monkeypatch.setattr(SubscriptionCoordinator, "idle", everybody)
    violation_found("both serve")


# --- what Kafka forgets ---------------------------------------------------------------------

FORGETS = {"topics": 1, "passing_topics": 0, "checkpoints": False, "forgets": True, "seeks": 0.0}
FAULTS = ("crash", "restart", "close")


def test_a_consumer_that_begins_anew_where_kafka_knows_no_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stormy(monkeypatch, **FORGETS, client_faults=FAULTS, client_fault_interval_s=1.0)
    monkeypatch.setattr(AssignedSegment, "start_of", lambda self, bucket: 0)
    violation_found("had committed it")


def test_positions_that_are_written_down_beyond_what_was_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = retention.written_down

    def beyond(*args: Any) -> tuple[SegmentPositions, ...]:
        return tuple(
            replace(each, offsets=tuple(offset + (offset > 0) for offset in each.offsets))
            for each in found(*args)
        )

    stormy(monkeypatch, **FORGETS, client_faults=FAULTS, client_fault_interval_s=1.0)
    monkeypatch.setattr(surveys, "written_down", beyond)
    violation_found("right after", first_seed=8)


def test_what_is_nearly_committed_taken_for_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    found = draining.drained_by_positions

    def nearly(layout: SegmentLayout, logged: Set[int], at: Mapping[Bucket, int]) -> Any:
        return found(layout, logged, {place: offset + 1 for place, offset in at.items()})

    stormy(monkeypatch, **FORGETS, client_faults=FAULTS, client_fault_interval_s=1.0)
    monkeypatch.setattr(surveys, "drained_by_positions", nearly)
    violation_found("is called drained by", first_seed=46)


def test_positions_that_were_read_of_a_former_version_of_the_subscription(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug that the version in the record keeps out: a seek is undone once Kafka forgets."""
    change = usage.change_as_read

    async def late(
        access: TopicAccess,
        name: str,
        subscription: str,
        known: Subscription,
        *rest: Any,
        **fields: Any,
    ) -> Any:
        now = access.runtime.view.subscription(name, subscription) or known
        return await change(access, name, subscription, now, *rest, **fields)

    seeks = {**FORGETS, "seeks": 0.8}
    stormy(monkeypatch, **seeks, client_faults=FAULTS, client_fault_interval_s=1.0)
    for module in (surveys, usage):
        monkeypatch.setattr(module, "change_as_read", late)
    violation_found("which was put at", "right after", "is called drained by", first_seed=183)


# --- checkpoints ----------------------------------------------------------------------------


def test_a_checkpoint_consumer_that_takes_what_was_delivered_for_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stormy(monkeypatch, **CHECKPOINTS)
    BUGS["delivered-taken-for-stored"].plant(monkeypatch.setattr)
    violation_found("is called drained, and")


def test_a_checkpoint_consumer_that_begins_at_the_end_of_what_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start_of = CheckpointConsumer._start_of

    async def late(self: CheckpointConsumer, fetch: Fetch, first: int, end: int) -> int:
        found = await start_of(self, fetch, first, end)
        return end if found == first else found

    stormy(monkeypatch, **CHECKPOINTS)
    monkeypatch.setattr(CheckpointConsumer, "_start_of", late)
    violation_found("right after", "is called drained, and")
