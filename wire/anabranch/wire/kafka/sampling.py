"""Samples of a Kafka topic: the first and the last records with a key of each partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from anabranch.core.adoption.verdict import Sample
from anabranch.wire import clock
from anabranch.wire.kafka.protocol import Ask
from anabranch.wire.kafka.stored import StoredRecord, batches, fetch

SAMPLES_MAX: Final = 200  # of each end of a partition
_SAMPLES_IN_ALL: Final = 20_000  # of each end, of all partitions; they are judged within a second
_SAMPLES_MIN: Final = 8
_BYTES_IN_ALL: Final = 64 << 20  # of each look
_BYTES_MIN: Final = 64 << 10
_FETCH_BYTES: Final = 4 << 20
_PARTITION_BYTES: Final = 256 << 10
_AT_ONCE: Final = 64  # partitions
_FIRST: Final = 8  # offsets, so that large records cannot keep the newest ones from being read
_WIDER: Final = 16  # times the offsets, where many records have no key

Spans = Mapping[int, tuple[int, int]]  # of offsets, by partition
Read = Callable[[Spans, int], "Seen"]  # at most so many records with a key of each partition


class Seen(NamedTuple):
    """The records that were read, by partition, and the codecs of their batches. `cut` has the
    partitions with more bytes than are read at once.
    """

    records: dict[int, list[StoredRecord]]
    codecs: set[str]
    cut: set[int]


class Samples(NamedTuple):
    """`unkeyed` is the number of records without a key among all that were read. `registry_keys`
    and `registry_values` are those that begin as a schema registry's do.
    """

    keyed: list[Sample]
    records: int
    unkeyed: int
    registry_keys: int
    registry_values: int
    codecs: tuple[str, ...]


def sample(read: Read, spans: Spans) -> Samples:
    """Samples partitions, each from its begin to its end. Raises what `read` raises.

    The looks at the last records become wider until enough of them have a key. A partition that is
    read as a whole is cut in the middle, so no record is in both its ends.
    """
    most = max(_SAMPLES_MIN, min(SAMPLES_MAX, _SAMPLES_IN_ALL // max(1, len(spans))))
    found: dict[int, list[StoredRecord]] = {n: [] for n in spans}
    since = {n: end for n, (_, end) in spans.items()}
    uncut, codecs = set(spans), set[str]()
    for size in (_FIRST, most // 4, 2 * most, _WIDER * most):
        wider = {
            n: (max(spans[n][0], since[n] - size), since[n])
            for n in uncut
            if since[n] > spans[n][0] and len(_keyed(found[n])) < most
        }
        seen = read(wider, size)
        codecs |= seen.codecs
        uncut -= seen.cut
        for n, (start, _) in wider.items():
            if n not in seen.cut or not found[n]:  # else these do not reach up to the others
                found[n] = seen.records[n] + found[n]
                since[n] = start
    heads, others, _ = read({n: (s, since[n]) for n, (s, _) in spans.items() if s < since[n]}, most)
    keyed: list[Sample] = []
    for n, records in found.items():
        newest, oldest = _keyed(records), _keyed(heads.get(n, []))
        if since[n] == spans[n][0]:
            half = len(newest) // 2
            oldest, newest = newest[:half], newest[half:]
        keyed += (Sample(each.key or b"", n, each.offset, False) for each in oldest[:most])
        keyed += (Sample(each.key or b"", n, each.offset, True) for each in newest[-most:])
    every = [each for part in (found, heads) for records in part.values() for each in records]
    return Samples(
        keyed,
        len(every),
        sum(each.key is None for each in every),
        sum(_is_registered(each.key or b"") for each in every),
        sum(_is_registered(each.value_head) for each in every),
        tuple(sorted((codecs | others) - {""})),
    )


def read_spans(ask: Ask, topic: str, spans: Spans, keyed_max: int, until: float) -> Seen:
    """Reads these spans of partitions that the asked broker leads, within bounds of bytes.

    `until`: a time of the wire's clock. Raises OSError, also when it is over, or
    KafkaProtocolError.
    """
    allowed = max(_BYTES_MIN, _BYTES_IN_ALL // max(1, len(spans)))
    seen = Seen({n: [] for n in spans}, set(), set())
    left = {n: start for n, (start, end) in spans.items() if start < end}
    used = dict.fromkeys(left, 0)
    while left:
        if clock.now() > until:
            raise TimeoutError(f"the time for reading records of {topic} is over")
        asked = dict(list(left.items())[:_AT_ONCE])
        told = fetch(ask, topic, asked, _FETCH_BYTES, min(allowed, _PARTITION_BYTES))
        is_silent = not any(told.values())  # behind the last record there may be a hole
        for n in asked:
            at = left.pop(n)  # it comes last, from now on
            data = told.get(n, b"")
            used[n] += len(data)
            for batch in batches(data):
                at = max(at, batch.next_offset)
                seen.codecs.add(batch.codec)
                start, end = spans[n]
                seen.records[n] += (each for each in batch.records if start <= each.offset < end)
            if at >= spans[n][1] or is_silent or len(_keyed(seen.records[n])) >= keyed_max:
                continue
            if used[n] >= allowed:
                seen.cut.add(n)
            else:
                left[n] = at
    return seen


def _keyed(records: list[StoredRecord]) -> list[StoredRecord]:
    return [each for each in records if each.key is not None]


def _is_registered(data: bytes) -> bool:
    """Tells whether it begins with a zero and a schema's id, which is never 0."""
    return len(data) > 5 and data[0] == 0 and data[1:5] != bytes(4)
