"""Charts over time of the audit alone: a topic's segments, and the owners of units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from anabranch.core.hashing import RING16
from anabranch.spark_replay.audit.statistics import OwnershipSpan, SegmentSpan
from anabranch.spark_replay.report.charts import (
    OTHERS,
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
_ROW: Final = 17
_NAMES: Final = 300  # room for the names of a timeline's rows
_NAMED: Final = (26, 13)  # a rectangle of this size in pixels has room for the segment's id


def ring(spans: Sequence[SegmentSpan], bins: Bins, marks: Sequence[Mark] = ()) -> str:
    """Draws each segment as a rectangle: as wide as its life, as high as its range.

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


def timeline(
    rows: Sequence[tuple[str, Sequence[OwnershipSpan]]],
    bins: Bins,
    colour_of: Mapping[str, str],
    marks: Sequence[Mark] = (),
) -> str:
    """Draws the owners of each unit over time; a gap is a time without an owner."""
    height = _TOP + _ROW * len(rows) + _BOTTOM
    plot_width = WIDTH - _NAMES - _RIGHT
    scale = plot_width / (bins.end_ms - bins.start_ms)
    parts = [time_axis(bins, _NAMES, plot_width, height - _BOTTOM)]
    for row, (name, spans) in enumerate(rows):
        y = _TOP + row * _ROW
        parts.append(
            f'<text x="{_NAMES - 8}" y="{y + 12}" class="name" text-anchor="end">'
            f"{escape(_trimmed(name))}</text>"
            f'<rect x="{_NAMES}" y="{y + 2}" width="{plot_width}" height="{_ROW - 4}" '
            'class="track"/>'
        )
        for span in spans:
            until_ms = bins.end_ms if span.until_ms < 0 else span.until_ms
            x = _NAMES + (max(span.since_ms, bins.start_ms) - bins.start_ms) * scale
            width = max(0.6, (until_ms - span.since_ms) * scale)
            lasts = "the end" if span.until_ms < 0 else instant(until_ms, 1)
            tip = f"{name}: {span.broker} from {instant(span.since_ms, 1)} to {lasts}"
            parts.append(
                f'<rect x="{x:.2f}" y="{y + 2}" width="{width:.2f}" height="{_ROW - 4}" '
                f'fill="{colour_of.get(span.broker, OTHERS)}"><title>{escape(tip)}</title></rect>'
            )
    parts.append(marked_instants(marks, bins, _NAMES, plot_width, height - _BOTTOM))
    return svg(height, "".join(parts))


def _trimmed(name: str) -> str:
    return name if len(name) <= 46 else f"{name[:20]}…{name[-25:]}"
