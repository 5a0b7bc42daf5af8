"""The settings by which Kafka refuses every append to a sealed segment, and their change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from anabranch.channel.kafka.deadline import Deadline
from anabranch.core.topics.kafka_names import FUTURE_MS_MAX

LIMIT: Final = "max.message.bytes"
# The end of a transaction is a batch of 61 bytes of header and one record of 17 bytes: its length,
# attributes, two differences, a key of version and type, a value of version and epoch, no headers
# (KIP-98). Each batch of a client has 80 at least once it is compressed by gzip, whose header and
# trailer alone have 18. Snappy, also of clients as they are, makes less of what repeats itself.
_END_BYTES: Final = 61 + 17
SEAL: Final = {LIMIT: str(_END_BYTES)}  # a sealed segment has these
STAMP: Final = "message.timestamp.after.max.ms"  # any value will do that the probe exceeds
SEALED: Final = {
    **SEAL,
    # The lock checks a checked size again, unless the batch is compressed by this.
    "compression.type": "gzip",
    # Without these two Kafka would store the probe while the segment is still open.
    "message.timestamp.type": "CreateTime",
    STAMP: str(FUTURE_MS_MAX),
}
_UNKNOWN_TOPIC: Final = KafkaError.UNKNOWN_TOPIC_OR_PART

Changes = Mapping[str, Future[Any]]  # by topic


def is_sealed(settings: Mapping[str, str]) -> bool:
    """Tells whether the settings of a Kafka topic are those of a sealed segment."""
    return settings[LIMIT] == SEALED[LIMIT]


def change(admin: AdminClient, names: Sequence[str], settings: Mapping[str, str]) -> Changes:
    """Asks Kafka's controller to change settings of topics, and does not wait."""
    resources = [
        ConfigResource(
            ConfigResource.Type.TOPIC,
            name,
            incremental_configs=[
                ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
                for key, value in settings.items()
            ],
        )
        for name in names
    ]
    asked = admin.incremental_alter_configs(resources)
    return {resource.name: future for resource, future in asked.items()}


def changed(
    admin: AdminClient, changes: Changes, settings: Mapping[str, str], deadline: Deadline
) -> set[str]:
    """Returns once Kafka has changed all. Returns the topics that somebody has deleted.

    Kafka's controller itself, which is never behind, names these: they take no appends any more.
    """
    gone: set[str] = set()
    while True:
        answers = {
            name: deadline.answer(future, f"to seal topic {name}")
            for name, future in changes.items()
        }
        failed = {n: each for n, each in answers.items() if isinstance(each, KafkaError)}
        gone |= {n for n, error in failed.items() if error.code() == _UNKNOWN_TOPIC}
        left = [name for name in failed if name not in gone]
        if not left:
            return gone
        deadline.pause(f"to seal topic {left[0]}")
        changes = change(admin, left, settings)
