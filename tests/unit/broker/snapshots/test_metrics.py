"""The metrics of archives follow what the leader knows, and are gone when it leads no more."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from anabranch.broker.snapshots.trim_watch import ArchiveMetrics, TrimWatch
from anabranch.core.entities.archive import Archive


def test_each_archive_shows_its_place_and_its_distance_until_another_node_leads() -> None:
    watch, registry = TrimWatch(3_600.0), CollectorRegistry()
    registry.register(ArchiveMetrics(watch))

    def shown(name: str) -> float | None:
        return registry.get_sample_value(f"anabranch_archive_{name}", {"archive": "a"})

    assert shown("next_offset") is None
    watch.looked(0.0, 100, {"a": Archive(1, 0, "h:/a", 0, "p")}, {"a": 10})
    assert (shown("next_offset"), shown("behind_records")) == (10, 90)
    watch.forget()
    assert (shown("next_offset"), shown("behind_records")) == (None, None)
