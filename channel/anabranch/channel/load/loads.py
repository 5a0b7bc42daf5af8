"""Segments' load on Kafka: the table of it that every node keeps, and the topic between the nodes.

The load is soft state. A record that is lost is written again when the load changes, one of a later
release's schema is passed over, and what Kafka does not take now waits, the newest of each segment
only. The topic is compacted, so a table that was read whole has the newest load of every segment.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
import structlog
from confluent_kafka import (
    OFFSET_BEGINNING,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from anabranch.channel.codec import decode_load, encode_load, load_header
from anabranch.channel.errors import KafkaRefusedError, NewerSchemaError, UnreadableError
from anabranch.channel.kafka.connection import KafkaConnection, close_consumer
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.log.kafka_log import is_passing
from anabranch.channel.passed_over import PassedOver
from anabranch.core.autoscale.load import LoadRecord, SegmentLoad, load_key, parse_load_key

_BATCH_MAX: Final = 2_000
_IN_FLIGHT_MAX: Final = 1_000
_WAITING_MAX: Final = 200_000  # more segments than a node can serve
_DELIVERY_TIMEOUT_MS: Final = 10_000
_CLOSE_S_MAX: Final = 1.0
_log = structlog.get_logger()


class SegmentKey(msgspec.Struct, frozen=True, gc=False):
    """A segment; `topic` is `tenant/namespace/name`."""

    topic: str
    incarnation: int
    segment_id: int

    @property
    def key(self) -> str:
        """Its load's key on Kafka."""
        return load_key(self.topic, self.incarnation, self.segment_id)


LoadChange = tuple[SegmentKey, SegmentLoad | None]  # None: it takes no messages any more


class LoadTable:
    """The newest load of each active segment, as far as it is read. To be used by one thread."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, dict[int, SegmentLoad]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def segments(self, topic: str, incarnation: int) -> Mapping[int, SegmentLoad]:
        """Returns the loads by segment id; a segment whose load nobody has written is not there."""
        return self._topics.get(topic, {}).get(incarnation, {})

    def topics(self) -> Iterator[str]:
        """The topics that something is known of."""
        return iter(list(self._topics))

    def places(self, topic: str) -> Iterator[SegmentKey]:
        """The segments of a topic, and of its former incarnations, that something is known of."""
        for incarnation, segments in self._topics.get(topic, {}).items():
            for segment_id in segments:
                yield SegmentKey(topic, incarnation, segment_id)

    def take(self, changes: Iterable[LoadChange]) -> None:
        """Returns what was read, in order."""
        for place, load in changes:
            if load is None:
                self._drop(place)
                continue
            known = self._topics.setdefault(place.topic, {}).setdefault(place.incarnation, {})
            self._count += place.segment_id not in known
            known[place.segment_id] = load

    def _drop(self, place: SegmentKey) -> None:
        incarnations = self._topics.get(place.topic, {})
        segments = incarnations.get(place.incarnation, {})
        if segments.pop(place.segment_id, None) is None:
            return
        self._count -= 1
        if not segments:
            del incarnations[place.incarnation]
        if not incarnations:
            del self._topics[place.topic]


class KafkaLoads:
    """Reads everybody's load records from the first one on, and writes this node's.

    `write` is for any thread, `poll` for one.
    """

    def __init__(self, connection: KafkaConnection, topics: Topics) -> None:
        self._topic = topics.load
        self.is_whole = False  # whether all that there was has been read once
        self._passed_over = PassedOver("load.newer")  # records, those with a strange key too
        self.written = 0
        self._refusals: list[str] = []  # why loads were not written, since it was told last
        self._lock = threading.Lock()  # of the two below
        self._waiting: dict[str, LoadRecord | None] = {}
        self._under_way: set[str] = set()  # one of a key at a time, so that the newest is the last
        self._producer = connection.producer(
            enable_idempotence=False,
            linger_ms=5,
            delivery_timeout_ms=_DELIVERY_TIMEOUT_MS,
            request_timeout_ms=_DELIVERY_TIMEOUT_MS,
        )
        self._consumer = connection.consumer(
            auto_offset_reset="earliest",  # to read something again does no harm
            enable_partition_eof=True,
        )
        self._consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])

    @property
    def unreadable(self) -> int:
        """Returns how many records were passed over: of no known schema, or with a strange key."""
        return self._passed_over.count

    @property
    def waiting(self) -> int:
        """Returns how many records Kafka has yet to take."""
        return len(self._waiting) + len(self._under_way)

    def write(self, loads: Mapping[SegmentKey, LoadRecord | None]) -> None:
        """Has the loads written soon; None takes one away. Never blocks; a newer one replaces."""
        with self._lock:
            for place, load in loads.items():
                self._waiting[place.key] = load
            while len(self._waiting) > _WAITING_MAX:
                del self._waiting[next(iter(self._waiting))]

    def poll(self, timeout_s: float) -> list[LoadChange]:
        """Waits for records and returns as soon as there are some. Raises KafkaRefusedError."""
        self._send()
        self._producer.poll(0)
        self._tell()
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        changes = []
        for message in (first, *self._consumer.consume(_BATCH_MAX, 0)):
            error = message.error()
            if error is not None:
                self._note(error)
                continue
            change = self._read(message)
            if change is not None:
                changes.append(change)
        return changes

    def close(self) -> None:
        """Ends the clients; no other call may be under way."""
        self._send()
        self._producer.flush(_CLOSE_S_MAX)
        self._tell()
        close_consumer(self._consumer)

    def _tell(self) -> None:
        refusals, self._refusals = self._refusals, []
        if refusals:
            _log.info("load.not_written", count=len(refusals), why=refusals[-1])

    def _note(self, error: KafkaError) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            self.is_whole = True
        elif not is_passing(error):
            raise KafkaRefusedError(f"{self._topic} cannot be read: {error.str()}")

    def _read(self, message: Message) -> LoadChange | None:
        key = message.key()
        found = parse_load_key((key or b"").decode(errors="replace"))
        if found is None:
            self._passed_over.note(None, key)
            return None
        value = message.value()
        if value is None:
            return SegmentKey(*found), None
        try:
            return SegmentKey(*found), decode_load(value).at(message.timestamp()[1])
        except (UnreadableError, NewerSchemaError) as error:
            self._passed_over.note(error, key)
        return None

    def _send(self) -> None:
        with self._lock:
            room = _IN_FLIGHT_MAX - len(self._under_way)
            due = [key for key in self._waiting if key not in self._under_way][: max(0, room)]
            loads = {key: self._waiting.pop(key) for key in due}
            self._under_way.update(loads)
        for key, load in loads.items():
            try:
                self._produce(key, load)
            except (BufferError, KafkaException) as error:
                self._failed(key, load, str(error))

    def _produce(self, key: str, load: LoadRecord | None) -> None:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self._failed(key, load, error.str())
                return
            self.written += 1
            with self._lock:
                self._under_way.discard(key)

        value = None if load is None else encode_load(load)
        headers: list[tuple[str, str | bytes | None]] = [] if load is None else [load_header(load)]
        self._producer.produce(
            self._topic, value, key.encode(), 0, headers=headers, on_delivery=delivered
        )

    def _failed(self, key: str, load: LoadRecord | None, why: str) -> None:
        """Queues a load again whose write failed, unless there is a newer one."""
        self._refusals.append(why)
        with self._lock:
            self._under_way.discard(key)
            self._waiting.setdefault(key, load)
