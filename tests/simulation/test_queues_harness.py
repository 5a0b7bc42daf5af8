"""The simulation of queues finds planted bugs, as that of topics does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anabranch.client import TopicLayout
from anabranch.client._queue import drain
from anabranch.client._queue.core import QueueCore
from anabranch.core.subscriptions.coordinator import SubscriptionCoordinator
from faults.planted import BUGS
from simulation.planted import stormy, violation_found
from simulation.segment_store import Place
from simulation.share_groups import ShareGroup, _Share

pytestmark = pytest.mark.simulation

QUEUES = {
    "topics": 1,
    "passing_topics": 0,
    "subscriptions": 1,
    "checkpoints": False,
    "seeks": 0.0,
    "queue_consumers": 3,
    "operation_interval_s": 0.5,
}


def test_a_consumer_that_takes_a_short_silence_for_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stormy(monkeypatch, **QUEUES)
    monkeypatch.setattr(drain, "LOCKS", 0.1)
    violation_found("is called drained by a queue")


def test_a_locked_message_that_counts_as_settled_when_kafka_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stormy(monkeypatch, **QUEUES, forgets=True, queue_told=True)

    def told(self: ShareGroup, place: Place) -> tuple[int, int]:
        return self._shares.get(place, _Share()).fresh, -1

    monkeypatch.setattr(ShareGroup, "told", told)
    violation_found("is called drained by a queue")


def test_a_consumer_that_reads_no_sealed_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    def active(self: QueueCore, layout: TopicLayout) -> Iterator[tuple[str, int]]:
        return ((part.kafka_topic, part.segment_id) for part in layout.active)

    stormy(monkeypatch, **QUEUES)
    monkeypatch.setattr(QueueCore, "segments", active)
    violation_found("a queue", "no queue")


def test_what_is_not_settled_in_time_and_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    stormy(monkeypatch, **QUEUES)
    BUGS["unsettled-accepted"].plant(monkeypatch.setattr)
    violation_found("was accepted, and nobody has done with it")


def test_a_controller_that_forgets_a_consumer_with_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka keeps messages for it yet, or it takes some itself."""
    closed = SubscriptionCoordinator.closed

    def forget(self: SubscriptionCoordinator, name: str, connection: int, now: float) -> None:
        closed(self, name, connection, now)
        if self._is_queue:
            self._current.pop(name, None)

    faults = ("crash", "pause", "cut")
    stormy(monkeypatch, **QUEUES, client_faults=faults, client_fault_interval_s=0.5, slow_work=0.3)
    monkeypatch.setattr(SubscriptionCoordinator, "closed", forget)
    violation_found("is called drained by a queue")
