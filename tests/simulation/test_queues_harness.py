"""The simulation of queues finds planted bugs, as that of topics does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from anabranch.client import TopicLayout
from anabranch.client._queue.core import QueueCore
from faults.planted import BUGS
from simulation.planted import noticed, stormy

pytestmark = pytest.mark.simulation

violation_found = partial(noticed, "topics")

QUEUES = {
    "topics": 1,
    "passing_topics": 0,
    "subscriptions": 1,
    "checkpoints": False,
    "seeks": 0.0,
    "queue_consumers": 3,
    "operation_interval_s": 0.5,
}


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
