"""How a node's view comes up to the log: from its folder, from the snapshot, or from both.

A view that is behind the trimmed log is filled anew from the snapshot.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from anabranch.broker.errors import StartError
from anabranch.broker.logging import get_logger
from anabranch.channel.codec import Horizon
from anabranch.channel.errors import LogTrimmedError
from anabranch.channel.kafka.connection import KAFKA_S_MAX, KafkaConnection
from anabranch.channel.kafka.topics import Topics, topic_id
from anabranch.channel.log.kafka_log import KafkaLogReader
from anabranch.channel.snapshots.reader import SnapshotReader, last_horizon
from anabranch.projections.errors import SnapshotDamagedError, ViewDamagedError, ViewLogError
from anabranch.projections.view import View

_BATCH_MAX: Final = 5_000
_POLL_S: Final = 0.5
_QUIET_S_MAX: Final = 5.0  # without an entry though the log goes on: the rest are gaps
_ATTEMPTS_MAX: Final = 5  # to load a snapshot while the log is trimmed behind it

_log = get_logger()


def open_view(path: Path) -> View:
    """The view as it was left. Raises StartError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StartError(
            f"dataDir {path.parent} cannot be made: {error.strerror}; name another one, or "
            "correct its permissions"
        ) from None
    return View.open(path)


class CatchUp:
    """Brings a view up to the log's end, and leaves a reader that goes on from there."""

    def __init__(
        self,
        connection: KafkaConnection,
        topics: Topics,
        path: Path,
        log_id: str = "",
        *,
        passed_over: frozenset[int] = frozenset(),
    ) -> None:
        """`log_id`: the log that an empty view must meet; "" accepts any."""
        self._passed_over = passed_over
        self._connection = connection
        self._topics = topics
        self._path = path
        self._log_id = log_id

    def run(self) -> tuple[View, KafkaLogReader]:
        """Resumes the view, or builds it from the snapshot where it is empty or too old.

        A damaged one is put aside and built anew, once: a second time it is not the view's fault.
        Raises ViewLogError when the view was folded from another log.
        """
        try:
            return self._run()
        except ViewDamagedError as error:
            kept = View.put_aside(self._path)
            _log.warning("view.damaged", why=error.why, kept=str(kept))
        return self._run()

    def _run(self) -> tuple[View, KafkaLogReader]:
        began = time.monotonic()
        view = open_view(self._path)
        try:
            found = topic_id(self._connection, self._topics.wal, KAFKA_S_MAX)
            if self._log_id not in ("", found):
                raise ViewLogError(self._path, self._log_id, found, self._topics.wal)
            view.belong_to(found, self._topics.wal)
            resumed_at = view.next_offset
            if resumed_at == 0 and last_horizon(self._connection, self._topics) is not None:
                self._load(view)
            for _ in range(_ATTEMPTS_MAX):
                try:
                    reader = self._follow(view)
                except LogTrimmedError as error:
                    _log.warning("view.too_old", why=str(error))
                    self._load(view)
                else:
                    break
            else:
                raise StartError(
                    f"the log was trimmed past the snapshot {_ATTEMPTS_MAX} times while it was "
                    "being read; start this node again when the cluster is calmer"
                )
        except BaseException:
            view.close()
            raise
        _log.info(
            "view.caught_up",
            resumed_at=resumed_at,
            next_offset=view.next_offset,
            horizon=view.horizon,
            seconds=round(time.monotonic() - began, 3),
        )
        return view, reader

    def _load(self, view: View) -> None:
        """Replaces all that the view holds by the newest snapshot."""
        snapshot = SnapshotReader(self._connection, self._topics)

        def horizon() -> Horizon:
            found = snapshot.horizon
            if found is None:
                raise StartError(
                    f"{self._topics.wal} was trimmed, but {self._topics.snapshot} holds no "
                    "snapshot: restore the topic, or start a cluster on another topicPrefix"
                )
            return found

        try:
            view.load_snapshot(snapshot.batches(), horizon)
        except SnapshotDamagedError as error:
            raise StartError(
                f"{error}. This node does not start from it. Nodes that run have "
                f"their own state: stop one whose state is right, delete {self._topics.snapshot}, "
                "and start that node; it writes the topic anew. If the log has never been "
                "trimmed, deleting the topic is enough"
            ) from None
        for stray in view.strays:
            _log.warning("snapshot.stray", topic=self._topics.snapshot, record=stray)

    def _follow(self, view: View) -> KafkaLogReader:
        reader = KafkaLogReader(
            self._connection, self._topics.wal, view.next_offset, passed_over=self._passed_over
        )
        try:
            _, end = reader.offsets(KAFKA_S_MAX)
            heard = time.monotonic()
            while view.next_offset < end:
                entries = reader.poll(_BATCH_MAX, _POLL_S)
                if entries:
                    while entries[-1].offset >= view.next_offset:
                        view.read_batch(entries)
                    heard = time.monotonic()
                elif time.monotonic() - heard > _QUIET_S_MAX:
                    reader.offsets(KAFKA_S_MAX)  # Kafka is there: nothing is left to read
                    break
        except BaseException:
            reader.close()
            raise
        return reader
