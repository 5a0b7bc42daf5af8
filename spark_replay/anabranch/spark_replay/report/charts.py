"""Plots as inline SVG: no script, no font, no file beside the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

import msgspec

WIDTH: Final = 1040
_LEFT: Final = 56
_RIGHT: Final = 12
_TOP: Final = 10
_BOTTOM: Final = 26
_TICKS: Final = 8
_LABEL: Final = 60  # room for one on a time axis
_READABLE: Final = 640  # pixels; a plot drawn narrower than this cannot be read
# Distinct also for the colour-blind (Okabe and Ito). More cannot be told apart, so the others are
# taken together.
PALETTE: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a600")
OTHERS: Final = "#8a949e"
_STEPS_MS: Final = (
    *(100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000),
    *(600_000, 900_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000, 28_800_000, 86_400_000),
)


class Bins(msgspec.Struct, frozen=True):
    """A time axis in equal steps."""

    start_ms: int
    width_ms: int
    count: int

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.width_ms * self.count


class Mark(msgspec.Struct, frozen=True):
    """An instant that every plot over time shows, such as the end of a broker's session
    by others.
    """

    at_ms: int
    text: str


def colours(names: Sequence[str]) -> dict[str, str]:
    """Returns a colour for each name, the same in every plot. The last names share a grey."""
    return {
        name: PALETTE[number] if number < len(PALETTE) else OTHERS
        for number, name in enumerate(names)
    }


def few(series: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    """Returns the largest series, in their order, and the sum of all others if there are more.

    >>> list(few({str(n): [1.0, n] for n in range(9)}))
    ['2', '3', '4', '5', '6', '7', '8', '2 others']
    """
    if len(series) <= len(PALETTE):
        return dict(series)
    by_size = sorted(series, key=lambda name: -sum(map(abs, series[name])))
    kept = set(by_size[: len(PALETTE)])
    rest = [values for name, values in series.items() if name not in kept]
    found = {name: values for name, values in series.items() if name in kept}
    found[f"{len(rest)} others"] = [sum(values) for values in zip(*rest, strict=True)]
    return found


def legend(colour_of: Mapping[str, str]) -> str:
    """Returns the legend of the colours."""
    items = "".join(
        f'<span class="key"><i style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in colour_of.items()
    )
    return f'<div class="legend">{items}</div>'


def stacked(
    series: Mapping[str, Sequence[float]],
    bins: Bins,
    colour_of: Mapping[str, str],
    *,
    unit: str,
    gap: float = 0.12,
    height: int = 220,
    marks: Sequence[Mark] = (),
) -> str:
    """Draws bars on top of each other, one for each bin. Without a gap they read as an area."""
    totals = [sum(values[at] for values in series.values()) for at in range(bins.count)]
    top = _nice_ceiling(max(totals, default=0))
    plot_width, plot_height = WIDTH - _LEFT - _RIGHT, height - _TOP - _BOTTOM
    step = plot_width / max(1, bins.count)
    shapes = []
    floors = [0.0] * bins.count
    for name, values in series.items():
        for at, value in enumerate(values):
            if not value:
                continue
            bar = value / top * plot_height
            y = _TOP + plot_height - floors[at] - bar
            floors[at] += bar
            when = instant(bins.start_ms + at * bins.width_ms, bins.width_ms)
            tip = f"{when}  {name}: {_short(value)} {unit}"
            shapes.append(
                f'<rect x="{_LEFT + (at + gap / 2) * step:.2f}" y="{y:.2f}" '
                f'width="{step * (1 - gap) + (0.3 if not gap else 0):.2f}" height="{bar:.2f}" '
                f'fill="{colour_of[name]}"><title>{escape(tip)}</title></rect>'
            )
    axes = _value_axis(top, plot_height) + time_axis(bins, _LEFT, plot_width, height - _BOTTOM)
    marked = marked_instants(marks, bins, _LEFT, plot_width, height - _BOTTOM)
    return svg(height, axes + "".join(shapes) + marked)


def lines(
    series: Mapping[str, Sequence[float]],
    bins: Bins,
    colour_of: Mapping[str, str],
    *,
    unit: str,
    height: int = 220,
    width: float = WIDTH,
    level: float = 0.0,
) -> str:
    """Draws values over time, constant within each bin.
    `level` is one to compare them with, 0 for none.
    """
    highest = max((max(values, default=0.0) for values in series.values()), default=0.0)
    top = _nice_ceiling(max(highest, level))
    plot_width, plot_height = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM
    step = plot_width / max(1, bins.count)

    def y(value: float) -> float:
        return _TOP + plot_height * (1 - value / top)

    shapes = []
    if level:
        shapes.append(
            f'<line x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y(level):.1f}" y2="{y(level):.1f}" '
            'class="level"/>'
        )
    for name, values in series.items():
        path = "".join(
            f"{'L' if at else 'M'}{_LEFT + at * step:.1f} {y(value):.1f}h{step:.2f}"
            for at, value in enumerate(values)
        )
        tip = f"{name}: at most {_short(max(values, default=0.0))} {unit}"
        shapes.append(
            f'<path d="{path}" fill="none" stroke="{colour_of[name]}" stroke-width="1.6">'
            f"<title>{escape(tip)}</title></path>"
        )
    axes = _value_axis(top, plot_height, width)
    axes += time_axis(bins, _LEFT, plot_width, height - _BOTTOM)
    return svg(height, axes + "".join(shapes), width)


def histogram(values: Mapping[int, int], colour: str, *, height: int = 200) -> str:
    """Draws the frequencies of times in milliseconds, on a logarithmic axis."""
    edges = _log_edges(max(values), min(values))
    counts = [0] * (len(edges) - 1)
    for value, count in values.items():
        at = next((i for i in range(len(counts)) if value < edges[i + 1]), len(counts) - 1)
        counts[at] += count
    top = _nice_ceiling(max(counts))
    width = WIDTH / 2 - 10
    plot_width, plot_height = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM
    step = plot_width / len(counts)
    parts = [_value_axis(top, plot_height, width)]
    for at, count in enumerate(counts):
        bar = count / top * plot_height
        low, high = edges[at], edges[at + 1]
        tip = f"{span_words(low)} to {span_words(high)}: {count}"
        parts.append(
            f'<rect x="{_LEFT + at * step + 1:.2f}" y="{_TOP + plot_height - bar:.2f}" '
            f'width="{max(1.0, step - 2):.2f}" height="{bar:.2f}" fill="{colour}">'
            f"<title>{escape(tip)}</title></rect>"
        )
    every = max(1, math.ceil(len(edges) / 8))
    parts += [
        f'<text x="{_LEFT + at * step:.1f}" y="{height - 8}" class="tick" '
        f'text-anchor="middle">{span_words(edges[at])}</text>'
        for at in range(0, len(edges), every)
    ]
    return svg(height, "".join(parts), width)


# --- axes -----------------------------------------------------------------------------------


def svg(height: float, content: str, width: float = WIDTH) -> str:
    """Returns a plot. It scrolls sideways on a screen on which it would be too narrow to read."""
    return (
        f'<div class=plot><svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'preserveAspectRatio="xMidYMid meet" style="min-width:{min(width, _READABLE):.0f}px">'
        f"{content}</svg></div>"
    )


def marked_instants(
    marks: Sequence[Mark], bins: Bins, left: float, plot_width: float, y: float
) -> str:
    """Draws a line from the top to `y` for each mark."""
    scale = plot_width / (bins.end_ms - bins.start_ms)
    return "".join(
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{y:.1f}" class="mark">'
        f"<title>{escape(f'{instant(mark.at_ms, 1)}  {mark.text}')}</title></line>"
        for mark in marks
        for x in (left + (mark.at_ms - bins.start_ms) * scale,)
    )


def _value_axis(top: float, plot_height: float, width: float = WIDTH) -> str:
    parts = []
    for quarter in range(5):
        value = top * quarter / 4
        y = _TOP + plot_height * (1 - quarter / 4)
        parts.append(
            f'<line x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" class="tick" text-anchor="end">'
            f"{_short(value)}</text>"
        )
    return "".join(parts)


def time_axis(bins: Bins, left: float, plot_width: float, y: float) -> str:
    """Draws instants below a plot that begins at `left` and ends at `y`."""
    span_ms = bins.end_ms - bins.start_ms
    step_ms = next((s for s in _STEPS_MS if span_ms / s <= _TICKS), _STEPS_MS[-1])
    while span_ms / step_ms > plot_width / _LABEL:
        step_ms *= 2
    first_ms = -(-bins.start_ms // step_ms) * step_ms
    parts = []
    for at_ms in range(first_ms, bins.end_ms + 1, step_ms):
        x = left + (at_ms - bins.start_ms) / span_ms * plot_width
        anchor = "end" if x > left + plot_width - _RIGHT else "middle"
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{y + 4:.1f}" class="grid"/>'
            f'<text x="{x:.1f}" y="{y + 17:.1f}" class="tick" text-anchor="{anchor}">'
            f"{instant(at_ms, step_ms)}</text>"
        )
    return "".join(parts)


def instant(timestamp_ms: int, resolution_ms: int) -> str:
    """Returns an instant in UTC, as fine as the resolution."""
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    if resolution_ms >= 86_400_000:
        return moment.strftime("%d %b")
    if resolution_ms >= 60_000:
        return moment.strftime("%H:%M")
    if resolution_ms >= 1_000:
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%H:%M:%S.%f")[:-3]


def _nice_ceiling(value: float) -> float:
    """Returns the next 1, 2, 4 or 8 times a power of ten: quarters of it are short numbers."""
    if value <= 0:
        return 4.0
    power = 10.0 ** math.floor(math.log10(value))
    return float(max(4.0, next(s * power for s in (1, 2, 4, 8, 10) if value <= s * power)))


def _log_edges(high: int, low: int) -> list[float]:
    """Returns the edges of bins, ten to a power of ten, that hold low to high."""
    first = math.floor(math.log10(max(low, 1)) * 10)
    last = max(first + 8, math.floor(math.log10(max(high, 1)) * 10) + 1)
    return [10 ** (number / 10) for number in range(first, last + 1)]


def span_words(milliseconds: float) -> str:
    """Returns a time in the unit that keeps it short."""
    if milliseconds < 10:
        return f"{milliseconds:.1f} ms"
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.1f} s"
    return f"{milliseconds / 60_000:.1f} min"


def _short(value: float) -> str:
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= limit:
            scaled = value / (1e3 if suffix == "k" else limit)
            return f"{scaled:.1f}".rstrip("0").rstrip(".") + suffix
    return f"{value:,.1f}".removesuffix(".0")
