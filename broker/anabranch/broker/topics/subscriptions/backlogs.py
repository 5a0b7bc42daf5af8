"""Backlogs of subscriptions, and what keeps sealed segments from being read, for those who ask.

Only Kafka knows both ends of a backlog, and it may not answer. The largest topics are not asked
for. An unknown backlog is said to be unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from anabranch.broker.errors import OperationError
from anabranch.broker.topics.subscriptions.positions import (
    ANSWER_S,
    Group,
    Part,
    Positions,
    Survey,
    reading_groups,
    survey,
)
from anabranch.channel.kafka.offsets import Place
from anabranch.core.entities.subscription import Subscription, SubscriptionKind
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.subscriptions.draining import Bucket
from anabranch.core.topics.kafka_names import kafka_topic
from anabranch.wire import clock
from anabranch.wire.supervised import supervised

_FRESH_S: Final = 3.0
_KEPT_MAX: Final = 1_000  # topics
_BUCKETS_MAX: Final = 4_096  # that Kafka is asked for at once
_GROUPS_MAX: Final = 32
_NOT_TOLD: Final = (
    "nodes hear how far a share group has read only from Kafka 4.1 on, and with SASL by PLAIN, "
    "SCRAM or OAUTHBEARER alone; kafka-share-groups.sh --describe shows it"
)


class Backlog(msgspec.Struct, frozen=True):
    """Records that are not acknowledged; None: not known, and `unknown` says why.

    `positions`: of a subscription that reads in order, by segment, the next offset of each bucket.
    """

    messages: int | None
    segments: Mapping[int, int | None]
    unknown: str = ""
    positions: Mapping[int, tuple[int, ...]] = {}


class HeldSegments(msgspec.Struct, frozen=True):
    """The buckets of sealed segments that an open transaction keeps from being read.

    `starts`: by segment and bucket, from where on. `unknown`: the reason if they are not known.
    """

    starts: Mapping[Bucket, int]
    unknown: str = ""


class _Known(msgspec.Struct, frozen=True):
    version: tuple[int, ...]
    until: float
    found: asyncio.Task[dict[str, Backlog]]


class Backlogs:
    """Asked in the event loop; an answer is good for a few seconds."""

    def __init__(self, positions: Positions, prefix: str) -> None:
        self._positions = positions
        self._prefix = prefix
        self._known: dict[str, _Known] = {}

    async def of(
        self, name: str, topic: ScalableTopic, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Backlog]:
        """By subscription. Never raises for what Kafka does or does not say."""
        groups = (each.version for each in subscriptions.values())
        version = (topic.incarnation, topic.version, *groups)
        known = self._known.get(name)
        if known is None or known.version != version or clock.now() >= known.until:
            self._known.pop(name, None)
            while len(self._known) >= _KEPT_MAX:
                del self._known[next(iter(self._known))]
            task = supervised(self._find(name, topic, subscriptions), "backlogs")
            known = self._known[name] = _Known(version, clock.now() + _FRESH_S, task)
        return await asyncio.shield(known.found)

    async def held(
        self, name: str, topic: ScalableTopic, backlogs: Iterable[Backlog]
    ) -> HeldSegments:
        """Those of the sealed segments that some of these backlogs are in.

        Never raises for what Kafka does or does not say.
        """
        unread = {
            number for each in backlogs for number, left in each.segments.items() if left != 0
        }
        ends: dict[Place, int] = {}
        buckets: dict[Place, Bucket] = {}
        for part in topic.segments:
            number = part.segment_id
            if part.is_active or number not in unread:
                continue
            where = Part(part, kafka_topic(self._prefix, name, topic.incarnation, part))
            ends.update(zip(where.places(), part.end_offsets, strict=True))
            buckets.update((place, (number, place[1])) for place in where.places())
        if not ends:
            return HeldSegments({})
        if len(ends) > _BUCKETS_MAX:
            return HeldSegments({}, _too_many(len(ends)))
        try:
            found = await self._positions.ask(
                lambda keeper, left_s: keeper.held(ends, left_s), ANSWER_S
            )
        except OperationError as error:
            return HeldSegments({}, error.reason)
        return HeldSegments({buckets[place]: start for place, start in found.items()})

    async def stop(self) -> None:
        """Ends the threads of questions; waits for those that are under way."""
        await self._positions.stop()
        tasks = [each.found for each in self._known.values()]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _find(
        self, name: str, topic: ScalableTopic, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Backlog]:
        parts = [
            Part(part, kafka_topic(self._prefix, name, topic.incarnation, part))
            for part in topic.segments
        ]
        groups = reading_groups(self._prefix, name, parts, subscriptions)
        asked = list(groups.values())[:_GROUPS_MAX]
        segments = {part.kafka_topic: part.segment for group in asked for part in group.parts}
        buckets = sum(segment.buckets for segment in segments.values())
        why = _NOT_TOLD
        found: Survey | None = None
        if buckets > _BUCKETS_MAX:
            why = _too_many(buckets)
        elif asked:
            try:
                found = await self._positions.ask(
                    lambda keeper, left_s: survey(keeper, asked, left_s), ANSWER_S
                )
            except OperationError as error:
                why = error.reason
        few = f"only {_GROUPS_MAX} subscriptions of a topic are looked up"
        return {
            each: _backlog(topic, group, found, why if at < _GROUPS_MAX else few)
            for at, (each, group) in enumerate(groups.items())
        }


def _backlog(topic: ScalableTopic, group: Group, found: Survey | None, why: str) -> Backlog:
    """Returns the group's backlog by what was found; else an unknown one, for the reason `why`.

    It counts no records that Kafka has deleted since. A drained segment has no backlog in any case,
    and a queue that Kafka does not tell of has an unknown one.
    """
    if found is not None and group.name in found.positions:
        left = {
            part.segment.segment_id: sum(found.left(group.name, place) for place in part.places())
            for part in group.parts
        }
        segments = {part.segment_id: left.get(part.segment_id, 0) for part in topic.segments}
        in_order = group.known.kind is not SubscriptionKind.QUEUE
        return Backlog(
            sum(left.values()),
            segments,
            positions=_positions(topic, group, found) if in_order else {},
        )
    unread = {part.segment.segment_id for part in group.parts}
    return Backlog(
        None,
        {each.segment_id: None if each.segment_id in unread else 0 for each in topic.segments},
        why,
    )


def _positions(topic: ScalableTopic, group: Group, found: Survey) -> dict[int, tuple[int, ...]]:
    """Returns where the group goes on in each segment; a drained one is read to its end."""
    at = found.positions[group.name]
    read = {part.segment_id: part.end_offsets for part in topic.segments if part.end_offsets}
    left = {
        part.segment.segment_id: tuple(at[place] for place in part.places()) for part in group.parts
    }
    return read | left


def _too_many(buckets: int) -> str:
    return f"{buckets} entry buckets are more than the {_BUCKETS_MAX} that are looked up"
