"""What an archive tells the cluster, and what it does where it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog

from anabranch.channel.archives import ArchiveRegistry
from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.spark_replay.archive import registration
from anabranch.spark_replay.archive.folders import LocalFolder
from anabranch.spark_replay.archive.registration import ArchiveRegistration
from anabranch.spark_replay.sources import Extent, KafkaSource

NOWHERE = KafkaConnection("127.0.0.1:1", {}, "test")


class Registry(ArchiveRegistry):
    """Whether it is registered is known until Kafka is away."""

    is_away = False

    def read(self) -> dict[str, object]:  # type: ignore[override]
        if self.is_away:
            raise KafkaUnreachableError("Kafka at 127.0.0.1:1 does not answer")
        return dict.fromkeys(self.registered)

    registered: tuple[str, ...] = ()

    def register(self, archive: str, first_offset: int, place: str) -> None:
        Registry.registered = (archive,)


class Source(KafkaSource, frozen=True):
    def extent(self, topic: str) -> Extent:
        return Extent(0, 10)


def test_an_archive_goes_on_without_kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells its place every second: one that is not told is told a second later."""
    monkeypatch.setattr(registration, "ArchiveRegistry", Registry)
    monkeypatch.setattr(registration, "topic_id", lambda *_: "log")
    standing = ArchiveRegistration(Source(NOWHERE, Topics("t.")), LocalFolder(tmp_path), None)
    try:
        monkeypatch.setattr(Registry, "is_away", True)
        with structlog.testing.capture_logs() as lines:
            standing.tell(5)
        (line,) = lines
        assert (line["event"], line["offset"]) == ("archive_not_published", 5)
        assert "does not answer" in line["reason"]
    finally:
        standing.close()
