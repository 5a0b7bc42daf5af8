"""A topic's segments over time.
Each is a rectangle, whose width is its life and whose height is its range.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from anabranch.core.hashing import RING16
from anabranch.spark_replay.audit.statistics import SegmentSpan
from anabranch.spark_replay.report.charts import (
    WIDTH,
    Bins,
    Mark,
    instant,
    marked_instants,
    svg,
    time_axis,
)

_LEFT: Final = 56
_RIGHT: Final = 12
_TOP: Final = 10
_BOTTOM: Final = 26
_HEIGHT: Final = 200
_NAMED: Final = (26, 13)  # a rectangle of this size in pixels has room for the segment's id


def ring(spans: Sequence[SegmentSpan], bins: Bins, marks: Sequence[Mark] = ()) -> str:
    """Draws segments.
    Time goes to the right, the ring of hashes downwards; a split cuts, a merge joins.
    """
    plot_width, plot_height = WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    scale = plot_width / (bins.end_ms - bins.start_ms)
    parts = [time_axis(bins, _LEFT, plot_width, _HEIGHT - _BOTTOM)]
    for quarter in range(5):
        at = min(RING16 - 1, RING16 * quarter // 4)
        y = _TOP + plot_height * quarter / 4
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" class="tick" text-anchor="end">{at:04x}</text>'
        )
    for span in spans:
        since_ms = max(span.since_ms, bins.start_ms)
        until_ms = bins.end_ms if span.until_ms < 0 else span.until_ms
        x, width = _LEFT + (since_ms - bins.start_ms) * scale, (until_ms - since_ms) * scale
        y = _TOP + span.start / RING16 * plot_height
        height = (span.end + 1 - span.start) / RING16 * plot_height
        lasts = "the end" if span.until_ms < 0 else instant(until_ms, 1)
        tip = (
            f"segment {span.segment_id} [{span.start:04x}-{span.end:04x}], from "
            f"{instant(since_ms, 1)} to {lasts}"
        )
        parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(0.6, width):.2f}" height="{height:.2f}" '
            f'class="segment"><title>{escape(tip)}</title></rect>'
        )
        if width >= _NAMED[0] and height >= _NAMED[1]:
            parts.append(
                f'<text x="{x + 5:.1f}" y="{y + height / 2 + 4:.1f}" class="tick">'
                f"{span.segment_id}</text>"
            )
    parts.append(marked_instants(marks, bins, _LEFT, plot_width, _HEIGHT - _BOTTOM))
    return svg(_HEIGHT, "".join(parts))
