"""Settling what is in doubt: which of a producer's messages a sealed partition holds.

Two ways, both exact; neither compares content or time, so equal messages of other producers cannot
be mistaken for ours, nor ours for theirs. Both rest on this: the producer is idempotent, so Kafka
stores its appends to a partition in the order of sending, each once, with no gap; and the partition
is sealed, so what it has now it has for ever, and no more comes.

* By number: the partition's leader tells the sequence number of the last message it has stored of
  the producer (`producer_state`), which counts them. What exceeds the acknowledged ones are the
  first ones of those in doubt (`first_of`). It holds while the producer kept one id and, in this
  partition, the first epoch of it; librdkafka leaves them after errors of its own (the seal of this
  very partition included, whose messages go elsewhere). If it did, the outcome is called unknown.
* By header: every message carries the producer's id, and the partition is read between the last
  acknowledged offset and its sealed end. Those found are the first ones of those in doubt.

Messages that were given up before, so that their senders have been told, come before those in
doubt, and Kafka may have some of them. Where that makes the count mean more than one thing the
outcome is called unknown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from anabranch.client._aio import on_thread
from anabranch.client._errors import DeadlineError, UnknownOutcomeError
from anabranch.client._producer.kafka_writer import KafkaPartitionWriter
from anabranch.client._topics.layout import TopicLayout
from anabranch.core.topics.entries import PRODUCER_HEADER
from anabranch.wire.kafka import producer_state
from anabranch.wire.kafka.protocol import KafkaProtocolError

_POLL_S: Final = 0.2
_RECORDS: Final = 5_000
_ASK_S_MAX: Final = 10.0
_RETRY_S: Final = 0.1
_PASSING: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        # librdkafka asks for the coordinator of the group that it must be given; we need none.
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)

Found = list[tuple[int, int]]  # offset and time of each; -1 for what is not known


async def found(
    partition: KafkaPartitionWriter,
    layout: TopicLayout,
    kafka: Mapping[str, Any],
    patience_s: float,
    tick: asyncio.Event,
) -> Found:
    """What the sealed partition holds of what is in doubt, in the better of both ways.

    `tick` is set often. Raises DeadlineError, UnknownOutcomeError.
    """
    part = layout.segments.get(partition.segment.segment_id)
    if part is None:
        raise UnknownOutcomeError("its segment was pruned")
    end = part.info.end_offsets[partition.bucket]
    if partition.segment_writer.counts:
        kafka_id = await _kafka_id(partition, patience_s, tick)
        return await on_thread(by_number, partition, kafka_id, end, kafka, patience_s)
    located = {"bootstrap.servers": layout.bootstrap_servers, **kafka}
    return await on_thread(by_header, partition, end, located, patience_s)


async def _kafka_id(partition: KafkaPartitionWriter, patience_s: float, tick: asyncio.Event) -> int:
    began = time.monotonic()
    while time.monotonic() < began + patience_s:
        found = partition.segment_writer.kafka_id(not_before=partition.refused_at)
        if found is not None:
            return found
        tick.clear()
        await tick.wait()
    raise DeadlineError("Kafka's client did not tell its producer id in time")


def by_number(
    partition: KafkaPartitionWriter,
    kafka_id: int,
    end: int,
    kafka: Mapping[str, Any],
    timeout_s: float,
) -> Found:
    """What the partition, sealed at `end`, holds beyond what was acknowledged. Blocks.

    Raises DeadlineError, UnknownOutcomeError.
    """
    deadline = time.monotonic() + timeout_s
    place = (partition.topic, partition.bucket)
    while True:
        try:
            leader = partition.segment_writer.leader(*place)
            states = producer_state.ask(leader, place, end, kafka, _ASK_S_MAX)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                raise DeadlineError(f"its leader could not be asked: {error}") from None
            time.sleep(_RETRY_S)
        except KafkaProtocolError as error:
            raise UnknownOutcomeError(str(error)) from None
    mine = next((state for state in states if state.producer_id == kafka_id), None)
    if mine is not None and mine.epoch != 0:
        raise UnknownOutcomeError("Kafka's client has changed its epoch meanwhile")
    stored = 0 if mine is None else mine.last_sequence + 1
    beyond = (stored - partition.acked_count) % producer_state.SEQUENCES
    return [(-1, -1)] * first_of(len(partition.refused), beyond, partition.forgone)


def first_of(refused: int, beyond: int, forgone: int) -> int:
    """How many of the refused messages Kafka has, which are the first ones of them.

    Kafka has `beyond` messages that it has not acknowledged; they may be of the `forgone` ones as
    well, which were given up before. Raises UnknownOutcomeError.

    >>> first_of(3, 2, 0), first_of(3, 0, 5)
    (2, 0)
    """
    if beyond > refused + forgone:
        raise UnknownOutcomeError(
            f"Kafka has {beyond} more messages of this producer than it acknowledged, which cannot "
            f"be: {refused} were refused, {forgone} given up"
        )
    least, most = max(0, beyond - forgone), min(beyond, refused)
    if least != most:
        raise UnknownOutcomeError(
            f"Kafka has {beyond} more messages of this producer than it acknowledged, and "
            f"{forgone} were given up before the {refused} refused ones"
        )
    return least


def by_header(
    partition: KafkaPartitionWriter, end: int, kafka: Mapping[str, Any], timeout_s: float
) -> Found:
    """The same for messages with headers; `end` excludes itself; `kafka` with its address. Blocks.

    Raises DeadlineError, UnknownOutcomeError.
    """
    first = partition.last_offset + 1
    if first >= end:
        return []
    deadline = time.monotonic() + timeout_s
    place = TopicPartition(partition.topic, partition.bucket, first)
    consumer = _reader(kafka)
    try:
        consumer.assign([place])
        found = _scan(consumer, place, end, partition.segment_writer.producer_id, deadline)
        beyond = found[partition.unlocated :]  # those before are acknowledged
        count = first_of(len(partition.refused), len(beyond), partition.forgone)
        return beyond[len(beyond) - count :]
    except KafkaException as error:
        raise UnknownOutcomeError(f"it cannot be read: {error.args[0].str()}") from None
    finally:
        consumer.close()


def _reader(kafka: Mapping[str, Any]) -> Consumer:
    own = {
        "group.id": "anabranch-no-group",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_uncommitted",
        "fetch.wait.max.ms": 10,
        "enable.partition.eof": True,
    }
    try:
        return Consumer({**own, **kafka})
    except KafkaException as error:
        raise UnknownOutcomeError(f"nothing can be read: {error.args[0].str()}") from None


def _scan(
    consumer: Consumer, place: TopicPartition, end: int, producer_id: bytes, deadline: float
) -> Found:
    found: Found = []
    next_offset = place.offset
    while next_offset < end:
        if time.monotonic() > deadline:
            raise DeadlineError(f"it was read up to {next_offset} only, not to {end}")
        first = consumer.poll(_POLL_S)
        if first is None:
            continue
        for message in (first, *consumer.consume(_RECORDS, 0)):
            error = message.error()
            offset: int = message.offset()  # type: ignore[assignment]  # only errors have none
            if error is None:
                next_offset = offset + 1
                if next_offset <= end and is_own(message.headers(), producer_id):
                    found.append((offset, message.timestamp()[1]))
            elif error.code() == KafkaError._PARTITION_EOF:
                next_offset = max(next_offset, offset)  # gaps, as transactions leave them
            elif not error.retriable() and error.code() not in _PASSING:
                raise KafkaException(error)
    return found


def is_own(headers: Any, producer_id: bytes) -> bool:
    """Whether a record's headers name that producer."""
    return any(name == PRODUCER_HEADER and value == producer_id for name, value in headers or ())
