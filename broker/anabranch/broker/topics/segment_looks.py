"""`SegmentLooks`: a controller looks at the Kafka topics of its segments, and tells its findings.

Kafka does not report what tools do to a segment's topic. So each node asks Kafka for all segments
that it controls, every five seconds: a change is known within ten. A finding counts when a second
look finds the same, as a broker may be behind the log. The node makes a missing seal again at once.
It reads the messages appended meanwhile once, to name them. It tells faults that it cannot put
right without loss: in the log, the statistics, its concerns and a gauge.

Kafka answers for 10,000 segments in 7 to 12 s, nearly all of it its own work, on two cores that it
shared with much else. That takes 0.3 to 0.6 s of the node's processor (2026-11-28). If Kafka cannot
be asked so, it takes 26 to 30 s, and 3 to 4 s. A look begins again after as long at least as it
took. So with so many segments on one node a change may take half a minute, or a minute.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, starmap
from typing import Any, Final

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anabranch.broker.errors import OperationError
from anabranch.broker.topics.controllers.service import TopicService
from anabranch.broker.topics.kafka_threads import told
from anabranch.broker.topics.recurring import Recurring
from anabranch.broker.topics.watches import OwnedTopics
from anabranch.channel.kafka.offsets import Place
from anabranch.channel.segments.admin import RETENTION
from anabranch.channel.segments.seal_settings import seal_in
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.topic import ScalableTopic, TopicState
from anabranch.core.names import full_name
from anabranch.core.topics.findings import (
    Expected,
    Findings,
    KafkaTopic,
    SegmentFinding,
    findings,
    strays_told,
)
from anabranch.core.topics.kafka_names import kafka_topic
from anabranch.wire import clock

_INTERVAL_S: Final = 5.0
_AT_ONCE: Final = 500  # segments of one question
_CONCERNS_MAX: Final = 20

Key = tuple[str, int, int]  # topic, incarnation, segment


class _Looked(msgspec.Struct, frozen=True):
    """A segment, and the Kafka topic that it was looked for at."""

    key: Key
    part: SegmentInfo
    kafka_topic: str


def _parts(name: str, topic: ScalableTopic | None) -> Iterator[tuple[Key, SegmentInfo]]:
    """The segments that an open topic has, but for those that are being sealed, or opened."""
    if topic is None or not topic.is_open:
        return
    being_sealed = topic.parents if topic.state is TopicState.SEALING else ()
    for part in topic.segments:
        if part.segment_id not in being_sealed and part is not topic.continued:
            yield (name, topic.incarnation, part.segment_id), part


class SegmentLooks(Recurring, Collector):
    """One node's looks, for use in its event loop. `lived_by`: settings that each segment has.

    `again_s`: seconds until a finding is looked at once more.
    """

    again_s = 1.0

    def __init__(
        self,
        service: TopicService,
        owned: OwnedTopics,
        lived_by: Mapping[str, str],
        now: Callable[[], float] = clock.now,
    ) -> None:
        super().__init__(service, "segments were looked at", _INTERVAL_S, now)
        self._owned = owned
        self._lived_by = lived_by
        # True if a segment has today's retention from this node: before, it may have another one.
        self.is_retained: Callable[[str, str], bool] = lambda name, kafka_topic: False
        self._found: dict[Key, Findings] = {}
        self._ends: dict[Key, tuple[int, ...]] = {}  # of those that take messages, seen last
        self._ids: dict[Key, str] = {}  # of Kafka's topics, where the log has none
        self._strays: dict[Key, str] = {}
        self._suspects: set[Key] = set()  # of which it is read whether there are strays
        self._runtime.worries.append(self._concerns)

    def of(self, name: str, incarnation: int, segment_id: int) -> list[str]:
        """Returns the findings about one segment."""
        return [*self._found.get((name, incarnation, segment_id), {}).values()]

    def note_ends(self, name: str, topic: ScalableTopic, ends: Mapping[Place, int]) -> None:
        """Takes the ends of Kafka's partitions that somebody has just asked for: one may be behind
        a seal.
        """
        for part in topic.segments:
            where = kafka_topic(self._service.prefix, name, topic.incarnation, part)
            key = name, topic.incarnation, part.segment_id
            if any(ends.get((where, n), end) > end for n, end in enumerate(part.end_offsets)):
                self._suspects.add(key)
            seen = tuple(ends.get((where, n), -1) for n in range(part.buckets))
            if part.is_active and min(seen) >= 0:
                self._ends[key] = seen

    def last_ends(self, name: str, incarnation: int, segment_id: int) -> tuple[int, ...]:
        """Returns the last known ends of the buckets of a segment that takes messages; () for
        unknown.
        """
        return self._ends.get((name, incarnation, segment_id), ())

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "anabranch_segment_findings",
            "Segments of the topic with outside changes of their Kafka topics, by finding.",
            None,
            ["topic", "finding"],
        )
        counts = Counter((key[0], each.value) for key, told in self._found.items() for each in told)
        for labels, count in sorted(counts.items()):
            family.add_metric(labels, count)
        return [family]

    def _concerns(self) -> Iterator[str]:
        told = (
            f"segment {self._descriptor(name, segment)} of {full_name(name)}: {what}"
            for (name, _, segment), found in sorted(self._found.items())
            for what in found.values()
        )
        for number, sentence in enumerate(told):
            if number == _CONCERNS_MAX:
                yield "More segments are not as they should be: see anabranch_segment_findings"
                return
            yield sentence

    def _descriptor(self, name: str, segment_id: int) -> str:
        """Names a segment with its part of the ring; one pruned since the last look has none any
        more.
        """
        topic = self._runtime.view.topic(name)
        part = topic.segment(segment_id) if topic is not None else None
        return str(segment_id) if part is None else part.descriptor

    def _tell(self, why: str, topic: str) -> None:
        self._log.warning("segments.not_looked_at", why=why)

    async def round(self) -> None:
        """Looks at all segments that this node controls, and does what follows."""
        await self._owned.follow()
        mine = [each async for each in self._mine()]
        keys = {each.key for each in mine}
        kept: tuple[dict[Key, Any], ...]
        kept = (self._found, self._ends, self._ids, self._strays)
        for known in kept:
            for key in known.keys() - keys:
                del known[key]
        self._suspects &= keys
        seen = await self._look(mine)
        news = [each for each in mine if seen.get(each.key, {}).keys() - self._known(each.key)]
        if news:
            await asyncio.sleep(self.again_s)
            again = await self._look(news)
            for each in news:
                if each.key in again:
                    seen[each.key] = again[each.key]
                else:  # Kafka did not say: what was known stays
                    del seen[each.key]
        for each in mine:
            found = seen.get(each.key, {})
            # A topic of an adopted one's name that others have made anew is theirs.
            is_another = each.part.is_legacy and SegmentFinding.OTHER_TOPIC in found
            if SegmentFinding.SEAL_GONE in found and not is_another and await self._sealed(each):
                del seen[each.key][SegmentFinding.SEAL_GONE]
            if each.key in self._suspects:
                await self._read_strays(each)
            if each.key in seen:
                self._note(each, seen[each.key])

    def _known(self, key: Key) -> set[SegmentFinding]:
        return set(self._found.get(key, {}))

    async def _mine(self) -> AsyncIterator[_Looked]:
        prefix = self._service.prefix
        for number, name in enumerate(self._owned.names()):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            topic = self._runtime.view.topic(name)
            if topic is not None and self._service.may_act(name):
                for key, part in _parts(name, topic):
                    yield _Looked(key, part, kafka_topic(prefix, name, topic.incarnation, part))

    async def _look(self, parts: Sequence[_Looked]) -> dict[Key, dict[SegmentFinding, str]]:
        """Returns the findings about each segment that Kafka tells of, and that is still what it
        was.
        """
        seen: dict[Key, dict[SegmentFinding, str]] = {}
        for start in range(0, len(parts), _AT_ONCE):
            some = parts[start : start + _AT_ONCE]
            names = [each.kafka_topic for each in some]
            found = await told(self._service.workers.look(names))
            topics = {name: self._runtime.view.topic(name) for name in {s.key[0] for s in some}}
            now = dict(chain.from_iterable(starmap(_parts, topics.items())))
            for each in some:
                if each.kafka_topic in found and now.get(each.key) == each.part:
                    seen[each.key] = self._findings(each, found[each.kafka_topic])
        return seen

    def _findings(self, each: _Looked, found: KafkaTopic | None) -> dict[SegmentFinding, str]:
        if found is not None and not each.part.topic_id:
            self._ids.setdefault(each.key, found.topic_id)
        sealed = not each.part.is_active
        if sealed and found is None and not any(each.part.end_offsets):
            return {}  # there was nothing to lose, and nobody looks for it
        ids = each.part.topic_id or self._ids.get(each.key, "")
        ends = each.part.end_offsets
        settings = {} if each.part.is_legacy else self._lived_by
        if not self.is_retained(each.key[0], each.kafka_topic):
            settings = {name: at for name, at in settings.items() if name not in RETENTION}
        seal = seal_in(found.settings if found is not None else {})
        right = Expected(each.part.buckets, sealed, seal, settings, ids, ends)
        return findings(right, found)

    async def _sealed(self, each: _Looked) -> bool:
        """Seals it again; False where Kafka does not do so now."""
        topic = SegmentTopic(each.kafka_topic, each.part.buckets, each.part.is_legacy)
        self._suspects.add(each.key)
        try:
            await told(self._service.workers.seal_again(topic))
        except OperationError as error:
            self._log.warning(
                "segment.not_sealed", topic=each.key[0], segment=each.key[2], why=error.reason
            )
            return False
        self._log.warning("segment.sealed_again", topic=each.key[0], segment=each.key[2])
        return True

    async def _read_strays(self, each: _Looked) -> None:
        ends = each.part.end_offsets
        try:
            found = await told(self._service.workers.strays(each.kafka_topic, ends))
        except OperationError:
            return  # it is a suspect until Kafka tells
        self._suspects.discard(each.key)
        if found:
            self._strays[each.key] = strays_told(ends, found)
        else:
            self._strays.pop(each.key, None)

    def _note(self, each: _Looked, told: dict[SegmentFinding, str]) -> None:
        """Tells each finding once, and once that it is gone."""
        if each.key in self._strays:
            told[SegmentFinding.STRAYS] = self._strays[each.key]
        before = self._found.get(each.key, {})
        name, _, segment = each.key
        for finding, what in told.items():
            if before.get(finding) != what:
                self._log.warning(
                    "segment.found",
                    topic=name,
                    segment=segment,
                    kafka_topic=each.kafka_topic,
                    range=each.part.descriptor,
                    finding=finding.value,
                    what=what,
                )
        for finding in before.keys() - told.keys():
            self._log.info("segment.well", topic=name, segment=segment, finding=finding.value)
        if told:
            self._found[each.key] = told
        else:
            self._found.pop(each.key, None)
