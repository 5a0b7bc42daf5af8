"""Settling what is in doubt: which of a producer's messages a sealed partition holds.

Exact, because a sealed partition ends at an offset that the layout states, every record of the
producer carries the producer's id in a header, and an idempotent producer's appends to a partition
are stored in the order of sending, each once, with no gap: those found behind the last acknowledged
offset are the first ones of those in doubt. Neither content nor time is compared, so equal messages
of other producers cannot be mistaken for ours.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from anabranch.client.errors import DeadlineError, UnknownOutcomeError
from anabranch.client.messages import PRODUCER_HEADER

_POLL_S: Final = 0.2
_RECORDS: Final = 5_000
_PASSING: Final = frozenset(
    {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}
)


def own_records(
    kafka: Mapping[str, Any],
    place: tuple[str, int],
    *,
    after: int,
    end: int,
    producer_id: bytes,
    timeout_s: float,
) -> list[tuple[int, int]]:
    """Offset and time of each record of the producer in a part of a sealed partition, `place`.

    `after`: the last one acknowledged, which excludes itself, or -1; `end` excludes itself too.
    Blocks. Raises DeadlineError, UnknownOutcomeError.
    """
    first = after + 1
    if first >= end:
        return []
    topic, partition = place
    deadline = time.monotonic() + timeout_s
    consumer = Consumer(
        {
            "group.id": "anabranch-no-group",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_uncommitted",
            "fetch.wait.max.ms": 10,
            "enable.partition.eof": True,
            **kafka,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, first)])
        return _scan(consumer, TopicPartition(topic, partition), end, producer_id, deadline)
    except KafkaException as error:
        raise UnknownOutcomeError(
            f"{topic}[{partition}] cannot be read: {error.args[0].str()}"
        ) from None
    finally:
        consumer.close()


def _scan(
    consumer: Consumer, place: TopicPartition, end: int, producer_id: bytes, deadline: float
) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    next_offset = 0
    while next_offset < end:
        if time.monotonic() > deadline:
            raise DeadlineError(
                f"{place.topic}[{place.partition}] was not read up to {end} in time"
            )
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
