"""`SoftStateTopic`: a compacted topic between the nodes, for state that may be lost and written
again.

A lost record is written again when its content changes, and one of a later release's schema is
passed over. A record that Kafka does not take now waits, the newest of each key only. A reader
begins at the first record, so after a whole read it has the newest of every key. It reads that much
as fast as Kafka gives it. Later records may be half a second old, so that many nodes' records,
written one by one, come together: a fetch for each took ten times the reader's work on the records.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final, Generic, TypeVar, cast

import msgspec
import structlog
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from anabranch.channel.codec import SCHEMA_HEADER, decode_own
from anabranch.channel.errors import KafkaRefusedError, NewerSchemaError, UnreadableError
from anabranch.channel.kafka.connection import KafkaConnection, close_consumer, is_passing
from anabranch.channel.passed_over import PassedOver
from anabranch.channel.registry import SchemaSet

_V = TypeVar("_V", bound=msgspec.Struct)  # the written type
_C = TypeVar("_C")  # the type that readers get

_BATCH_MAX: Final = 2_000
_IN_FLIGHT_MAX: Final = 1_000
_WAITING_MAX: Final = 200_000  # keys; of segments, more than a node can serve
_DELIVERY_TIMEOUT_MS: Final = 10_000
_CLOSE_S_MAX: Final = 1.0
_LOOK_S: Final = 0.1
# Kafka answers at once; a first read ends with one fetch that finds nothing, and waits so long.
_AT_FIRST: Final = {"fetch_min_bytes": 1, "fetch_wait_max_ms": 10}
# Kafka waits for more: a heartbeat's default interval is no age for a load.
_AFTERWARDS: Final = {"fetch_min_bytes": 65_536, "fetch_wait_max_ms": 500}
_log = structlog.get_logger()


class SoftStateTopic(ABC, Generic[_V, _C]):
    """Reads everybody's records, and writes this node's. `write_keys` is for any thread, `poll` for
    one.

    `event`: the first word of its log lines. `schemas`: those of its records. `follows`: True if
    it is read. It may be turned on, which reads all from the beginning, and off. Each takes effect
    at the next `poll`.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        event: str,
        schemas: SchemaSet,
        *,
        follows: bool = True,
    ) -> None:
        self.follows = follows
        self.is_whole = False  # True once all that there was has been read
        self.written = 0
        self._topic = topic
        self._event = event
        self._schemas = schemas
        self._passed_over = PassedOver(f"{event}.newer")  # records, those with a strange key too
        self._refusals: list[str] = []  # reasons of failed writes, since the last report
        self._lock = threading.Lock()  # guards the two below
        self._waiting: dict[str, _V | None] = {}
        self._under_way: set[str] = set()  # one of a key at a time, so that the newest is the last
        self._connection = connection
        self._producer: Producer | None = None  # there is one from the first record on
        self._wanted = threading.Event()  # it is
        self._consumer: Consumer | None = None  # there is one while the topic is followed
        self._next_offset = OFFSET_BEGINNING

    @property
    def unreadable(self) -> int:
        """Returns the number of records passed over: they had an unknown schema, or a
        strange key.
        """
        return self._passed_over.count

    @property
    def waiting(self) -> int:
        """Returns how many records Kafka has yet to take."""
        return len(self._waiting) + len(self._under_way)

    def write_keys(self, records: Mapping[str, _V | None]) -> None:
        """Has the records written soon; None takes one away. Never blocks; a newer one replaces."""
        with self._lock:
            self._waiting.update(records)
            while len(self._waiting) > _WAITING_MAX:
                del self._waiting[next(iter(self._waiting))]
        if records:
            self._wanted.set()

    def poll(self, timeout_s: float) -> list[_C]:
        """Waits for records and returns as soon as there are some. Raises KafkaRefusedError."""
        self._follow()
        self._send()
        consumer = self._consumer
        if self._producer is not None:
            self._producer.poll(timeout_s if consumer is None else 0)
        elif consumer is None:
            self._wanted.wait(timeout_s)
        self._tell()
        first = None if consumer is None else consumer.poll(timeout_s)
        if consumer is None or first is None:
            return []
        was_whole = self.is_whole
        changes = []
        for message in (first, *consumer.consume(_BATCH_MAX, 0)):
            error = message.error()
            if error is not None:
                self._note(error, message)
                continue
            self._next_offset = _offset(message) + 1
            change = self._read(message)
            if change is not None:
                changes.append(change)
        if self.is_whole and not was_whole:
            self._follow_from(self._next_offset, _AFTERWARDS)
        return changes

    def read_whole(self, timeout_s: float) -> list[_C]:
        """All records, for a caller before the first `poll`; fewer if `is_whole` does not hold in
        time.

        Raises KafkaRefusedError.
        """
        deadline = time.monotonic() + timeout_s
        found: list[_C] = []
        while not self.is_whole and (left_s := deadline - time.monotonic()) > 0:
            found += self.poll(min(left_s, _LOOK_S))
        return found

    def close(self) -> None:
        """Ends the clients; no other call may be under way."""
        self._send()
        if self._producer is not None:
            self._producer.flush(_CLOSE_S_MAX)
        self._tell()
        self._follow_no_more()

    @abstractmethod
    def _change(self, key: str, record: _V | None, written_ms: int) -> _C | None:
        """What a record says, None: its key says no more; None for a strange key."""

    def _follow(self) -> None:
        if self.follows is (self._consumer is not None):
            return
        self.is_whole = False
        if self.follows:
            self._follow_from(OFFSET_BEGINNING, _AT_FIRST)
        else:
            self._follow_no_more()

    def _follow_from(self, offset: int, patience: Mapping[str, int]) -> None:
        """Another consumer takes over, because a consumer's patience cannot be changed."""
        self._follow_no_more()
        self._next_offset = offset
        self._consumer = self._connection.consumer(
            is_polled=True,
            auto_offset_reset="earliest",  # to read something again does no harm
            enable_partition_eof=True,
            **patience,
        )
        self._consumer.assign([TopicPartition(self._topic, 0, offset)])

    def _follow_no_more(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            close_consumer(consumer)

    def _tell(self) -> None:
        refusals, self._refusals = self._refusals, []
        if refusals:
            _log.info(f"{self._event}.not_written", count=len(refusals), why=refusals[-1])

    def _note(self, error: KafkaError, message: Message) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            self.is_whole = True
            self._next_offset = _offset(message)
        elif not is_passing(error):
            raise KafkaRefusedError(f"{self._topic} cannot be read: {error.str()}")

    def _read(self, message: Message) -> _C | None:
        key, value = message.key() or b"", message.value()
        try:
            record = None if value is None else decode_own(self._schemas, self._topic, value)
        except (UnreadableError, NewerSchemaError) as error:
            self._passed_over.note(error, key)
            return None
        found = self._change(key.decode(errors="replace"), record, message.timestamp()[1])
        if found is None:
            self._passed_over.note(None, key)
        return found

    def _send(self) -> None:
        with self._lock:
            room = _IN_FLIGHT_MAX - len(self._under_way)
            due = [key for key in self._waiting if key not in self._under_way][: max(0, room)]
            records = {key: self._waiting.pop(key) for key in due}
            self._under_way.update(records)
        for key, record in records.items():
            try:
                self._produce(key, record)
            except (BufferError, KafkaException) as error:
                self._failed(key, record, str(error))

    def _produce(self, key: str, record: _V | None) -> None:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self._failed(key, record, error.str())
                return
            self.written += 1
            with self._lock:
                self._under_way.discard(key)

        self._producer = self._producer or self._connection.producer(
            is_polled=True,
            enable_idempotence=False,
            linger_ms=5,
            delivery_timeout_ms=_DELIVERY_TIMEOUT_MS,
            request_timeout_ms=_DELIVERY_TIMEOUT_MS,
        )
        value, headers = None, list[tuple[str, str | bytes | None]]()
        if record is not None:
            value = self._schemas.encode(record)
            headers.append((SCHEMA_HEADER, self._schemas.header(record)))
        self._producer.produce(
            self._topic, value, key.encode(), 0, headers=headers, on_delivery=delivered
        )

    def _failed(self, key: str, record: _V | None, why: str) -> None:
        """Queues a record again whose write failed, unless there is a newer one."""
        self._refusals.append(why)
        with self._lock:
            self._under_way.discard(key)
            self._waiting.setdefault(key, record)


def _offset(message: Message) -> int:
    """The message's offset, or that of the end that it tells."""
    return cast(int, message.offset())  # None is that of a message that is yet to be sent
