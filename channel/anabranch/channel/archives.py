"""The archives of the log, for a program that is no node: it reads their records alone.

The verdict on a record about an archive depends on nothing but that archive (`core.archives`). So a
program that follows these records, from the newest snapshot on, knows the same as every node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from anabranch.channel.codec import is_about_archives, read_state
from anabranch.channel.errors import (
    AppendError,
    KafkaUnreachableError,
    LogTrimmedError,
    UnreadableError,
)
from anabranch.channel.kafka.connection import KAFKA_S_MAX, KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.log.entries import Entry, append_record, read_until
from anabranch.channel.log.kafka_log import KafkaLogReader, KafkaLogWriter
from anabranch.channel.snapshots.reader import SnapshotReader
from anabranch.core.archives.machine import evolve_archive
from anabranch.core.entities.archive import Archive, ArchiveOp, archive_key
from anabranch.core.errors import AnabranchError
from anabranch.core.log.records import ArchiveChange
from anabranch.core.log.verdicts import Verdict

_ATTEMPTS_MAX: Final = 5
_KEYS: Final = archive_key("").encode()


class ArchiveError(AnabranchError):
    """An archive that cannot be registered or retired; the message says what to do."""


class ArchiveRegistry:
    """Follows, registers and retires archives. One thread; every call waits for Kafka.

    `new_id` makes ids of proposals, no two alike anywhere; `actor`: the proposer's name, for
    people.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topics: Topics,
        actor: str,
        new_id: Callable[[], str],
        *,
        passed_over: frozenset[int] = frozenset(),
    ) -> None:
        self._connection = connection
        self._topics = topics
        self._actor = actor
        self._new_id = new_id
        self._passed_over = passed_over
        self._reader: KafkaLogReader | None = None
        self._archives: dict[str, Archive] = {}

    def close(self) -> None:
        """Ends the reader of the log."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    # --- what is registered -------------------------------------------------------------

    def read(self) -> Mapping[str, Archive]:
        """Reads the archives registered at the log's present end, by id. Raises AnabranchError."""
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            try:
                self._follow(self._reader or self._started())
            except LogTrimmedError:
                self.close()
                if attempt == _ATTEMPTS_MAX:
                    raise
            else:
                break
        return {key.partition(":")[2]: archive for key, archive in sorted(self._archives.items())}

    def _started(self) -> KafkaLogReader:
        snapshot = SnapshotReader(self._connection, self._topics)
        found: dict[str, Archive] = {}
        for batch in snapshot.batches():
            for key, value in batch:
                if not key.startswith(_KEYS):
                    continue
                if value is None:
                    found.pop(key.decode(errors="replace"), None)
                    continue
                try:
                    name, archive = read_state(key, value)
                except UnreadableError:
                    continue  # a stranger's: nodes leave it out, too
                if isinstance(archive, Archive):
                    found[name] = archive
        place = snapshot.horizon.next_offset if snapshot.horizon else 0
        self._archives = found
        self._reader = KafkaLogReader(
            self._connection,
            self._topics.wal,
            place,
            passed_over=self._passed_over,
            to_end=True,
        )
        return self._reader

    def _follow(self, reader: KafkaLogReader) -> dict[str, Verdict]:
        """Folds what there is; the verdicts of the proposals met."""
        _, end = reader.offsets(KAFKA_S_MAX)
        verdicts: dict[str, Verdict] = {}
        doing = f"to read {self._topics.wal}"
        for entries in read_until(reader, end, partial(self._connection.unreachable, doing)):
            for entry in entries:
                verdicts.update(self._folded(entry))
        return verdicts

    def _folded(self, entry: Entry) -> dict[str, Verdict]:
        if not is_about_archives(entry.value, entry.schema):
            return {}
        record = entry.record()
        if not isinstance(record, ArchiveChange):
            return {}
        before = self._archives.get(record.key)
        outcome = evolve_archive(before, record, entry.offset, entry.timestamp_ms)
        for key, after in outcome.changes:
            if isinstance(after, Archive):
                self._archives[key] = after
            else:
                self._archives.pop(key, None)
        return {record.proposal_id: outcome.verdict}

    # --- changes ------------------------------------------------------------------------

    def register(self, archive: str, first_offset: int, place: str) -> None:
        """Registers an archive that begins at `first_offset`; does nothing if it is registered.

        Raises AnabranchError.
        """
        if archive in self.read():
            return
        verdict = self._propose(
            ArchiveChange(
                proposal_id=self._new_id(),
                archive=archive,
                op=ArchiveOp.REGISTER,
                version=1,
                actor=self._actor,
                first_offset=first_offset,
                place=place,
            )
        )
        if verdict is not Verdict.ACCEPTED and archive not in self.read():
            raise ArchiveError(
                f"the log did not accept archive {archive} in {place}: {verdict.name}"
            )

    def retire(self, archive: str) -> None:
        """Nothing waits for this archive any more. Raises AnabranchError."""
        found = self.read()
        if archive not in found:
            known = ", ".join(found) or "none"
            raise ArchiveError(f"no archive {archive} is registered; those registered: {known}")
        verdict = self._propose(
            ArchiveChange(
                proposal_id=self._new_id(),
                archive=archive,
                op=ArchiveOp.RETIRE,
                version=found[archive].version + 1,
                actor=self._actor,
            )
        )
        if verdict is not Verdict.ACCEPTED and archive in self.read():
            raise ArchiveError(
                f"the log did not accept that archive {archive} is retired: {verdict.name}; "
                "ask again"
            )

    def _propose(self, record: ArchiveChange) -> Verdict:
        reader = self._reader or self._started()
        failures: list[AppendError] = []
        writer = KafkaLogWriter(self._connection, self._topics.wal)
        try:
            append_record(writer, record, lambda error: failures.append(error) if error else None)
        finally:
            writer.close()  # waits for it
        if failures:
            raise KafkaUnreachableError(
                f"{self._topics.wal} did not take the record on archive {record.archive}: "
                f"{failures[0]}; ask again"
            )
        return self._follow(reader)[record.proposal_id]
