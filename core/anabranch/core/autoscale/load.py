"""`SegmentLoad`: the traffic of one segment (PIP-483, "SegmentLoadStats")."""

from __future__ import annotations

from decimal import Decimal
from operator import lt
from typing import Final

import msgspec

Rates = tuple[float, float, float, float]

NO_RATES: Final[Rates] = (0.0, 0.0, 0.0, 0.0)


def rate_in_words(rate: float) -> str:
    """Writes a rate with at most three significant digits, as it is known no better; no exponent.

    >>> [rate_in_words(rate) for rate in (0.0, 18.4167, 999.96, 54_321_987.0)]
    ['0', '18.4', '1000', '54300000']
    """
    return f"{Decimal(f'{rate:.3g}'):f}"


class LoadRecord(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The traffic of one segment as it is stored: rates per second over the last minute.

    Bytes are those of the messages' values. Without reports of producers, the byte rate in is an
    estimate: Kafka's rate of messages, times a size that other messages have (`SegmentMeter`).
    """

    msg_rate_in: float
    bytes_rate_in: float
    msg_rate_out: float
    bytes_rate_out: float

    @property
    def rates(self) -> Rates:
        """Messages and bytes in, messages and bytes out."""
        return (self.msg_rate_in, self.bytes_rate_in, self.msg_rate_out, self.bytes_rate_out)

    def at(self, modified_ms: int) -> SegmentLoad:
        """The load that was written then."""
        return SegmentLoad(*self.rates, modified_ms)


class SegmentLoad(LoadRecord, frozen=True, rename="camel", gc=False):
    """`SegmentLoadStats` of one segment. `modified_ms`: the time of its last write, by the log's
    clock.

    The controller writes a new one only after a rate has changed much, so a load that reads cold
    has been cold since then.
    """

    modified_ms: int


def changed(
    last_written: Rates | None, now: Rates, threshold: float, negligible: Rates = NO_RATES
) -> bool:
    """Tells whether the load needs a write.

    It does if a rate came from 0 or went to it, or changed by more than a share of the last written
    one (PIP-483, "Significant-change threshold"). `last_written` is None if nothing was written
    yet.

    Rates below `negligible` are all alike. A trickle varies by more than any share from minute to
    minute. If each change were written, a segment with a trickle would never have been cold for
    long.

    >>> changed((1000.0, 0.0, 0.0, 0.0), (1250.0, 0.0, 0.0, 0.0), 0.25)
    False
    >>> changed((1000.0, 0.0, 0.0, 0.0), (1251.0, 0.0, 0.0, 0.0), 0.25)
    True
    """
    if last_written is None:
        return True
    pairs = zip(last_written, now, negligible, strict=True)
    return any(
        (before == 0) is not (after == 0) or abs(after - before) > threshold * before
        for before, after, least in pairs
        if before >= least or after >= least
    )


def is_cold(rates: Rates, thresholds: Rates) -> bool:
    """Tells whether a segment with these rates may be merged: all are below the merge
    thresholds.
    """
    return all(map(lt, rates, thresholds))


def load_key(topic: str, incarnation: int, segment_id: int) -> str:
    """The key of a segment's load record; `topic` is `tenant/namespace/name`.

    >>> load_key("public/default/orders", 42, 3)
    'segment:public/default/orders/42/3'
    """
    return f"segment:{topic}/{incarnation}/{segment_id}"


def parse_load_key(key: str) -> tuple[str, int, int] | None:
    """Topic, incarnation and segment id of a key; None for a key of anything else.

    >>> parse_load_key("segment:public/default/orders/42/3")
    ('public/default/orders', 42, 3)
    """
    kind, _, rest = key.partition(":")
    parts = rest.rsplit("/", 2)
    if kind != "segment" or len(parts) != 3 or not parts[0]:
        return None
    incarnation, segment_id = parts[1], parts[2]
    if not all(part.isascii() and part.isdecimal() for part in (incarnation, segment_id)):
        return None
    return parts[0], int(incarnation), int(segment_id)
