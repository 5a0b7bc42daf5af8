"""The frame of a report's page, with its plot over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

import msgspec

_WIDTH: Final = 1040
_HEIGHT: Final = 220
_LEFT: Final = 64
_RIGHT: Final = 12
_TOP: Final = 10
_BOTTOM: Final = 26
_PLOT_WIDTH: Final = _WIDTH - _LEFT - _RIGHT
_PLOT_HEIGHT: Final = _HEIGHT - _TOP - _BOTTOM
_TICKS: Final = 6
_MARKS_MAX: Final = 200  # more of them would hide the plot
# Distinct also for the colour-blind (Okabe and Ito). More cannot be told apart, so the others are
# taken together.
PALETTE: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a600")
_OTHERS: Final = "#8a949e"
_STYLE: Final = """
:root{color-scheme:light dark;--bg:#fff;--ink:#1c2733;--soft:#5d6b7a;--line:#dfe5eb;
--ok:#12703f;--okbg:#e3f5ea;--bad:#a4161a;--badbg:#fdeaea}
@media(prefers-color-scheme:dark){:root{--bg:#12181f;--ink:#e4eaf0;--soft:#9aa8b6;--line:#2b3641;
--ok:#6fd39b;--okbg:#153524;--bad:#ff9a9a;--badbg:#451b1e}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1120px;padding:32px 24px 64px;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:26px;overflow-wrap:anywhere}h2{font-size:18px;margin-top:36px}
p,th,.tick,.legend{color:var(--soft)}
.verdict{padding:18px 22px;border-radius:10px;margin:18px 0}.verdict b{font-size:21px}
.ok{background:var(--okbg);color:var(--ok)}.violated{background:var(--badbg);color:var(--bad)}
table{display:block;overflow-x:auto;border-collapse:collapse;font-variant-numeric:tabular-nums}
th{text-align:left;font-size:13px}
th,td{padding:7px 10px;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right}td{overflow-wrap:anywhere}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:13px}
.legend i{display:inline-block;width:11px;height:11px;margin-right:6px}
.plot{overflow-x:auto}svg{width:100%;min-width:640px;height:auto;display:block}
.grid{stroke:var(--line)}.tick{fill:var(--soft);font-size:11px}
.mark{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:3 2}
"""


class Bins(msgspec.Struct, frozen=True):
    """A time axis in equal steps."""

    start_ms: int
    width_ms: int
    count: int

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.width_ms * self.count


def clock(timestamp_ms: int) -> str:
    """Returns a log timestamp for people and programs alike: ISO 8601, UTC."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def document(title: str, body: Iterable[str]) -> str:
    """Returns a page that needs no other file and no network. `title` is text, `body` is HTML."""
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1>{''.join(body)}</body></html>\n"
    )


def rows(head: Sequence[str], cells: Iterable[Sequence[str]], names: int = 1) -> str:
    """Returns a table of texts. Its first `names` columns are words, the others are numbers."""
    kinds = ["" if at < names else " class=n" for at in range(len(head))]

    def row(tag: str, texts: Sequence[str]) -> str:
        parts = zip(kinds, texts, strict=True)
        return "<tr>" + "".join(f"<{tag}{kind}>{escape(text)}" for kind, text in parts) + "</tr>"

    return f"<table>{row('th', head)}{''.join(row('td', each) for each in cells)}</table>"


def plot(
    series: Mapping[str, Sequence[float]],
    bins: Bins,
    unit: str,
    marks: Sequence[tuple[int, str]] = (),
) -> str:
    """Draws values over time, constant within each bin, as inline SVG with a legend.

    `marks` has instants, in milliseconds, with their texts. Each is a dashed line.
    """
    shown = few(series)
    highest = max((max(values, default=0.0) for values in shown.values()), default=0.0)
    top = max(4.0, highest)
    keys, shapes = [], [_axes(top, bins)]
    for number, (name, values) in enumerate(shown.items()):
        colour = PALETTE[number] if number < len(PALETTE) else _OTHERS
        keys.append(f'<span><i style="background:{colour}"></i>{escape(name)}</span>')
        step = _PLOT_WIDTH / bins.count
        path = "".join(
            f"{'L' if at else 'M'}{_LEFT + at * step:.1f} {_y(value / top):.1f}h{step:.2f}"
            for at, value in enumerate(values)
        )
        tip = f"{name}: at most {max(values, default=0.0):,.0f} {unit}"
        shapes.append(
            f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6">'
            f"<title>{escape(tip)}</title></path>"
        )
    for at_ms, text in marks[:_MARKS_MAX]:
        x = _LEFT + (at_ms - bins.start_ms) / (bins.end_ms - bins.start_ms) * _PLOT_WIDTH
        shapes.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_y(0):.1f}" class="mark">'
            f"<title>{escape(f'{clock(at_ms)}  {text}')}</title></line>"
        )
    return (
        f'<div class="legend">{"".join(keys)}</div><div class=plot>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(shapes)}</svg></div>'
    )


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


def _y(share: float) -> float:
    return _TOP + _PLOT_HEIGHT * (1 - share)


def _axes(top: float, bins: Bins) -> str:
    parts = []
    for quarter in range(5):
        y = _y(quarter / 4)
        parts.append(
            f'<path d="M{_LEFT} {y:.1f}h{_PLOT_WIDTH}" class="grid"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" class="tick" text-anchor="end">'
            f"{top * quarter / 4:,.0f}</text>"
        )
    span_ms = bins.end_ms - bins.start_ms
    form = "%d %b %H:%M" if span_ms > _TICKS * 3_600_000 else "%H:%M:%S"
    for tick in range(_TICKS):
        moment = datetime.fromtimestamp((bins.start_ms + span_ms * tick / _TICKS) / 1000, UTC)
        parts.append(
            f'<text x="{_LEFT + _PLOT_WIDTH * tick / _TICKS:.1f}" y="{_HEIGHT - 8}" class="tick">'
            f"{moment.strftime(form)}</text>"
        )
    return "".join(parts)
