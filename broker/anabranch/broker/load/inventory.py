"""`Inventory`: the active segments of the topics that this node controls, each with its meter.

It follows the log by the topics and bundles that changed, so that a round of measuring reads no
state at all. A segment that is sealed or gone, as its topic's controller sees it, is told to take
its load away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from anabranch.broker.topics.controllers.service import TopicService
from anabranch.channel.load.loads import LoadTable, SegmentKey
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.core.autoscale.load import LoadRecord, Rates, SegmentLoad
from anabranch.core.autoscale.meter import SegmentMeter
from anabranch.core.autoscale.schedule import policy_of
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.names import full_name, namespace_of
from anabranch.core.topics.kafka_names import kafka_topic

_NOTHING: Final[Rates] = (0.0, 0.0, 0.0, 0.0)
_AT_ONCE: Final = 100  # topics looked at before others have their turn
_NEW_AT_ONCE: Final = 2_000  # segments that get their meters before that, in some 20 ms


class Measured(msgspec.Struct):
    """One active segment. `next_at`: the time of its next sample, after `pause_s` without news."""

    place: SegmentKey
    kafka: SegmentTopic
    created_ms: int
    meter: SegmentMeter
    next_at: float = 0.0
    pause_s: float = 0.0


class MeasuredTopic(msgspec.Struct):
    """One topic.

    `negligible`: rates below which its policy takes all for alike.
    """

    name: str
    incarnation: int
    segments: dict[int, Measured]
    negligible: Rates


class Inventory:
    """The segments to measure, for use in the node's event loop.

    `withdraw`: told of segments that exist no more.
    """

    def __init__(
        self,
        service: TopicService,
        table: LoadTable,
        window_s: float,
        withdraw: Callable[[list[SegmentKey]], None],
        now: Callable[[], float],
    ) -> None:
        self.topics: dict[str, MeasuredTopic] = {}
        self._service = service
        self._runtime = service.runtime
        self._table = table
        self._window_s = window_s
        self._withdraw = withdraw
        self._now = now
        self._touched: set[str] = set()
        self._moved = True  # bundles came or went: every topic may be concerned
        service.listeners.append(self._changed)

    def close(self) -> None:
        """Follows the log no more."""
        self._service.listeners.remove(self._changed)

    def __len__(self) -> int:
        return sum(len(topic.segments) for topic in self.topics.values())

    def find(self, place: SegmentKey) -> Measured | None:
        """The segment, if it is measured here."""
        topic = self.topics.get(place.topic)
        if topic is None or topic.incarnation != place.incarnation:
            return None
        return topic.segments.get(place.segment_id)

    async def follow(self) -> None:
        """Takes in the changes of the log since the last time."""
        touched, self._touched = self._touched, set()
        moved, self._moved = self._moved, False
        if moved:
            touched.update(self.topics)
            touched.update(self._table.topics())
            touched.update(await self._mine())
        for number, name in enumerate(sorted(touched)):
            is_whole = self.look(name)
            while not is_whole:
                await asyncio.sleep(0)
                is_whole = self.look(name)
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)

    def sweep(self) -> None:
        """Has every topic looked at again: a broker that lost a bundle may have left something
        behind.
        """
        self._moved = True

    def _changed(self, topics: list[str], units: list[str]) -> None:
        self._touched.update(topics)
        self._moved = self._moved or bool(units)

    async def _mine(self) -> list[str]:
        routes, me = self._runtime.routes, self._runtime.core.me
        homes = {unit.rpartition("/")[0] for unit in self._runtime.core.serving if "/" in unit}
        found = []
        for home in sorted(homes):
            for number, name in enumerate(list(self._runtime.view.topics(home))):
                if routes.owner(full_name(name), namespace_of(name)) == me:
                    found.append(name)
                if number % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(0)
        return found

    def look(self, name: str) -> bool:
        """Takes in how one topic is now; False when it has too many new segments for one step."""
        if not self._service.may_act(name):
            self.topics.pop(name, None)
            self._withdraw(self._orphans(name))
            return True
        topic = self._runtime.view.topic(name)
        if topic is None or not topic.is_open:
            self.topics.pop(name, None)
            if topic is None:
                self._withdraw(list(self._table.places(name)))
            return True
        known = self.topics.get(name)
        if known is None or known.incarnation != topic.incarnation:
            known = self.topics[name] = MeasuredTopic(name, topic.incarnation, {}, _NOTHING)
        broker = self._service.settings.auto_scale.policy
        policy = policy_of(self._runtime.view, name, topic, broker).policy
        known.negligible = policy.negligible
        return self._take_segments(known, topic)

    def _orphans(self, name: str) -> list[SegmentKey]:
        """Returns the segments left behind by a topic that was deleted with its namespace.

        Such a topic has no controller. Its loads must be old, because the log may be read a while
        later than the loads.
        """
        if not self._runtime.has_lease or self._runtime.view.namespace(namespace_of(name)):
            return []
        old_ms = self._runtime.core.log_ms - self._window_s * 1000
        return [
            place
            for place in self._table.places(name)
            if self._table.segments(name, place.incarnation)[place.segment_id].modified_ms < old_ms
        ]

    def _take_segments(self, known: MeasuredTopic, topic: ScalableTopic) -> bool:
        active = {part.segment_id: part for part in topic.segments if part.is_active}
        written = self._table.segments(known.name, topic.incarnation)
        left = set(known.segments)
        gone = [
            place
            for place in self._table.places(known.name)
            if place.incarnation != topic.incarnation or place.segment_id not in active
        ]
        # Loads measured here may be on their way to the table yet.
        gone += [
            SegmentKey(known.name, topic.incarnation, each)
            for each in left - active.keys()
            if each not in written
        ]
        for each in left - active.keys():
            del known.segments[each]
        if gone:
            self._withdraw(gone)
        new = [part for segment_id, part in active.items() if segment_id not in known.segments]
        for part in new[:_NEW_AT_ONCE]:
            name = kafka_topic(self._service.prefix, known.name, topic.incarnation, part)
            load = _record(written.get(part.segment_id))
            known.segments[part.segment_id] = Measured(
                SegmentKey(known.name, topic.incarnation, part.segment_id),
                SegmentTopic(name, part.buckets),
                part.created_at_ms,
                SegmentMeter(self._window_s, load, self._now()),
            )
        return len(new) <= _NEW_AT_ONCE


def _record(load: SegmentLoad | None) -> LoadRecord | None:
    return None if load is None else LoadRecord(*load.rates)
