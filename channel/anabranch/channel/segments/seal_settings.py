"""The settings by which Kafka refuses every append to a sealed segment, and their change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

import structlog
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from anabranch.channel.errors import KafkaPolicyError
from anabranch.channel.kafka.deadline import Deadline
from anabranch.channel.kafka.propagation import values_of
from anabranch.core.entities.segment import SEALED_BYTES, SEALED_BYTES_BARE
from anabranch.core.topics.kafka_names import FUTURE_MS_MAX

LIMIT: Final = "max.message.bytes"
# Each batch of a client has 80 bytes at least once it is compressed by gzip, whose header and
# trailer alone have 18. Snappy, also of clients as they are, makes less of what repeats itself.
SEAL: Final = {LIMIT: str(SEALED_BYTES)}  # a sealed segment has these
COMPRESSION: Final = "compression.type"
STAMP: Final = "message.timestamp.after.max.ms"  # any value will do that the probe exceeds
SEALED: Final = {
    **SEAL,
    # The lock checks a checked size again, unless the batch is compressed by this.
    COMPRESSION: "gzip",
    # Without these two Kafka would store the probe while the segment is still open.
    "message.timestamp.type": "CreateTime",
    STAMP: str(FUTURE_MS_MAX),
}
# Without these two Kafka would store the probe while an adopted topic is still open. A broker that
# shows the second bound has put the first one into force.
BOUNDS: Final = tuple(
    {"message.timestamp.type": SEALED["message.timestamp.type"], STAMP: str(FUTURE_MS_MAX + each)}
    for each in (1, 2)
)
# For a Kafka that does not keep the compression: the smallest batches, which have 68 bytes, would
# pass the limit above. This one refuses the ends of open transactions, too, so those hang.
SEALED_BARE: Final = {
    n: value for n, value in {**SEALED, LIMIT: str(SEALED_BYTES_BARE)}.items() if n != COMPRESSION
}
_UNKNOWN_TOPIC: Final = KafkaError.UNKNOWN_TOPIC_OR_PART

Changes = Mapping[str, Future[Any]]  # by topic
_log = structlog.get_logger()


def is_sealed(settings: Mapping[str, str]) -> bool:
    """Tells whether the settings of a Kafka topic are those of a sealed segment."""
    return settings.get(LIMIT) in (SEALED[LIMIT], SEALED_BARE[LIMIT])


def seal_in(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Returns what a sealed segment's topic has to have: the seal that is there, or the usual one.

    >>> seal_in({"max.message.bytes": "1"}), seal_in({"max.message.bytes": "1048588"})
    ({'max.message.bytes': '1'}, {'max.message.bytes': '78'})
    """
    return {LIMIT: settings[LIMIT]} if is_sealed(settings) else SEAL


def change(
    admin: AdminClient,
    settings: Mapping[str, str | None],
    names: Sequence[str],
    *,
    only_asks: bool = False,
) -> Changes:
    """Asks Kafka's controller to change settings of topics, and does not wait.

    None: the topic is to have its broker's value. `only_asks`: whether it would.
    """
    kind = AlterConfigOpType
    resources = [
        ConfigResource(
            ConfigResource.Type.TOPIC,
            name,
            incremental_configs=[
                ConfigEntry(
                    key, value, incremental_operation=kind.DELETE if value is None else kind.SET
                )
                for key, value in settings.items()
            ],
        )
        for name in names
    ]
    asked = admin.incremental_alter_configs(resources, validate_only=only_asks)
    return {resource.name: future for resource, future in asked.items()}


def changed(
    changes: Changes,
    ask: Callable[[Sequence[str]], Changes],
    deadline: Deadline,
    doing: str = "to seal topic {name}",
) -> set[str]:
    """Returns once Kafka has changed all, or would. Returns the topics that somebody has deleted.

    Kafka's controller itself, which is never behind, names these: they take no appends any more.
    `ask`: asks for the same change again, of topics that Kafka has not changed.
    """
    gone: set[str] = set()
    while True:
        answers = {
            name: deadline.answer(future, doing.format(name=name))
            for name, future in changes.items()
        }
        failed = {n: each for n, each in answers.items() if isinstance(each, KafkaError)}
        gone |= {n for n, error in failed.items() if error.code() == _UNKNOWN_TOPIC}
        left = [name for name in failed if name not in gone]
        if not left:
            return gone
        deadline.pause(doing.format(name=left[0]))
        changes = ask(left)


class SealForm:
    """The settings by which one Kafka seals, known once the first seal is read back.

    Not each Kafka keeps the compression: some refuse it, some take it and do nothing. Those get
    the bare seal.
    """

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._kept: Mapping[str, str] | None = None

    def begin(self, names: Sequence[str]) -> Changes:
        """Asks Kafka's controller to seal topics, and does not wait."""
        return change(self._admin, self._kept or SEALED, names)

    def end(self, names: Sequence[str], changes: Changes, deadline: Deadline) -> set[str]:
        """Returns once all have the seal. Returns the topics that somebody has deleted."""
        try:
            gone = changed(changes, self.begin, deadline)
            there = [name for name in names if name not in gone]
            if not there or self._kept is not None:
                return gone
            if self._is_kept(there[0], deadline):
                self._kept = SEALED
                return gone
        except KafkaPolicyError:
            if self._kept is not None:
                raise
        self._kept = SEALED_BARE
        _log.warning("segment.sealed_bare", topic=names[0], limit=SEALED_BARE[LIMIT])
        return changed(self.begin(names), self.begin, deadline)

    def _is_kept(self, name: str, deadline: Deadline) -> bool:
        """Tells whether Kafka has kept the compression, once it shows the seal."""
        topic = ConfigResource(ConfigResource.Type.TOPIC, name)
        doing = f"to read {LIMIT}={SEALED[LIMIT]} of topic {name} back"
        while True:
            answer = deadline.answer(self._admin.describe_configs([topic])[topic], doing)
            if isinstance(answer, KafkaError):
                if answer.code() == _UNKNOWN_TOPIC:  # deleted meanwhile; another one will tell
                    return True
            # Both are in one change, so a broker that shows the one has read of the other.
            elif is_sealed(shown := values_of(answer)):
                return shown.get(COMPRESSION) == SEALED[COMPRESSION]
            deadline.pause(doing)
