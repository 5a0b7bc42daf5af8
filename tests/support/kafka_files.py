"""Client files of Kafka's users, whose secrets must be told nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from anabranch.access.kafka import KafkaAccess, read_access

KAFKA_FILES: Final = Path(__file__).parents[1] / "testdata" / "kafka_files"
SECRETS: Final = ("planted-secret-1", "planted-secret-2")
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


def written(file: Path, properties: Mapping[str, str]) -> Path:
    """The file, with these properties in it."""
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return file


def of(file: Path, *lines: str, **environment: str) -> KafkaAccess:
    """What a file of these lines and the environment say together."""
    file.write_text("".join(f"{line}\n" for line in lines))
    return read_access(file, environment)
