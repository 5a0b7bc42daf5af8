"""`SegmentLoadReporter`: measures the segments of this node's topics and tells all nodes.

The proposal lets the owner of each segment measure it (PIP-483, "Load reporting"). Segments have no
owners of their own here, but their topics do. So the node that owns a topic's bundle, its
controller, measures all its active segments, only while the node's lease holds.

It asks Kafka, some thousand partitions a request, in a thread. It asks about resting segments less
and less often, but once in a window at least. It alone writes a load, once that has changed much.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from anabranch.broker.load.inventory import Inventory, Measured
from anabranch.broker.load.traffic import TrafficGrowth, TrafficReports
from anabranch.broker.logging import get_logger
from anabranch.broker.settings import Settings
from anabranch.broker.topics.controllers.service import TopicService
from anabranch.channel.load.loads import KafkaLoads, LoadTable, SegmentKey
from anabranch.channel.load.probe import LoadProbe
from anabranch.wire import clock

_ENDS_S: Final = 5.0
_SIZES_S: Final = 2.0
_SIZED_MAX: Final = 16  # segments of one round whose messages are looked at
_AT_ONCE: Final = 100  # segments rated, or topics looked at, before others have their turn
_WHOLE_S_MAX: Final = 30.0
_LOOK_S: Final = 0.05


class LoadSettings(msgspec.Struct, frozen=True):
    """The timing of measuring, in seconds. `threshold`: a share of the last written load."""

    interval_s: float = 10.0
    window_s: float = 60.0
    threshold: float = 0.25


class SegmentLoadReporter:
    """One node's. `run` until it is cancelled, then `close`; for use in the event loop."""

    def __init__(
        self,
        service: TopicService,
        table: LoadTable,
        loads: KafkaLoads,
        reports: TrafficReports,
        settings: LoadSettings,
        open_probe: Callable[[], LoadProbe],
        now: Callable[[], float] = clock.now,
    ) -> None:
        self._now = now
        self.round_s = 0.0  # the last round's duration
        self.settings = settings
        self.inventory = Inventory(service, table, settings.window_s, self._withdraw, now)
        self._service = service
        self._loads = loads
        self._reports = reports
        self._open_probe = open_probe
        self._probe: LoadProbe | None = None
        self._thread = ThreadPoolExecutor(1, "load")
        self._sweep_at = self._now() + settings.window_s
        self._log = get_logger(broker=service.runtime.core.me)

    async def run(self) -> None:
        """Measures until it is cancelled."""
        deadline = self._now() + _WHOLE_S_MAX
        while self._now() < deadline:  # so as to go on from what others have written, in all meters
            if self._loads.is_whole:
                break
            await asyncio.sleep(_LOOK_S)
        while True:
            began = self._now()
            await self.round()
            self.round_s = self._now() - began
            await asyncio.sleep(max(0.0, began + self.settings.interval_s - self._now()))

    async def close(self) -> None:
        """Ends the thread and its clients."""
        self._reports.listener = None
        self.inventory.close()
        if self._probe is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._probe.close)
        await asyncio.to_thread(self._thread.shutdown)

    async def round(self) -> None:
        """Measures everything that is due, once; from the first time on reports count, too."""
        self._reports.listener = self._grown
        now = self._now()
        if now >= self._sweep_at:
            self._sweep_at = now + self.settings.window_s
            self.inventory.sweep()
            self._reports.tidy()
        await self.inventory.follow()
        due = await self._due(now)
        loop = asyncio.get_running_loop()
        asked = {each.kafka.name: each for each in due}
        ends, at = await loop.run_in_executor(self._thread, self._ask, due)
        totals = {name: sum(each) for name, each in ends.items()}
        lacking = self._lacking_sizes(asked, totals)
        if lacking:
            newest = {name: ends[name] for name in lacking}
            sizes = await loop.run_in_executor(self._thread, self._sizes, newest)
            for name, size in sizes.items():
                asked[name].meter.sized(size, at)
        await self._rate(asked, totals, at)

    # --- asking -------------------------------------------------------------------------

    async def _due(self, now: float) -> list[Measured]:
        due: list[Measured] = []
        for number, (name, topic) in enumerate(list(self.inventory.topics.items())):
            if not self._service.may_act(name):
                self.inventory.topics.pop(name, None)
                self._reports.forget(name, topic.incarnation)
                self.inventory.sweep()
                continue
            due += [each for each in topic.segments.values() if each.next_at <= now]
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        return due

    def _ask(self, due: list[Measured]) -> tuple[dict[str, tuple[int, ...]], float]:
        """In the thread, as all that needs the probe: the ends, and when they were that."""
        if self._probe is None:
            self._probe = self._open_probe()
        began = self._now()
        ends = self._probe.ends([each.kafka for each in due], _ENDS_S) if due else {}
        return ends, (began + self._now()) / 2

    def _sizes(self, ends: Mapping[str, Sequence[int]]) -> dict[str, float]:
        return self._probe.sizes(ends, _SIZES_S) if self._probe is not None else {}

    def _lacking_sizes(self, asked: dict[str, Measured], totals: dict[str, int]) -> list[str]:
        """Returns the busiest segments whose messages' size no client tells."""
        now = self._now()
        lacking = [n for n, total in totals.items() if asked[n].meter.lacks_size(total, now)]
        lacking.sort(key=lambda name: asked[name].meter.came(totals[name]), reverse=True)
        return lacking[:_SIZED_MAX]

    # --- results of a round ---------------------------------------------------------------

    async def _rate(self, asked: dict[str, Measured], totals: dict[str, int], at: float) -> None:
        for number, (name, total) in enumerate(totals.items()):
            each = asked[name]
            if self.inventory.find(each.place) is each and self._service.may_act(each.place.topic):
                self._sample(each, total, at)
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)

    def _sample(self, each: Measured, total: int, at: float) -> None:
        meter, settings = each.meter, self.settings
        age_s = max(0.0, (self._service.runtime.core.log_ms - each.created_ms) / 1000)
        young = age_s < settings.window_s and meter.known is None
        came = meter.came(total)
        topic = self.inventory.topics[each.place.topic]
        meter.sample(at, total, at - age_s if young else None)
        news = meter.news(settings.threshold, topic.negligible)
        if news is not None:
            self._loads.write({each.place: news})
        if came or not meter.is_idle:
            each.pause_s = settings.interval_s
        else:
            longest_s = max(settings.window_s, settings.interval_s)
            each.pause_s = min(max(2 * each.pause_s, settings.interval_s), longest_s)
        each.next_at = at + each.pause_s - settings.interval_s / 2  # rounds are not that exact

    def _grown(self, grown: TrafficGrowth) -> None:
        """A client has reported."""
        known = self._service.runtime.view.subscription(grown.topic, grown.subscription)
        if grown.subscription and known is None:
            return
        if grown.topic not in self.inventory.topics:
            self.inventory.look(grown.topic)  # taken over since the last round
        each = self.inventory.find(SegmentKey(grown.topic, grown.incarnation, grown.segment_id))
        if each is None:
            return
        if known is not None:  # one that was put elsewhere may read all again
            reader = f"{grown.subscription}@{known.created_offset}"
            each.meter.read(grown.messages, grown.size_bytes, reader)
        else:
            each.meter.written(grown.messages, grown.size_bytes)
        each.next_at = 0.0

    def _withdraw(self, places: list[SegmentKey]) -> None:
        if places:
            self._loads.write(dict.fromkeys(places))


def build_reporter(
    service: TopicService,
    reports: TrafficReports,
    settings: Settings,
    table: LoadTable,
    loads: KafkaLoads,
    open_probe: Callable[[], LoadProbe],
) -> SegmentLoadReporter:
    """`open_probe` is called in a thread, when there is something to ask."""
    measured = LoadSettings(
        interval_s=settings.scalable_topic_load_report_interval_seconds,
        window_s=settings.scalable_topic_load_window_seconds,
        threshold=settings.scalable_topic_load_report_rate_change_threshold,
    )
    reporter = SegmentLoadReporter(service, table, loads, reports, measured, open_probe)
    metrics = service.runtime.metrics
    metrics.gauge(
        "anabranch_load_segments",
        "Active segments whose load this node measures.",
        lambda: len(reporter.inventory),
    )
    metrics.gauge(
        "anabranch_load_round_seconds",
        "Time of the last round of measuring.",
        lambda: reporter.round_s,
    )
    return reporter
