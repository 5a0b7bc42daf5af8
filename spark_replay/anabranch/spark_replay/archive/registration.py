"""Registers an archive with the cluster, and tells it the archive's end.

The log is trimmed up to the lowest end of all registered archives. So an archive is registered
before it reads anything. Its mark, a consumer group's committed offset, is told late rather than
early.
"""

from __future__ import annotations

import re
import secrets
import socket
from typing import Final

import msgspec
import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition

from anabranch.channel.archives import ArchiveRegistry
from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.kafka.connection import KAFKA_S_MAX
from anabranch.channel.kafka.topics import topic_id
from anabranch.core.entities.archive import is_archive_id
from anabranch.spark_replay.archive.folders import Folder
from anabranch.spark_replay.sources import AuditError, KafkaSource

_log = structlog.get_logger(__name__)
IDENTITY: Final = "_archive.json"  # readers of Parquet skip names that start like this
_NAME_MAX: Final = 60
_STRANGE: Final = re.compile(r"[^A-Za-z0-9._-]+")


class ArchiveIdentity(msgspec.Struct, frozen=True):
    """The content of the identity file in an archive's folder.

    `log_id` is Kafka's own id of the archived topic. `first_offset` is the begin of the archive.
    """

    id: str
    log_id: str
    first_offset: int


def identity_of(kafka: KafkaSource, folder: Folder, log_id: str = "") -> ArchiveIdentity | None:
    """Returns the folder's identity, None if it has none yet.
    Raises AuditError for one that is damaged, and for an archive of another log, all of whose
    records would be accused.
    """
    log = kafka.names.wal
    try:
        found = msgspec.json.decode(folder.read(IDENTITY), type=ArchiveIdentity)
        fault = "" if is_archive_id(found.id) else f"{found.id!r} is no archive's id"
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        fault = str(error)
    if fault:
        raise AuditError(
            f"{folder}/{IDENTITY} cannot be read ({fault}): start a new archive in another "
            "directory, and retire this one with `anabranch archive --retire ID` (`--list` shows "
            "the ids)"
        )
    if found.log_id != (log_id or topic_id(kafka.connection, log, KAFKA_S_MAX)):
        raise AuditError(
            f"the archive in {folder} is of another log than {log} is now: check --archive-dir, "
            "bootstrap servers and topic prefix, or start a new archive in another directory"
        )
    return found


class ArchiveRegistration:
    """Registers one archive of the WAL when it is opened for writing, before it reads anything.

    `until` is the first offset that the archive does not hold, None for an empty one. Raises
    AnabranchError if the archive cannot be continued, or cannot be registered.
    """

    def __init__(
        self,
        kafka: KafkaSource,
        folder: Folder,
        until: int | None,
        passed_over: frozenset[int] = frozenset(),
    ) -> None:
        self._kafka = kafka
        self._folder = folder
        self._registry = ArchiveRegistry(
            kafka.connection,
            kafka.names,
            f"archive@{socket.gethostname()}",
            lambda: secrets.token_hex(16),
            passed_over=passed_over,
        )
        try:
            self._identity = self._identified(until)
            self.is_new = self._identity.id not in self._registry.read()
            self._registry.register(
                self._identity.id, self._identity.first_offset, folder.where[:1_000]
            )
            # The log may have been trimmed until it was registered, but not since.
            self.first_offset = kafka.extent(kafka.names.wal).first_offset
            self._committer: Consumer = kafka.connection.consumer(
                group_id=kafka.names.archive_group(self._identity.id)
            )
        except BaseException:
            self._registry.close()
            raise

    @property
    def id(self) -> str:
        """Its name on the log."""
        return self._identity.id

    def _identified(self, until: int | None) -> ArchiveIdentity:
        log = self._kafka.names.wal
        log_id = topic_id(self._kafka.connection, log, KAFKA_S_MAX)
        first = self._kafka.extent(log).first_offset
        found = identity_of(self._kafka, self._folder, log_id)
        if until is None:
            name = _STRANGE.sub("-", self._folder.name).strip("._-")[:_NAME_MAX] or "archive"
            unique = f"{name}-{secrets.token_hex(4)}"
            fresh = ArchiveIdentity(unique if found is None else found.id, log_id, first)
            self._folder.write(IDENTITY, msgspec.json.encode(fresh))  # whole or not at all
            return fresh
        if found is None:
            raise AuditError(
                f"the archive in {self._folder} has no identity, so the log does not know it: "
                "start a new archive in another directory"
            )
        if first > until:
            raise AuditError(
                f"the archive in {self._folder} ends at offset {until}, but {log} begins at "
                f"{first}: what lies between is in neither, because the archive was retired or "
                "records were deleted by hand. Start a new archive in another directory"
            )
        return found

    def tell(self, until: int) -> None:
        """Tells that the archive holds all before `until`, for certain and on the disk.

        A group without members forgets its offset after a while, so it is told again and again.
        While Kafka is away it waits for the next time. Raises AuditError if the archive was
        retired, so that nothing waits for it any more.
        """
        try:
            registered = self._registry.read()
        except KafkaUnreachableError as error:
            _log.warning("archive_not_published", offset=until, reason=str(error))
            return
        if self._identity.id not in registered:
            raise AuditError(
                f"archive {self.id} in {self._folder} was retired: the log is no longer kept for "
                "it. Start it again to have it registered anew"
            )
        place = TopicPartition(self._kafka.names.wal, 0, until)
        try:
            self._committer.commit(offsets=[place], asynchronous=False)
        except KafkaException as error:
            # The next round says it again; until then the WAL is just not trimmed.
            _log.warning("archive_not_published", offset=until, reason=error.args[0].str())

    def close(self) -> None:
        """Ends the telling."""
        self._committer.close()
        self._registry.close()
