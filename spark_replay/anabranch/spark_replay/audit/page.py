"""The report as one page that needs nothing else: the proofs, and plots of the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import Final

from anabranch.core.log.verdicts import Verdict
from anabranch.spark_replay.audit.charts import ring, timeline
from anabranch.spark_replay.audit.statistics import split_count_key
from anabranch.spark_replay.audit.summary import Latency, Summary, gap_in_words
from anabranch.spark_replay.audit.table import extent, origin, words
from anabranch.spark_replay.audit.verdict import CheckReport, CheckResult
from anabranch.spark_replay.report.charts import (
    Bins,
    Mark,
    colours,
    few,
    histogram,
    legend,
    span_words,
    stacked,
)
from anabranch.spark_replay.report.document import document

_ROWS_MAX: Final = 40  # units of the timeline
_FLAPS_MAX: Final = 10
_BARS_MAX: Final = 80
_MARKS_MAX: Final = 200  # for a plot
_TOPICS_MAX: Final = 4  # topics with a plot of their segments


def page(summary: Summary) -> str:
    """Returns a self-contained HTML page."""
    log = summary.log
    body = "".join(
        (
            f"<h1>Audit of <code>{escape(log.topic)}</code></h1>",
            f"<p>{escape(extent(log))}; read from {escape(origin(log))}.</p>",
            *_verdict(summary),
            *_facts(summary),
            "<h2>Checks</h2><table class=checks><tr><th>check<th>result<th class=n>examined",
            "<th class=n>violations<th>what it proves</tr>",
            *(_check(check) for check in summary.checks),
            "</table>",
            *_plots(summary),
            *_tables(summary),
            f"<p>State at the end: {summary.entities:,} keys, digest ",
            f"<code>{summary.digest}</code></p>",
        )
    )
    return document(f"Audit of {log.topic}", body)


def _verdict(summary: Summary) -> Iterator[str]:
    violated = [check for check in summary.checks if check.result is CheckResult.VIOLATED]
    count = sum(check.violated for check in violated)
    kind = "violated" if violated else "ok"
    gap = gap_in_words(summary.log)
    sound = "The log has a gap" if gap else "The log is sound"
    title = "The log is not sound" if violated else sound
    detail = (
        f"{count:,} violations, found by: {', '.join(check.name.value for check in violated)}"
        if violated
        else "every check that could be made has passed"
    )
    detail = f"{detail}. {gap}" if gap else detail
    yield f'<div class="verdict {kind}"><b>{title}</b><span>{detail}</span></div>'


def _facts(summary: Summary) -> Iterator[str]:
    facts = (
        (f"{summary.records:,}", "records"),
        (f"{summary.accepted:,}", "accepted"),
        (f"{summary.records - summary.accepted:,}", "rejected"),
        (f"{summary.figures.units:,}", "bundles that had an owner"),
        (_latency(summary.hand_over), f"hand-over p50 ({summary.hand_over.count:,})"),
        (_latency(summary.since_last_sign), f"fail-over p50 ({summary.fail_over.count:,})"),
        (_latency(summary.reshape), f"split or merge p50 ({summary.reshape.count:,})"),
        (f"{summary.seconds:.1f} s", "the audit took"),
    )
    yield '<div class="facts">'
    for value, what in facts:
        yield f'<div class="fact"><b>{value}</b><span>{what}</span></div>'
    yield "</div>"


def _latency(latency: Latency) -> str:
    return f"{latency.p50_ms:,} ms" if latency.count else "none"


def _check(check: CheckReport) -> str:
    kind = {CheckResult.OK: "ok", CheckResult.VIOLATED: "violated"}.get(check.result, "na")
    note = f'<div class="note">{escape(check.note)}</div>' if check.note else ""
    found = "".join(
        f"<li>offset {witness.offset:,}: {escape(witness.text)}</li>" for witness in check.witnesses
    )
    if check.violated > len(check.witnesses):
        found += f"<li>and {check.violated - len(check.witnesses):,} more</li>"
    return (
        f"<tr><td><code>{check.name.value}</code>"
        f'<td><span class="badge {kind}">{check.result.value}</span>'
        f"<td class=n data-of=examined>{check.examined:,}"
        f"<td class=n data-of=violations>{check.violated:,}"
        f"<td>{escape(check.proves)}{note}{f'<ul>{found}</ul>' if found else ''}</tr>"
    )


# --- plots ----------------------------------------------------------------------------------


def _plots(summary: Summary) -> Iterator[str]:
    bins = _bins(summary)
    if bins is None:
        return
    figures = summary.figures
    marks = _marks(figures.expired, bins)
    owned = few(
        {
            broker: list(accumulate(_binned(figures.held[broker], bins)))
            for broker in sorted(figures.held)
        }
    )
    colour_of = colours(list(owned))
    count = f"{len(figures.expired):,} in all"
    ended = f" Dashed: a broker fell silent, and its session was ended; {count}." if marks else ""
    yield f"<h2>Who owned how much</h2><p>Bundles owned by each broker.{ended}</p>"
    yield legend(colour_of)
    yield stacked(owned, bins, colour_of, unit="bundles", gap=0.0, marks=marks)
    rows = sorted(figures.spans, key=lambda name: (-figures.moves.get(name, 0), name))[:_ROWS_MAX]
    yield "<h2>Who owned what</h2>"
    yield (
        f"<p>The {len(rows)} of {figures.units:,} bundles that changed hands most often. Without "
        "a colour: nobody owned it.</p>"
    )
    yield timeline([(name, figures.spans[name]) for name in sorted(rows)], bins, colour_of, marks)
    yield from _rings(summary, bins, marks)
    yield from _counted("Accepted transitions", "", summary, bins, _accepted_kind)
    yield from _counted(
        "Rejections by reason",
        "Losing is normal: several brokers may propose at once, and the first valid record wins.",
        summary,
        bins,
        _rejection,
    )
    yield '<div class="pair">'
    for title, values, latency in (
        ("Hand-over latency", figures.hand_overs, summary.hand_over),
        ("Fail-over latency, from the last heartbeat", figures.last_signs, summary.since_last_sign),
    ):
        yield f"<div><h2>{title}</h2><p>{words(latency)}</p>"
        if values:
            yield histogram(values, "#0072b2")
        yield "</div>"
    yield "</div>"


def _marks(expired: Sequence[tuple[int, str]], bins: Bins) -> list[Mark]:
    """Marks each session that was ended.
    If they are too many to tell apart, neighbours share a mark.
    """
    if len(expired) <= _MARKS_MAX:
        return [Mark(at_ms, f"the session of {broker} was ended") for at_ms, broker in expired]
    width_ms = -(-(bins.end_ms - bins.start_ms) // _MARKS_MAX)
    counts = Counter((at_ms - bins.start_ms) // width_ms for at_ms, _ in expired)
    return [
        Mark(bins.start_ms + number * width_ms, f"{count:,} sessions were ended")
        for number, count in counts.items()
    ]


def _bins(summary: Summary) -> Bins | None:
    numbers = [split_count_key(key)[0] for key in summary.figures.counts]
    if not numbers:
        return None
    first, last = min(numbers), max(numbers)
    return Bins(first * summary.bin_ms, summary.bin_ms, last - first + 1)


def _binned(values: Mapping[int, int], bins: Bins) -> list[float]:
    first = bins.start_ms // bins.width_ms
    found = [0.0] * bins.count
    for number, value in values.items():
        found[min(max(number - first, 0), bins.count - 1)] += value
    return found


def _accepted_kind(kind: str, verdict: Verdict) -> str:
    return kind.removeprefix("unit ") if verdict is Verdict.ACCEPTED else ""


def _rejection(kind: str, verdict: Verdict) -> str:
    return "" if verdict is Verdict.ACCEPTED else verdict.name


def _rings(summary: Summary, bins: Bins, marks: Sequence[Mark]) -> Iterator[str]:
    found = summary.figures.segments
    busiest = sorted(found, key=lambda key: (-len(found[key]), key))[:_TOPICS_MAX]
    if not busiest:
        return
    yield "<h2>Segments over time</h2>"
    yield (
        f"<p>The {len(busiest)} of {len(found):,} topics that changed most. Downwards: the ring of "
        "hashes.</p>"
    )
    for key in busiest:
        yield f"<p><code>{escape(key.partition(':')[2])}</code>, {len(found[key]):,} segments</p>"
        yield ring(found[key], bins, marks)


def _counted(
    title: str, note: str, summary: Summary, bins: Bins, name_of: Callable[[str, Verdict], str]
) -> Iterator[str]:
    """Draws records over time as counts, since a rate of one record in a second tells nothing."""
    bars = _coarser(bins)
    yield f"<h2>{title}</h2><p>{note} A bar is {span_words(bars.width_ms)}.</p>"
    found: dict[str, Counter[int]] = {}
    for key, count in summary.figures.counts.items():
        number, kind, verdict = split_count_key(key)
        name = name_of(kind, verdict)
        if name:
            found.setdefault(name, Counter())[number] += count
    if not found:
        yield "<p>None.</p>"
        return
    names = sorted(found, key=lambda name: -sum(found[name].values()))
    counts = few({name: _binned(_regrouped(found[name], bins, bars), bars) for name in names})
    colour_of = colours(list(counts))
    yield legend(colour_of)
    yield stacked(counts, bars, colour_of, unit=f"in {span_words(bars.width_ms)}")


def _coarser(bins: Bins) -> Bins:
    """Returns bars that are few enough to tell apart, and shorter than a minute only if the log is
    short.
    """
    factor = -(-bins.count // _BARS_MAX)
    width_ms = bins.width_ms * factor
    start_ms = bins.start_ms // width_ms * width_ms
    return Bins(start_ms, width_ms, -(-(bins.end_ms - start_ms) // width_ms))


def _regrouped(values: Mapping[int, int], bins: Bins, bars: Bins) -> dict[int, int]:
    found: Counter[int] = Counter()
    for number, value in values.items():
        found[number * bins.width_ms // bars.width_ms] += value
    return found


def _tables(summary: Summary) -> Iterator[str]:
    yield '<div class="pair"><div><h2>Records by type</h2><table>'
    for name, count in summary.by_type.items():
        yield f"<tr><td>{escape(name)}<td class=n>{count:,}</tr>"
    yield "</table></div><div><h2>Losers by reason</h2><table>"
    for name, count in summary.rejected.items():
        yield f"<tr><td><code>{name}</code><td class=n>{count:,}</tr>"
    if not summary.rejected:
        yield "<tr><td>none</tr>"
    yield "</table></div></div>"
    figures = summary.figures
    yield "<h2>Flapping</h2>"
    if not figures.flapping:
        yield "<p>No bundle changed hands more often than it should.</p>"
        return
    yield f"<p>{figures.flapping:,} bundles changed hands more often than they should.</p><table>"
    for flap in figures.flaps[:_FLAPS_MAX]:
        yield f"<tr><td><code>{escape(flap.unit)}</code><td class=n>{flap.moves:,} moves</tr>"
    yield "</table>"
