"""A node's metrics, on a registry of its own so that several nodes can share a process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import Counter, Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from anabranch.broker.metrics.shown import ShownValues
from anabranch.core.entities.unit import Move, Unit, UnitState
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import (
    ArchiveChange,
    NamespaceChange,
    PermissionChange,
    PlacementPolicyChange,
    Record,
    SessionChange,
    SettingChange,
    SubscriptionChange,
    TenantChange,
    TopicChange,
    UnitMove,
)
from anabranch.core.log.verdicts import Verdict

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30)


_ARRIVED: Final = (UnitState.OWNED, UnitState.FREE)
_MOVES: Final = {move: move.name.lower() for move in Move}


def record_kind(record: Record | None) -> str:
    """Returns a record's kind of change, in lower case: the label of metrics and log lines."""
    if type(record) is UnitMove:
        return _MOVES[record.move]
    if isinstance(record, SessionChange):
        return f"session_{record.op.name.lower()}"
    if isinstance(record, TenantChange):
        return f"tenant_{record.op.name.lower()}"
    if isinstance(record, NamespaceChange):
        return f"namespace_{record.op.name.lower()}"
    if isinstance(record, TopicChange):
        return f"topic_{record.move.name.lower()}"
    if isinstance(record, SubscriptionChange):
        return f"subscription_{record.op.name.lower()}"
    if isinstance(record, ArchiveChange):
        return f"archive_{record.op.name.lower()}"
    if isinstance(record, PlacementPolicyChange):
        return f"placement_{record.op.name.lower()}"
    if isinstance(record, SettingChange):
        return f"setting_{record.op.name.lower()}"
    if isinstance(record, PermissionChange):
        return f"permission_{record.op.name.lower()}"
    return "unreadable" if record is None else "cluster_settings"


class Metrics(ShownValues, Collector):
    """Counts what happens; every method is cheap and is called from the node's own task."""

    def __init__(self) -> None:
        super().__init__()
        self.fast_lookups = 0  # answered from the cache, counted without a lock
        self._records: dict[tuple[str, Verdict], int] = {}
        self._moving: dict[str, int] = {}  # unit -> log time at which its owner was to let go
        self.lookups = self._counter(
            "anabranch_lookups", "Look-ups that had to wait or failed, by outcome.", "outcome"
        )
        self.session_lapses = self._counter(
            "anabranch_session_lapses", "Times that this node's lease lapsed."
        )
        self.digest_mismatches = self._counter(
            "anabranch_digest_mismatch", "Times that two nodes' states differed at one offset."
        )
        self.snapshots = self._counter(
            "anabranch_snapshots", "Snapshots written by this node, by result.", "result"
        )
        self.append_failures = self._counter(
            "anabranch_append_failures", "Appends to the log that Kafka reported as failed."
        )
        self.hand_over = Histogram(
            "anabranch_hand_over_seconds",
            "From a bundle's release request to its next owner, by the log's clock.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.verdict = Histogram(
            "anabranch_proposal_seconds",
            "From a proposal of this node to its verdict.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.registry.register(self)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def folded(self, entry: Folded) -> None:
        """An entry of the log was read."""
        outcome = entry.outcome
        label = (record_kind(entry.record), outcome.verdict)
        self._records[label] = self._records.get(label, 0) + 1
        for key, entity in outcome.changes:
            if type(entity) is not Unit:
                continue
            if entity.state is UnitState.RELEASING:
                self._moving[key] = entity.since_ms
            elif self._moving and entity.state in _ARRIVED:
                began = self._moving.pop(key, None)
                if began is not None:
                    self.hand_over.observe(max(0, entity.since_ms - began) / 1000)

    def collect(self) -> Iterable[Metric]:
        """Yields metrics that are counted without prometheus_client, for the sake of speed."""
        records = CounterMetricFamily(
            "anabranch_log_records",
            "Log records read, by kind and verdict.",
            None,
            ["kind", "verdict"],
        )
        unreadable = 0
        for (kind, verdict), count in sorted(self._records.items()):
            records.add_metric([kind, verdict.name.lower()], count)
            unreadable += count if verdict is Verdict.UNREADABLE else 0
        yield records
        yield CounterMetricFamily(
            "anabranch_unreadable_records", "Log records of no known schema.", unreadable
        )
        yield CounterMetricFamily(
            "anabranch_lookups_cached", "Look-ups answered at once.", self.fast_lookups
        )
