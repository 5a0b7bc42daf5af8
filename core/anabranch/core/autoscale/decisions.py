"""The possible results of an evaluation of a topic's load, each with its reason in words."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, unique

import msgspec


@unique
class Reason(Enum):
    """Why something is done; the values are those of metrics, logs and statistics."""

    CONSUMER_COUNT = "consumer-count"
    MSG_RATE_IN = "msgRateIn"
    BYTES_RATE_IN = "byteRateIn"
    MSG_RATE_OUT = "msgRateOut"
    BYTES_RATE_OUT = "byteRateOut"
    COLD = "cold"
    AT_MAX_SEGMENTS = "at-max-segments"
    BELOW_SPLIT_RATE_FLOOR = "below-split-rate-floor"


@unique
class Blocked(Enum):
    """The obstacle to a due action."""

    UNSPLITTABLE = "unsplittable"  # the range of the segment to split is one hash
    MAX_SEGMENTS = "max_segments"
    MAX_ENTRY_BUCKETS = "max_entry_buckets"
    MAX_DAG_DEPTH = "max_dag_depth"
    INVALID_POLICY = "invalid_policy"
    LAYOUT_SIZE = "layout_size"  # it would be too large to be told to clients


class Split(msgspec.Struct, frozen=True):
    """Divide this segment at its midpoint."""

    segment_id: int
    reason: Reason
    why: str


class Merge(msgspec.Struct, frozen=True):
    """Make one segment of these two, named in the order of the ring."""

    first_id: int
    second_id: int
    reason: Reason
    why: str


class Rebucket(msgspec.Struct, frozen=True):
    """Replace each of these segments, one after the other, by one with so many buckets."""

    segment_ids: tuple[int, ...]
    buckets: int
    reason: Reason
    why: str


class NoAction(msgspec.Struct, frozen=True):
    """Leave everything as it is. `blocked`: the obstacle to the first thing to do, if any."""

    blocked: Blocked | None
    why: str


Decision = Split | Merge | Rebucket | NoAction


def describe(decision: Decision) -> str:
    """Returns the action in few words, for logs and people."""
    match decision:
        case Split(segment_id):
            return f"split {segment_id}"
        case Merge(first_id, second_id):
            return f"merge {first_id} {second_id}"
        case Rebucket(segment_ids, buckets):
            return f"rebucket {_listed(segment_ids)} to {buckets}"
        case NoAction():
            return "none"


def _listed(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids[:8])) + (",..." if len(ids) > 8 else "")
