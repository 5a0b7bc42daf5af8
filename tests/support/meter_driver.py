"""A segment's traffic, ten seconds at a time, and what its meter makes of it."""

from __future__ import annotations

from typing import Any

from anabranch.core.autoscale.load import LoadRecord, Rates
from anabranch.core.autoscale.meter import SegmentMeter
from support.there import there

WINDOW_S = 60.0
STEP_S = 10.0
THRESHOLD = 0.25
NOTHING = (0.0, 0.0, 0.0, 0.0)
STEADY = LoadRecord(100.0, 50_000.0, 200.0, 100_000.0)


class MeterDriver:
    """A segment and what happens to it, ten seconds at a time."""

    def __init__(
        self,
        known: LoadRecord | None = None,
        total: int = 0,
        negligible: Rates = NOTHING,
    ) -> None:
        self.now = 1_000.0
        self.meter = SegmentMeter(WINDOW_S, known, self.now)
        self.negligible = negligible
        self.total = total
        self.written: list[LoadRecord] = []

    @classmethod
    def newborn(cls, **fields: Any) -> MeterDriver:
        """Of a segment that is made at this moment."""
        driver = cls(**fields)
        driver.begin(age_s=0.0)
        return driver

    def begin(self, age_s: float | None = None) -> None:
        self.meter.sample(self.now, self.total, None if age_s is None else self.now - age_s)
        self._write()

    def step(self, came: int = 0, told: int = 0, read: int = 0) -> None:
        """Messages of 500 bytes each, some of them reported by producers or consumers."""
        self.now += STEP_S
        self.total += came
        if told:
            self.meter.written(told, 500 * told)
        if read:
            self.meter.read(read, 500 * read)
        self.meter.sample(self.now, self.total, None)
        self._write()

    def steps(self, count: int, **traffic: int) -> None:
        for _ in range(count):
            self.step(**traffic)

    def _write(self) -> None:
        news = self.meter.news(THRESHOLD, self.negligible)
        if news is not None:
            self.written.append(news)

    @property
    def load(self) -> LoadRecord:
        return there(self.meter.load())
