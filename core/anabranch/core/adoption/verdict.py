"""The partitioner by which a Kafka topic was written, as samples of its records show it.

A partitioner that has nothing to do with the writer agrees with it by chance, for 1 of n keys of n
partitions. Relatives agree for half of the keys or more. So only a partitioner that explains every
key counts, and for enough keys. Results hold counts and names, never a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, unique
from typing import Final, NamedTuple

import msgspec

from anabranch.core.partitioners import NUMBERS, Partitioner

KEYS_MIN: Final = 64  # one of two partitions explains so many by chance once in 2e19 times


@unique
class PartitionerVerdict(Enum):
    """The answer to the question by which partitioner the topic was written."""

    CERTAIN = "certain"  # one explains every key
    SET = "set"  # several explain every key, so any of them will do
    SINCE = "since"  # as CERTAIN or SET for the newest records, not for the oldest ones
    MIXED = "mixed"  # two explain every key together, and neither of them alone
    UNKNOWN = "unknown"
    TOO_FEW = "too_few"  # keys, to tell
    UNKEYED = "unkeyed"  # all records


@dataclass(frozen=True, slots=True)
class Sample:
    """A record with a key. `is_tail`: it is one of the newest of its partition, not the oldest."""

    key: bytes = field(repr=False)
    partition: int
    offset: int
    is_tail: bool


class PartitionerJudgement(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A verdict, and the counts behind it. A place is a key in a partition.

    `partitioners`: those that explain it; of MIXED, the one that explains more comes first.
    `explained`: places by partitioner; several may explain the same one. `keys`: different ones,
    without the empty one. `split_keys`: those seen in several partitions, so their order did not
    hold. `unkeyed`: records without a key that were seen. `since_offset`: older records may lie
    elsewhere; of SINCE. `earlier_partitions`: their number, if places are explained by the first of
    `partitioners` and an increase from it.
    """

    verdict: PartitionerVerdict
    partitioners: tuple[Partitioner, ...] = ()
    places: int
    keys: int
    explained: Mapping[Partitioner, int]
    split_keys: int
    unkeyed: int
    since_offset: int | None = None
    earlier_partitions: int | None = None


class _Place(NamedTuple):
    """`numbers`: of the key, by partitioner. `head_offset`: -1 if it is in no head."""

    numbers: Sequence[int]
    partition: int
    is_tail: bool
    head_offset: int

    def fits(self, index: int, partitions: int) -> bool:
        return self.numbers[index] % partitions == self.partition


_ALL: Final = tuple(Partitioner)


def judge(samples: Iterable[Sample], partitions: int, unkeyed: int = 0) -> PartitionerJudgement:
    """Judges the samples of a topic of so many partitions, and of records without a key.

    Empty keys do not count, because librdkafka sends them anywhere. A single partition is where
    each partitioner puts each key, so it takes no samples.
    """
    by_key = _by_key(samples)
    places = [
        _Place(numbers, partition, *seen)
        for key, parts in by_key.items()
        for numbers in [[NUMBERS[each](key) for each in _ALL]]
        for partition, seen in parts.items()
    ]
    fits = [[place.fits(index, partitions) for place in places] for index in range(len(_ALL))]
    counts = [sum(each) for each in fits]
    found = PartitionerJudgement(
        verdict=PartitionerVerdict.UNKNOWN,
        places=len(places),
        keys=len(by_key),
        explained=dict(zip(_ALL, counts, strict=True)),
        split_keys=sum(len(parts) > 1 for parts in by_key.values()),
        unkeyed=unkeyed,
    )
    whole = [index for index, count in enumerate(counts) if count == len(places)]
    if partitions > 1 and len(by_key) < KEYS_MIN:
        verdict = (
            PartitionerVerdict.TOO_FEW if by_key or not unkeyed else PartitionerVerdict.UNKEYED
        )
        return msgspec.structs.replace(found, verdict=verdict)
    if whole:
        verdict = PartitionerVerdict.CERTAIN if len(whole) == 1 else PartitionerVerdict.SET
        return msgspec.structs.replace(found, verdict=verdict, partitioners=_named(whole))
    tail_keys = sum(any(is_tail for is_tail, _ in parts.values()) for parts in by_key.values())
    return (
        (_since(found, places, fits, partitions) if tail_keys >= KEYS_MIN else None)
        or _mixed(found, fits)
        or _grown(found, places, partitions)
        or found
    )


def _by_key(samples: Iterable[Sample]) -> dict[bytes, dict[int, tuple[bool, int]]]:
    """Returns the partitions of each key, each with whether the key is in its tail, and its last
    offset in the head.
    """
    found: dict[bytes, dict[int, tuple[bool, int]]] = {}
    for each in samples:
        if each.key:
            parts = found.setdefault(each.key, {})
            is_tail, head_offset = parts.get(each.partition, (False, -1))
            offset = -1 if each.is_tail else each.offset
            parts[each.partition] = (is_tail or each.is_tail, max(head_offset, offset))
    return found


def _since(
    found: PartitionerJudgement,
    places: Sequence[_Place],
    fits: Sequence[Sequence[bool]],
    partitions: int,
) -> PartitionerJudgement | None:
    """Returns the verdict if a partitioner explains each tail."""
    whole = [
        index
        for index, each in enumerate(fits)
        if all(fit or not place.is_tail for fit, place in zip(each, places, strict=True))
    ]
    if not whole:
        return None
    others = zip(fits[whole[0]], places, strict=True)
    last = max(place.head_offset for fit, place in others if not fit)
    earlier = (_earlier(places, each, partitions, 1) for each in whole)
    return msgspec.structs.replace(
        found,
        verdict=PartitionerVerdict.SINCE,
        partitioners=_named(whole),
        since_offset=last + 1,
        earlier_partitions=next(filter(None, earlier), None),
    )


def _mixed(
    found: PartitionerJudgement, fits: Sequence[Sequence[bool]]
) -> PartitionerJudgement | None:
    """Returns the verdict if two explain all together."""
    ranked = sorted(range(len(fits)), key=lambda index: -sum(fits[index]))
    for first in ranked:
        for second in ranked:
            if all(one or other for one, other in zip(fits[first], fits[second], strict=True)):
                named = _named((first, second))
                return msgspec.structs.replace(
                    found, verdict=PartitionerVerdict.MIXED, partitioners=named
                )
    return None


def _grown(
    found: PartitionerJudgement, places: Sequence[_Place], partitions: int
) -> PartitionerJudgement | None:
    """Returns the unknown verdict with the partitioner that would explain all, had the topic fewer
    partitions before, or a mirror's source.
    """
    for index in range(len(_ALL)):
        earlier = _earlier(places, index, partitions, 2)
        if earlier is not None:
            named = _named((index,))
            return msgspec.structs.replace(found, partitioners=named, earlier_partitions=earlier)
    return None


def _earlier(places: Sequence[_Place], index: int, partitions: int, least: int) -> int | None:
    """Returns a number of partitions with which, or with today's, it explains each place."""
    left = [place for place in places if not place.fits(index, partitions)]
    for fewer in range(partitions - 1, least - 1, -1):
        if all(place.fits(index, fewer) for place in left):
            return fewer
    return None


def _named(indices: Iterable[int]) -> tuple[Partitioner, ...]:
    return tuple(_ALL[index] for index in indices)
