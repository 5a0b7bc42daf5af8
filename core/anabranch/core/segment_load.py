"""`SegmentLoad`: the traffic of one segment (seed 000, "SegmentLoadStats")."""

from __future__ import annotations

import msgspec

Rates = tuple[float, float, float, float]


class SegmentLoad(msgspec.Struct, frozen=True, rename="camel"):
    """`SegmentLoadStats` of one segment: rates per second over the last minute.

    `modified_ms`: when it was written last, by the log's clock. It is written anew only when a rate
    has changed much, so a load that reads cold has been cold since then.
    """

    msg_rate_in: float
    bytes_rate_in: float
    msg_rate_out: float
    bytes_rate_out: float
    modified_ms: int

    @property
    def rates(self) -> Rates:
        """Messages and bytes in, messages and bytes out."""
        return (self.msg_rate_in, self.bytes_rate_in, self.msg_rate_out, self.bytes_rate_out)
