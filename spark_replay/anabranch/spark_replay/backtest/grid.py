"""A topic's load over time in equal steps, made of the rows of a trace.

A row's rates hold until the topic's next time. The last rates hold as long as the ones before them
did. A step's load is the mean over the step, because the cluster's own reports are means. Equal
steps in a row are kept once, because a constant load needs no look.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from anabranch.core.autoscale.load import NO_RATES, Rates, changed
from anabranch.core.errors import InvalidInputError
from anabranch.core.hashing import RING16

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

REPORT_CHANGE: Final = 0.25  # a rate's change by this share causes a new load record
_CELLS_MAX: Final = 64_000_000  # half a gigabyte


class Rows:
    """The rows of one topic. `rates` has a row each, in the order of `SegmentLoad.rates`.

    `starts` and `ends` are the hashes of a row, inclusive; the whole ring by default.
    """

    def __init__(
        self,
        times_ms: Ints,
        rates: Floats,
        consumers: Ints | None = None,
        starts: Ints | None = None,
        ends: Ints | None = None,
    ) -> None:
        order = np.argsort(times_ms, kind="stable")
        self.times_ms = times_ms[order]
        self.rates = rates[order]
        self.consumers = None if consumers is None else consumers[order]
        whole = np.zeros(len(order), np.int64)
        self.starts = whole if starts is None else starts[order]
        self.ends = whole + (RING16 - 1) if ends is None else ends[order]


class Grid:
    """`rates[r, metric, k]` is the rate per second of the k-th piece of the ring, in run r of
    steps.

    `firsts` has the first step of each run. `edges` has the begins of pieces, and the ring's end.
    `consumers` has step and number, at each change.
    """

    def __init__(
        self,
        begin_ms: int,
        step_ms: int,
        rates: Floats,
        edges: Sequence[int],
        consumers: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.begin_ms = begin_ms
        self.step_ms = step_ms
        self.steps = len(rates)
        self.edges = tuple(edges)
        self.consumers = tuple(consumers)
        news = np.ones(self.steps, bool)
        news[1:] = (rates[1:] != rates[:-1]).any(axis=(1, 2))
        self.rates = np.ascontiguousarray(rates[news])
        self.firsts: list[int] = np.flatnonzero(news).tolist()
        self._news: dict[tuple[int, Rates], int] = {}

    @cached_property
    def totals(self) -> list[Rates]:
        """The rates of the whole ring in each run."""
        return [(a, b, c, d) for a, b, c, d in self.rates.sum(axis=2).tolist()]

    def news_after(self, run: int, negligible: Rates = NO_RATES) -> int:
        """Returns the first step whose load differs enough for a new record, compared with that
        run's, if one segment had it all.

        Returns `steps` if none does. `negligible` is that of `changed`.
        """
        found = self._news.get((run, negligible))
        if found is None:
            # A load that is no news with every rate is none with fewer rates.
            first = self.run_of(self.news_after(run)) if any(negligible) else run + 1
            rates, totals = self.totals[run], self.totals
            later = (
                self.firsts[each]
                for each in range(first, self.runs)
                if changed(rates, totals[each], REPORT_CHANGE, negligible)
            )
            found = self._news[run, negligible] = next(later, self.steps)
        return found

    @property
    def runs(self) -> int:
        return len(self.firsts)

    @property
    def end_ms(self) -> int:
        return self.at_ms(self.steps)

    def at_ms(self, step: int) -> int:
        """Returns the begin of a step."""
        return self.begin_ms + step * self.step_ms

    def run_of(self, step: int) -> int:
        return bisect_right(self.firsts, step) - 1

    def lengths(self, first: int, after: int) -> tuple[slice, Ints]:
        """Returns the runs of the steps from `first` to before `after`, and the number of steps of
        each.
        """
        runs = slice(self.run_of(first), self.run_of(after - 1) + 1)
        begins = [first, *self.firsts[runs.start + 1 : runs.stop], after]
        walls = np.asarray(begins, np.int64)
        return runs, walls[1:] - walls[:-1]

    def scaled(self, factor: float) -> None:
        """Multiplies every rate. Call it before anything else."""
        self.rates = self.rates * factor

    def mean(self) -> float:
        """Returns the messages in per second, over the whole time."""
        _, lengths = self.lengths(0, self.steps)
        return float(self.rates[:, 0].sum(axis=1) @ lengths / self.steps)


def gridded(rows: Rows, step_ms: int) -> Grid:
    """Returns the rows in steps. Raises InvalidInputError if they cannot be a topic's load."""
    _check(rows)
    times, groups = np.unique(rows.times_ms, return_inverse=True)
    edges = np.unique(np.concatenate((rows.starts, rows.ends + 1, [0, RING16])))
    pieces = len(edges) - 1
    hold = int(times[-1] - times[-2]) if len(times) > 1 else step_ms
    steps = -(-int(times[-1] - times[0] + hold) // step_ms)
    if steps * pieces * 4 > _CELLS_MAX:
        raise InvalidInputError(
            f"its {steps:,} steps for {pieces:,} ranges of hashes are too many; are its times in "
            "milliseconds? Otherwise take longer steps"
        )
    values = _pieces(rows, groups, len(times), edges)
    walls = times[0] + np.arange(steps + 1) * step_ms
    rates = _means(times, values.reshape(len(times), -1), walls).reshape(steps, 4, pieces)
    consumers = _consumers(rows, groups, times, walls)
    return Grid(int(times[0]), step_ms, rates, edges.tolist(), consumers)


def _check(rows: Rows) -> None:
    rates, times = rows.rates, rows.times_ms
    if not len(times):
        raise InvalidInputError("it has no rows")
    wrong = ~np.isfinite(rates).all(axis=1)
    if wrong.any():
        raise InvalidInputError(f"a rate is no number at {_at(times, wrong)}")
    wrong = (rates < 0).any(axis=1)
    if wrong.any():
        raise InvalidInputError(f"a rate is negative at {_at(times, wrong)}")
    if rows.consumers is not None and (rows.consumers < 0).any():
        raise InvalidInputError(f"consumers are negative at {_at(times, rows.consumers < 0)}")
    wrong = (rows.starts < 0) | (rows.ends < rows.starts) | (rows.ends >= RING16)
    if wrong.any():
        raise InvalidInputError(f"a range of hashes is none at {_at(times, wrong)}")
    order = np.lexsort((rows.starts, times))
    same = np.diff(times[order]) == 0
    again = np.append(same & (rows.starts[order][1:] <= rows.ends[order][:-1]), False)
    if again.any():
        raise InvalidInputError(f"there are two rows for {_at(times[order], again)}")


def _at(times: Ints, wrong: Any) -> str:
    moment = np.datetime64(int(times[wrong][0]), "ms")
    return f"{np.datetime_as_string(moment, timezone='UTC')}"


def _pieces(rows: Rows, groups: Ints, times: int, edges: Ints) -> Floats:
    """Spreads the rows over time, metric and piece of the ring. A row lies evenly on its hashes."""
    if len(edges) == 2:
        return rows.rates[:, :, None]
    found = np.zeros((times, 4, len(edges) - 1))
    firsts = np.searchsorted(edges, rows.starts)
    afters = np.searchsorted(edges, rows.ends + 1)
    widths = np.diff(edges)
    for group, first, after, rates in zip(groups, firsts, afters, rows.rates, strict=True):
        own = widths[first:after]
        found[group, :, first:after] += rates[:, None] * (own / own.sum())
    return found


def _means(times: Ints, values: Floats, walls: Ints) -> Floats:
    """Returns the mean of each step between two walls. It is exact if a step has one value only."""
    first = np.searchsorted(times, walls[:-1], "right") - 1
    last = np.searchsorted(times, walls[1:] - 1, "right") - 1
    found = values[first]
    mixed = first != last
    if mixed.any():
        past = np.zeros_like(values)
        np.cumsum(values[:-1] * np.diff(times)[:, None], axis=0, out=past[1:])
        froms, untils = walls[:-1][mixed], walls[1:][mixed]
        before = np.searchsorted(times, untils, "right") - 1
        begin = past[first[mixed]] + values[first[mixed]] * (froms - times[first[mixed]])[:, None]
        end = past[before] + values[before] * (untils - times[before])[:, None]
        found[mixed] = np.maximum(end - begin, 0.0) / (untils - froms)[:, None]
    return found


def _consumers(rows: Rows, groups: Ints, times: Ints, walls: Ints) -> list[tuple[int, int]]:
    """Returns the state at the end of each step."""
    if rows.consumers is None:
        return []
    most = np.zeros(len(times), np.int64)
    np.maximum.at(most, groups, rows.consumers)
    held = most[np.searchsorted(times, walls[1:] - 1, "right") - 1]
    changes = np.flatnonzero(np.append(True, held[1:] != held[:-1]))
    return [(int(step), int(held[step])) for step in changes]
