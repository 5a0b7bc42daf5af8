"""The simulation of seeks and of checkpoints finds planted bugs, as that of topics does."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.broker.topics.subscriptions import groups
from anabranch.client._consumer.assignment import AssignedSegment
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.subscriptions.coordinator import SubscriptionCoordinator
from faults.planted import BUGS
from simulation.planted import noticed, stormy

pytestmark = pytest.mark.simulation

violation_found = partial(noticed, "topics")

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
    violation_found("was put at", first_seed=16)


def test_a_seek_that_does_not_wait_for_who_serves_the_former_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everybody = property(lambda self: [each.number for each in self._current.values()])
    stormy(monkeypatch, **SEEKS, client_faults=("crash", "cut", "pause"))
    monkeypatch.setattr(SubscriptionCoordinator, "idle", everybody)
    violation_found("both serve", "works on it", first_seed=2)


# --- what Kafka forgets ---------------------------------------------------------------------

FORGETS = {"topics": 1, "passing_topics": 0, "checkpoints": False, "forgets": True, "seeks": 0.0}
FAULTS = ("crash", "restart", "close")


def test_a_consumer_that_begins_anew_where_kafka_knows_no_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stormy(monkeypatch, **FORGETS, client_faults=FAULTS, client_fault_interval_s=1.0)
    monkeypatch.setattr(AssignedSegment, "start_of", lambda self, bucket: 0)
    violation_found("had committed it", first_seed=1)


# --- checkpoints ----------------------------------------------------------------------------


def test_a_checkpoint_consumer_that_takes_what_was_delivered_for_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stormy(monkeypatch, **CHECKPOINTS)
    BUGS["delivered-taken-for-stored"].plant(monkeypatch.setattr)
    violation_found("is called drained, and")
