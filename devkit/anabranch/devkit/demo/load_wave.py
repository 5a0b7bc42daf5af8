"""The demo's topic that nobody splits: its load rises and falls, and a policy acts on it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import click
import httpx
import msgspec

from anabranch.devkit.demo.reach import OPEN, Reach, checked
from anabranch.devkit.demo.trace import Event
from anabranch.devkit.demo.traffic import DemoConsumers
from anabranch.devkit.hot_broker import MEASURES
from anabranch.devkit.nodes import NodeAddress
from anabranch.spark_replay.report.charts import Bins, lines
from anabranch.spark_replay.report.document import document

WAVE_TOPIC: Final = "services/core/load-wave"
CONSUMERS: Final = DemoConsumers(
    readers=("wave-a",),
    workers=(),
    comings=((0.3, "wave-b"), (0.4, "wave-c")),
    leavings=((0.72, "wave-b"),),
)
# A minute of the defaults is a second or so here, and a thousand messages a few.
SETTINGS: Final = (
    *MEASURES,
    "scalableTopicAutoScaleIntervalSeconds=0.5",
)
POLICY: Final = {
    "maxSegments": 6,
    "splitCooldownSeconds": 1.5,
    "rebucketCooldownSeconds": 1.5,
    "mergeCooldownSeconds": 1.5,
    "mergeWindowSeconds": 3,
    "splitMsgRateInThreshold": 60,
    "mergeMsgRateInThreshold": 15,
    "splitVsRebucketMinMsgRateInThreshold": 20,
}
# Messages a second at these shares of the duration, on a line between them.
_RATES: Final = ((0.0, 10.0), (0.15, 10.0), (0.4, 300.0), (0.5, 300.0), (0.62, 10.0), (1.0, 10.0))
_STEP_S: Final = 0.01
_SAMPLE_S: Final = 0.5
_SECONDS_MAX: Final = 5.0
_LOAD, _SEGMENTS, _CONSUMERS = "#2a78d6", "#eb6834", "#12703f"


def rate_at(share: float) -> float:
    """Messages a second at this share of the duration."""
    for (low, before), (high, after) in pairwise(_RATES):
        if low <= share <= high:
            return before + (after - before) * (share - low) / (high - low)
    return _RATES[-1][1]


def wave_events(events: Sequence[Event], duration_s: float) -> list[Event]:
    """The trace's events in their order, again and again, at the speed of the load wave."""
    found: list[Event] = []
    due = 0.0
    for step in range(int(duration_s / _STEP_S)):
        due += rate_at(step * _STEP_S / duration_s) * _STEP_S
        while len(found) < due:
            event = events[len(found) % len(events)]
            found.append(msgspec.structs.replace(event, at_s=step * _STEP_S))
    return found


class Sample(msgspec.Struct, frozen=True):
    """The topic at one moment, as its controller's statistics have it."""

    at_ms: int
    msg_rate_in: float
    segments: int
    consumers: int


class ScalingDecision(msgspec.Struct, frozen=True, order=True):
    """One decision that acted, or was kept from it."""

    at_ms: int
    action: str
    why: str


class LoadWave:
    """Makes the topic, sets its policy, and watches what comes of it."""

    def __init__(
        self,
        topic: str,
        serving: Sequence[NodeAddress],
        say: Callable[[str], None],
        reach: Reach = OPEN,
    ) -> None:
        self.samples: list[Sample] = []
        self.decisions: set[ScalingDecision] = set()
        self._topic = topic
        self._path = f"/admin/v2/scalable/{topic}"
        self._serving = serving  # changes as nodes come and go
        self._say = say
        self._dice = random.Random(13)
        urls = tuple(node.url for node in serving)
        self._http = reach.http(urls, timeout=_SECONDS_MAX, follow_redirects=True)

    async def close(self) -> None:
        """Ends the connections."""
        await self._http.aclose()

    async def create(self) -> None:
        """One segment, and a policy for a day that is a minute long. Raises RefusedError."""
        url = self._serving[0].url + self._path
        checked(await self._http.put(url))
        checked(await self._http.post(f"{url}/autoScalePolicy", json=POLICY))
        self._say(f"created topic://{self._topic} with 1 segment; nobody will split it")

    async def run(self) -> None:
        """Samples until it is cancelled; says each action."""
        while True:
            with contextlib.suppress(httpx.HTTPError):  # a node may just have been killed
                self._take(await self.stats())
            await asyncio.sleep(_SAMPLE_S)

    async def stats(self) -> dict[str, Any]:
        """What the topic's controller says of it."""
        answer = await self._http.get(f"{self._dice.choice(self._serving).url}{self._path}/stats")
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def _take(self, stats: dict[str, Any]) -> None:
        active = [each for each in stats["segments"].values() if each["state"] == "ACTIVE"]
        rate = sum(each["load"]["msgRateIn"] for each in active if each["load"])
        consumers = sum(each["consumerCount"] for each in stats["subscriptions"].values())
        self.samples.append(Sample(int(time.time() * 1000), rate, len(active), consumers))
        for each in reversed(stats["autoScale"]["decisions"]):
            found = ScalingDecision(each["atMs"], each["action"], each["why"])
            if found not in self.decisions and found.action != "none":
                self._say(f"by itself: {found.action}, because {found.why}")
            self.decisions.add(found)

    # --- what there was to see ----------------------------------------------------------

    @property
    def acted(self) -> list[ScalingDecision]:
        """The decisions that acted, in their order."""
        return sorted(each for each in self.decisions if each.action != "none")

    @property
    def most(self) -> int:
        """The most active segments that were seen."""
        return max((each.segments for each in self.samples), default=0)

    @property
    def has_turned(self) -> bool:
        """Whether it scaled out, and in again, all by itself."""
        last = self.samples[-1].segments if self.samples else 0
        return self.most > 1 and last < self.most

    def say(self) -> None:
        """The course of it in a few lines."""
        last = self.samples[-1].segments if self.samples else 0
        kinds = [each.action.split()[0] for each in self.acted]
        counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds))) or "none"
        peak = max((each.msg_rate_in for each in self.samples), default=0.0)
        click.echo(
            f"the load wave: up to {peak:.0f} msg/s, from 1 to {self.most} segments and back to "
            f"{last}, by itself: {counts}"
        )

    def write(self, file: Path) -> None:
        """A page with load, segments, consumers and decisions over time."""
        file.write_text(document("Load and segments", self._page()), encoding="utf-8")

    def _page(self) -> str:
        begun_ms, end_ms = self.samples[0].at_ms, self.samples[-1].at_ms
        width_ms = int(_SAMPLE_S * 1000)
        bins = Bins(begun_ms, width_ms, max(1, (end_ms - begun_ms) // width_ms + 1))
        series: dict[str, list[float]] = {"load": [], "segments": [], "consumers": []}
        place = 0
        for number in range(bins.count):
            until_ms = begun_ms + (number + 1) * width_ms
            while place + 1 < len(self.samples) and self.samples[place + 1].at_ms < until_ms:
                place += 1
            at = self.samples[place]
            series["load"].append(at.msg_rate_in)
            series["segments"].append(float(at.segments))
            series["consumers"].append(float(at.consumers))
        level = float(POLICY["splitMsgRateInThreshold"])
        rows = "".join(
            f"<tr><td class=n>{(each.at_ms - begun_ms) / 1000:.1f} s<td><code>"
            f"{escape(each.action)}</code><td>{escape(each.why)}</tr>"
            for each in sorted(self.decisions)
        )
        return (
            f"<h1>topic://{self._topic}</h1><p>Nobody called split or merge.</p>"
            "<h2>Load</h2><p>Messages in per second as the policy saw them; the line is the rate "
            "above which one segment is split.</p>"
            + lines({"load": series["load"]}, bins, {"load": _LOAD}, unit="msg/s", level=level)
            + "<h2>Active segments</h2>"
            + lines(
                {"segments": series["segments"]}, bins, {"segments": _SEGMENTS}, unit="segments"
            )
            + "<h2>Consumers</h2>"
            + lines(
                {"consumers": series["consumers"]},
                bins,
                {"consumers": _CONSUMERS},
                unit="consumers",
            )
            + "<h2>Decisions</h2><table><tr><th class=n>after<th>action<th>why</tr>"
            + rows
            + "</table>"
        )
