"""The leader's compactor: changed states and the horizon they stand for, in one transaction.

Kafka's own compaction keeps the last record of a key; first-valid-wins needs the first valid one.
So the WAL is folded, and its result written to a topic whose last record of a key is right.

All changes and the horizon share one transaction, however many they are. With several transactions,
a reader could meet states that are newer than its horizon. Replaying the WAL from there would give
accepted records another verdict, and the digests would differ. A transaction is bounded by time,
not by memory: records leave the client's bounded queue as they are written.

The transactional id is the cluster's, not the node's. Taking it over fences its former user, even
in the middle of a transaction.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final

import msgspec
import structlog
from confluent_kafka import (
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from anabranch.channel.codec import HORIZON_KEY, Horizon, encode_horizon
from anabranch.channel.errors import FencedError, SnapshotFailedError
from anabranch.channel.kafka.connection import KAFKA_S_MAX, KafkaConnection, close_consumer
from anabranch.channel.kafka.deletion import delete_records, led
from anabranch.channel.kafka.topics import RECORD_BYTES_MAX, Topics
from anabranch.channel.snapshots.reader import Pair, last_horizon
from anabranch.core.errors import AnabranchError

_TRANSACTION_S_MAX: Final = 300.0
_QUEUE_MAX: Final = 100_000
_SERVE_EVERY: Final = 10_000
_FULL_S: Final = 0.05
_ABORT_S_MAX: Final = 5.0
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
_log = structlog.get_logger()


class TrimResult(msgspec.Struct, frozen=True):
    """The result of a trimming.

    `begins_at`: the first offset that the WAL still holds, None if nothing may be trimmed yet.
    `marks`: for each archive, the first offset that it does not hold; None for one that never said
    it.
    """

    begins_at: int | None
    marks: Mapping[str, int | None]


class Compactor:
    """Writes snapshots and trims the WAL. One thread at a time; every call blocks.

    After an error of Kafka in `begin` or `snapshot` it is of no more use and repeats that error:
    close it, and make another if this node leads (still, or again).
    """

    def __init__(
        self, connection: KafkaConnection, topics: Topics, deadline_s: float = 30.0
    ) -> None:
        self._connection = connection
        self._topics = topics
        self._deadline_s = deadline_s
        self._horizon: Horizon | None = None
        self._failed: AnabranchError | None = None
        self._admin = connection.admin()
        self._producer: Producer = connection.producer(
            transactional_id=topics.compactor_id,
            transaction_timeout_ms=round(_TRANSACTION_S_MAX * 1000),
            delivery_timeout_ms=round(deadline_s * 1000),
            linger_ms=5,
            batch_size=1_000_000,
            message_max_bytes=RECORD_BYTES_MAX,
            queue_buffering_max_messages=_QUEUE_MAX,
            queue_buffering_max_kbytes=32_768,
        )

    @property
    def horizon(self) -> Horizon | None:
        """The newest horizon that this compactor knows to be committed."""
        return self._horizon

    def begin(self) -> Horizon | None:
        """Takes the snapshot over from its former writer; returns the horizon that it stands for.

        Raises SnapshotFailedError, FencedError or KafkaUnreachableError.
        """
        try:
            self._producer.init_transactions(self._deadline_s)
        except KafkaException as error:
            raise self._explained(error, "take the snapshot over") from None
        self._horizon = last_horizon(self._connection, self._topics)
        return self._horizon

    def snapshot(self, changes: Iterable[Pair], horizon: Horizon) -> None:
        """Commits changes (None: the key is gone) together with the horizon they lead to.

        `changes` must hold every key that differs from the snapshot that `begin` found or this
        compactor last committed; more does no harm. Raises SnapshotFailedError or FencedError.
        """
        if self._failed is not None:
            raise self._failed.with_traceback(None)
        before = self._horizon.next_offset if self._horizon else 0
        if horizon.next_offset < before:
            raise SnapshotFailedError(
                f"{self._topics.snapshot} stands for offset {before} already, and this node has "
                f"folded only up to {horizon.next_offset}: it must catch up first"
            )
        deadline = time.monotonic() + _TRANSACTION_S_MAX - self._deadline_s
        try:
            self._producer.begin_transaction()
            for count, (key, value) in enumerate(changes, 1):
                self._produce(key, value, deadline)
                if count % _SERVE_EVERY == 0:
                    self._producer.poll(0)
            self._produce(HORIZON_KEY.encode(), encode_horizon(horizon), deadline)
            self._commit()
        except KafkaException as error:
            fenced = error if error.args[0].code() in _FENCED else self._abort()
            self._failed = self._explained(fenced or error, "commit a snapshot")
            raise self._failed.with_traceback(None) from None
        except BaseException:
            self._abort()
            raise
        self._horizon = horizon

    def _produce(self, key: bytes, value: bytes | None, deadline: float) -> None:
        while True:
            try:
                self._producer.produce(self._topics.snapshot, value, key, 0)
            except BufferError:
                if time.monotonic() > deadline:
                    raise SnapshotFailedError(
                        f"{self._topics.snapshot} did not take a snapshot's records within "
                        f"{_TRANSACTION_S_MAX:.0f} s: is Kafka overloaded or its disk full?"
                    ) from None
                self._producer.poll(_FULL_S)
            else:
                return

    def _commit(self) -> None:
        deadline = time.monotonic() + self._deadline_s
        while True:
            try:
                self._producer.commit_transaction(max(deadline - time.monotonic(), _FULL_S))
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return

    def _abort(self) -> KafkaException | None:
        """Frees readers from waiting for this transaction; if that fails, its time-out will.

        Returns the error that says that this compactor is fenced: it may only come to light here.
        """
        try:
            self._producer.abort_transaction(_ABORT_S_MAX)
        except KafkaException as error:
            if error.args[0].code() in _FENCED:
                return error
            _log.info("snapshot.abort_failed", reason=error.args[0].str())
        return None

    # --- trimming -----------------------------------------------------------------------

    def trim(self, archives: Iterable[str]) -> TrimResult:
        """Drops what every one of these archives holds and a snapshot that everybody can read.

        `archives`: all that are registered; without any, nothing is dropped. The horizon is read
        back, not remembered: a commit is answered a little before readers see it, and a deposed
        leader may call this without harm. Raises KafkaUnreachableError or KafkaRefusedError.
        """
        marks = {
            archive: archive_mark(self._connection, self._topics, archive, self._deadline_s)
            for archive in archives
        }
        horizon = last_horizon(self._connection, self._topics)
        known = [mark for mark in marks.values() if mark is not None]
        if not known or len(known) < len(marks) or horizon is None:
            return TrimResult(None, marks)
        wal, up_to = (self._topics.wal, 0), min(*known, horizon.next_offset)
        doing = f"to trim {wal[0]} up to {up_to}"
        try:
            leading = led(self._admin, [wal[0]], self._deadline_s)
            future = delete_records(self._admin, {wal: up_to}, leading).get(wal)
            if future is None:
                raise self._connection.unreachable(f"{doing}: it has no leader")
            return TrimResult(int(future.result(self._deadline_s).low_watermark), marks)
        except FutureTimeoutError:
            raise self._connection.unreachable(doing) from None
        except KafkaException as error:
            raise self._connection.explained(error, doing) from None

    def close(self) -> None:
        """Ends the clients. A transaction under way is aborted by the next compactor."""
        self._producer.purge()
        with contextlib.suppress(KafkaException):  # fenced, and says so once more
            self._producer.flush(_ABORT_S_MAX)

    def _explained(self, error: KafkaException, doing: str) -> AnabranchError:
        reason = error.args[0]
        if reason.code() in _FENCED:
            return FencedError(
                f"another node has taken over {self._topics.compactor_id}: this one no longer "
                f"leads, and may not {doing}"
            )
        return SnapshotFailedError(
            f"Kafka at {self._connection.bootstrap_servers} did not {doing} "
            f"({self._topics.snapshot}): {reason.str()}"
        )


def archive_mark(
    connection: KafkaConnection, topics: Topics, archive: str, timeout_s: float = KAFKA_S_MAX
) -> int | None:
    """The first WAL offset that the archive does not hold yet; None when it has said nothing.

    Raises KafkaUnreachableError or KafkaRefusedError.
    """
    # Not through the admin client: librdkafka 2.16 crashes when one asks this of a coordinator
    # that has just changed.
    reader = connection.consumer(group_id=topics.archive_group(archive))
    try:
        committed = reader.committed([TopicPartition(topics.wal, 0)], timeout_s)
    except KafkaException as error:
        raise connection.explained(error, f"to tell how far archive {archive} is") from None
    finally:
        close_consumer(reader)
    offset: int = committed[0].offset
    return offset if offset >= 0 else None
