"""The simulation of seeks and of checkpoints finds planted bugs, as that of topics does."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.broker.topics.resets import Resets
from anabranch.client.checkpoint import CheckpointConsumer
from anabranch.client.grants import SegmentBucket
from anabranch.client.holding import Holding
from anabranch.core import topic_fold
from anabranch.core.coordinator import SubscriptionCoordinator
from anabranch.core.records import SubscriptionChange
from anabranch.core.subscriptions import Subscription, SubscriptionOp
from anabranch.core.topics import ScalableTopic
from anabranch.core.verdicts import Verdict
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
    parts = Resets._parts

    def of_old(self: Resets, name: str, topic: ScalableTopic) -> Any:
        return parts(self, name, replace(topic, children=()))

    stormy(monkeypatch, **SEEKS, operation_interval_s=0.3, kafka_fails=0.1)
    monkeypatch.setattr(Resets, "_parts", of_old)
    violation_found("was put at")


def test_a_seek_after_which_all_that_is_sealed_counts_as_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def everything(self: Resets, topic: str, starts: object) -> tuple[int, ...]:
        parts = self._access.topic(topic).segments
        return tuple(part.segment_id for part in parts if not part.is_active)

    stormy(monkeypatch, **SEEKS)
    monkeypatch.setattr(Resets, "_skipped", everything)
    violation_found("is called drained by")


def test_a_subscription_that_begins_anew_without_what_it_had_drained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed = topic_fold._changed

    def kept(
        topic: ScalableTopic, before: Subscription, record: SubscriptionChange, offset: int
    ) -> tuple[Subscription | None, Verdict]:
        after, verdict = changed(topic, before, record, offset)
        if after is not None and record.op is SubscriptionOp.RESET:
            after = replace(after, drained=before.drained)
        return after, verdict

    stormy(monkeypatch, **SEEKS)
    monkeypatch.setattr(topic_fold, "_changed", kept)
    violation_found("right after")


def test_a_seek_that_does_not_wait_for_who_serves_the_former_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everybody = property(lambda self: [each.number for each in self._current.values()])
    stormy(monkeypatch, **SEEKS, client_faults=("crash", "cut", "pause"))
    monkeypatch.setattr(SubscriptionCoordinator, "idle", everybody)
    violation_found("both serve")


# --- checkpoints ----------------------------------------------------------------------------


def test_a_checkpoint_consumer_that_takes_what_was_delivered_for_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deliver = Holding.deliver

    def done(self: Holding, end: int) -> None:
        deliver(self, end)
        self.acknowledge(end)
        self.commit(end)

    stormy(monkeypatch, **CHECKPOINTS)
    monkeypatch.setattr(Holding, "deliver", done)
    violation_found("is called drained, and")


def test_a_checkpoint_consumer_that_begins_at_the_end_of_what_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start_of = CheckpointConsumer._start_of

    async def late(self: CheckpointConsumer, place: SegmentBucket, first: int, end: int) -> int:
        found = await start_of(self, place, first, end)
        return end if found == first else found

    stormy(monkeypatch, **CHECKPOINTS)
    monkeypatch.setattr(CheckpointConsumer, "_start_of", late)
    violation_found("right after")
