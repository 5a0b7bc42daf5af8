"""A run as one page: what failed, what was done, who owned what, what stood still, what was broken.

`python3 -m faults.timeline FOLDER` judges the histories in the folder of a run once more, and
writes its `timeline.html`. The page needs no other file, and no network.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from anabranch.spark_replay.report.charts import Bins, colours, legend, svg, time_axis
from anabranch.spark_replay.report.document import document
from faults.checker import violations
from faults.history import read
from faults.pauses import pauses
from faults.promises import Line, Violation

PAGE: Final = "timeline.html"
_WIDTH: Final = 1040
_NAMES: Final = 190  # room for the rows' names, the same in each plot: one instant is one column
_RIGHT: Final = 12
_ROW: Final = 18
_BAND: Final = 90  # height of the throughput
_TOP: Final = 8
_AXIS: Final = 26
_MARKS_MAX: Final = 100
_PAUSES_MAX: Final = 3  # in the table, of each kind
_LINES_MAX: Final = 40  # shown of a violation
_AROUND_S: Final = 3.0
_SHORT_S: Final = 3.0  # a pause of less is not drawn
_DONE: Final = "#56b4e9"
_FAILED: Final = "#d55e00"
_SOFT: Final = "#8a949e"
_ENDS: Final = {"as it should be": _DONE, "failed or killed": _FAILED}
_HOW_TO_READ: Final = (
    "All plots have one time axis, in hours and minutes since the beginning, and seconds where "
    "there is room. Hold the pointer over a bar to see what it is. Dashed: a violation; it leads "
    "to its lines."
)
_OWNING: Final = ("lookup", "controlled", "ownership", "view")


@dataclass(frozen=True, slots=True)
class _Bar:
    begin: float
    end: float
    colour: str
    tip: str


_Rows = Sequence[tuple[str, Sequence[_Bar]]]


class Timeline:
    """The page of one run; times are seconds since its first line."""

    def __init__(self, title: str, lines: Sequence[Line], found: Sequence[Violation]) -> None:
        self._title = title
        self._lines = lines
        self._found = sorted(found, key=lambda each: each.at)
        self._begin = lines[0]["at"] if lines else 0.0
        self._end = max(lines[-1]["at"] if lines else 0.0, self._begin + 1)
        sent = [line["at"] for line in lines if line["what"] in ("send", "received")]
        if sent:  # what the reader says at the end is about what was before
            self._end = max(sent) + 1
        self._nodes = colours(sorted({line["node"] for line in lines if line["what"] in _OWNING}))
        kinds = {str(line["kind"]) for line in lines if line["what"] == "begin"}
        self._kinds = colours(sorted(kinds))
        self._pauses = pauses(lines)

    def page(self) -> str:
        """A self-contained HTML page."""
        rates = self._rates()
        body = "".join(
            (
                f"<h1>{escape(self._title)}</h1>",
                *self._verdict(),
                *self._facts(),
                f"<p>{_HOW_TO_READ}</p>",
                *self._violations(),
                "<h2>Messages a second</h2>",
                legend({name: colour for name, (colour, _) in rates.items()}),
                self._throughput(rates),
                *self._plot("Faults", "From injection until healed.", self._faults(), self._kinds),
                *self._plot("Operations", "Asked until answered.", self._operations(), _ENDS),
                *self._plot(
                    "Standstill",
                    f"No key was acknowledged, or an acknowledged message waited in a bucket of "
                    f"the subscription, for more than {_SHORT_S:g} s.",
                    self._standstill(),
                ),
                *self._pause_table(),
                *self._plot(
                    "Owners",
                    "Of bundles, as told first by any node; and whoever answered as the topic's "
                    "controller, when it did.",
                    self._owners(),
                    self._nodes,
                ),
                *self._plot("Consumers", "From subscribed until closed.", self._consumers(), _ENDS),
            )
        )
        return document(self._title, body)

    # --- words ----------------------------------------------------------------------------

    def _verdict(self) -> Iterator[str]:
        kind = "violated" if self._found else "ok"
        title = "A promise was broken" if self._found else "No promise was broken"
        counts = Counter(each.promise for each in self._found)
        detail = ", ".join(f"{name.value}: {count}" for name, count in counts.most_common())
        yield f'<div class="verdict {kind}"><b>{title}</b><span>{escape(detail)}</span></div>'

    def _facts(self) -> Iterator[str]:
        counts = Counter(line["what"] for line in self._lines)
        worst = max((each.seconds for each in self._pauses), default=0.0)
        yield '<div class="facts">'
        for value, what in (
            (f"{len(self._of_faults()):,}", "faults"),
            (f"{counts['acknowledged']:,}", "messages acknowledged"),
            (f"{counts['unsent']:,}", "given up, stored or not"),
            (f"{counts['received']:,}", "messages received"),
            (f"{counts['operated']:,} of {counts['operation']:,}", "operations done"),
            (f"{worst:.1f} s", "the longest pause"),
            (f"{self._end - self._begin:.0f} s", "the run"),
        ):
            yield f'<div class="fact"><b>{value}</b><span>{what}</span></div>'
        yield "</div>"

    def _violations(self) -> Iterator[str]:
        if not self._found:
            return
        yield "<h2>Violations</h2>"
        for number, each in enumerate(self._found):
            shown = "".join(f"{escape(text)}\n" for text in self._evidence(each))
            yield (
                f'<details id="v{number}"><summary><span class="badge violated">'
                f"{each.promise.value}</span> {self._when(each.at)} {escape(each.what)}</summary>"
                f'<pre style="overflow-x:auto"><code>{shown}</code></pre></details>'
            )

    def _evidence(self, violation: Violation) -> Iterator[str]:
        """The lines of the history that are about the message, or about owners at that time."""
        if violation.message is not None:
            key, number = violation.message
            found = [
                line
                for line in self._lines
                if (line.get("key"), line.get("number")) == (key, number)
            ]
        else:
            found = [
                line
                for line in self._lines
                if abs(line["at"] - violation.at) < _AROUND_S
                and (line["what"] in _OWNING or "fault" in line)
            ]
        for line in found[:_LINES_MAX]:
            fields = {name: value for name, value in line.items() if name not in ("at", "what")}
            yield f"{self._when(line['at'])} {line['what']:<12} {json.dumps(fields)}"
        if len(found) > _LINES_MAX:
            yield f"and {len(found) - _LINES_MAX} more"

    def _pause_table(self) -> Iterator[str]:
        heads = "<th>longest pauses<th>of<th class=n>seconds<th>from<th>to"
        yield f"<table class=checks><tr>{heads}</tr>"
        kinds: Counter[str] = Counter()
        for each in self._pauses:
            kinds[each.of] += 1
            if kinds[each.of] > _PAUSES_MAX:
                continue
            yield (
                f"<tr><td>{escape(each.of)}<td><code>{escape(each.where)}</code>"
                f"<td class=n data-of=seconds>{each.seconds:.1f}"
                f"<td>{self._when(each.begin)}<td>{self._when(each.end)}</tr>"
            )
        yield "</table>"

    def _when(self, at: float) -> str:
        minutes, seconds = divmod(max(0.0, at - self._begin), 60)
        return f"{int(minutes) // 60:02}:{int(minutes) % 60:02}:{seconds:06.3f}"

    # --- rows -----------------------------------------------------------------------------

    def _of_faults(self) -> list[tuple[Line, float]]:
        """What began, and when it ended."""
        ends = {
            line["fault"]: line["at"]
            for line in self._lines
            if line["what"] == "end" and "fault" in line
        }
        begun = (line for line in self._lines if line["what"] == "begin" and "fault" in line)
        return [(line, ends.get(line["fault"], self._end)) for line in begun]

    def _faults(self) -> _Rows:
        found = self._of_faults()
        rows: defaultdict[str, list[_Bar]] = defaultdict(list)
        for line, end in found:
            tip = f"{line['fault']}: {line['kind']} {line['target']}: {line.get('why', '')}"
            bar = _Bar(line["at"], end, self._kinds[str(line["kind"])], tip)
            first, *more = str(line["target"]).split()
            whom = f"{first} + {len(more)}" if more else first
            rows[f"{whom} {str(line['kind']).lower()}"].append(bar)
        return sorted(rows.items())

    def _operations(self) -> _Rows:
        rows: defaultdict[str, list[_Bar]] = defaultdict(list)
        asked: Line | None = None
        for line in self._lines:
            if line["what"] == "operation":
                asked = line
            elif line["what"] in ("operated", "not_operated") and asked is not None:
                done = line["what"] == "operated"
                tip = f"{asked['kind']} {asked['of']}: {line.get('why', 'done')}"
                bar = _Bar(asked["at"], line["at"], _DONE if done else _FAILED, tip)
                rows[asked["kind"]].append(bar)
                asked = None
        return sorted(rows.items())

    def _standstill(self) -> _Rows:
        rows: defaultdict[str, list[_Bar]] = defaultdict(list)
        for each in self._pauses:
            if each.seconds > _SHORT_S:
                tip = f"{each.where}: {each.seconds:.1f} s"
                rows[each.of].append(_Bar(each.begin, each.end, "#cc79a7", tip))
        return sorted(rows.items())

    def _owners(self) -> _Rows:
        """Of each bundle by versions; and acts of controllers, which may be one too many."""
        versions: defaultdict[str, dict[int, tuple[float, str, str]]] = defaultdict(dict)
        acts: defaultdict[str, list[_Bar]] = defaultdict(list)
        for line in self._lines:
            if line["what"] == "ownership":
                for bundle, version, state, holder in line["bundles"]:
                    versions[bundle].setdefault(version, (line["at"], state, holder))
            elif line["what"] == "controlled" and not line["stale"]:
                tip = f"{line['node']} answered as the controller"
                colour = self._nodes[line["node"]]
                acts[f"acts of {line['node']}"].append(_Bar(line["asked"], line["at"], colour, tip))
        rows: list[tuple[str, Sequence[_Bar]]] = []
        for bundle, known in sorted(versions.items()):
            ordered = [known[version] for version in sorted(known)]
            ends = [at for at, _, _ in ordered[1:]] + [self._end]
            rows.append(
                (
                    bundle,
                    [
                        _Bar(at, end, self._nodes.get(holder, _SOFT), f"{bundle}: {state} {holder}")
                        for (at, state, holder), end in zip(ordered, ends, strict=True)
                        if holder
                    ],
                )
            )
        return [*rows, *sorted(acts.items())]

    def _consumers(self) -> _Rows:
        rows: defaultdict[str, list[_Bar]] = defaultdict(list)
        since: dict[str, tuple[float, str]] = {}
        for line in self._lines:
            by = str(line.get("by", ""))
            if line["what"] == "opened":
                since[by] = line["at"], line["consumer"]
            elif line["what"] in ("closed", "consumer_failed", "started", "stopped"):
                begun = since.pop(by, None)
                if begun is not None:
                    tip = f"{begun[1]}: {line['what']} {line.get('why', '')}"
                    colour = _FAILED if line["what"] in ("consumer_failed", "started") else _DONE
                    rows[by].append(_Bar(begun[0], line["at"], colour, tip))
        for by, (at, name) in since.items():
            rows[by].append(_Bar(at, self._end, _DONE, name))
        return sorted(rows.items())

    def _rates(self) -> dict[str, tuple[str, Counter[int]]]:
        """What happened in each second: acknowledged, and received by each subscription."""
        rates: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for line in self._lines:
            if line["what"] == "acknowledged":
                rates["acknowledged"][int(line["at"] - self._begin)] += 1
            elif line["what"] == "received":
                name = f"received by {line['subscription']}"
                rates[name][int(line["at"] - self._begin)] += 1
        colour_of = colours(list(rates))
        return {name: (colour_of[name], rate) for name, rate in rates.items()}

    # --- plots ----------------------------------------------------------------------------

    def _x(self, at: float) -> float:
        share = (min(max(at, self._begin), self._end) - self._begin) / (self._end - self._begin)
        return _NAMES + share * (_WIDTH - _NAMES - _RIGHT)

    def _frame(self, height: float, content: str) -> str:
        """A plot with the time below it, and a line for each violation, which leads to it."""
        bins = Bins(0, int(1_000 * (self._end - self._begin)), 1)
        axis = time_axis(bins, _NAMES, _WIDTH - _NAMES - _RIGHT, height - _AXIS)
        marks = "".join(
            f'<a href="#v{number}"><line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" class="mark" '
            f'y2="{height - _AXIS:.1f}"><title>{escape(each.promise)}</title></line></a>'
            for number, each in enumerate(self._found[:_MARKS_MAX])
            for x in (self._x(each.at),)
        )
        return svg(height, axis + content + marks)

    def _plot(
        self, title: str, words: str, rows: _Rows, colour_of: Mapping[str, str] | None = None
    ) -> Iterator[str]:
        yield f"<h2>{title}</h2><p>{escape(words)}</p>"
        if not rows:
            yield "<p>None.</p>"
            return
        if colour_of:
            yield legend(colour_of)
        shapes = []
        for number, (name, bars) in enumerate(rows):
            y = _TOP + number * _ROW
            shapes.append(
                f'<text x="{_NAMES - 8}" y="{y + 13}" class="name" text-anchor="end">'
                f'{escape(name)}</text><rect x="{_NAMES}" y="{y + 2}" '
                f'width="{_WIDTH - _NAMES - _RIGHT}" height="{_ROW - 4}" class="track"/>'
            )
            for bar in bars:
                begin, end = self._x(bar.begin), self._x(bar.end)
                tip = f"{self._when(bar.begin)} to {self._when(bar.end)}: {bar.tip}"
                shapes.append(
                    f'<rect x="{begin:.1f}" y="{y + 2}" width="{max(1.5, end - begin):.1f}" '
                    f'height="{_ROW - 4}" fill="{bar.colour}" fill-opacity=".85">'
                    f"<title>{escape(tip)}</title></rect>"
                )
        yield self._frame(_TOP + _ROW * len(rows) + _AXIS, "".join(shapes))

    def _throughput(self, rates: Mapping[str, tuple[str, Counter[int]]]) -> str:
        seconds = int(self._end - self._begin) + 1
        top = max((count for _, rate in rates.values() for count in rate.values()), default=1)
        shapes = [
            f'<text x="{_NAMES - 8}" y="{y}" class="tick" text-anchor="end">{value:,}</text>'
            for value, y in ((top, _TOP + 10), (0, _TOP + _BAND))
        ]
        for name, (colour, rate) in rates.items():
            path = "".join(
                f"{'L' if second else 'M'}{self._x(self._begin + second):.1f} "
                f"{_TOP + _BAND * (1 - rate[second] / top):.1f}"
                for second in range(seconds)
            )
            shapes.append(
                f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5">'
                f"<title>{escape(name)}</title></path>"
            )
        return self._frame(_TOP + _BAND + _AXIS, "".join(shapes))


def write(folder: Path, title: str, lines: Iterable[Line], found: Sequence[Violation]) -> Path:
    """The page of the run in the folder."""
    path = folder / PAGE
    path.write_text(Timeline(title, list(lines), found).page(), encoding="utf-8")
    return path


if __name__ == "__main__":
    run = Path(sys.argv[1])
    history = read(run / "history", run / "faults.jsonl")
    print(write(run, f"Faults: {run}", history, violations(history)))  # noqa: T201
