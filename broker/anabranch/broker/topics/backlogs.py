"""`Backlogs`: how much each subscription of a topic has yet to read, as far as Kafka tells."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from anabranch.broker.errors import OperationError
from anabranch.broker.topics.positions import Part, Positions, backlogs
from anabranch.broker.topics.wide import beside
from anabranch.core.segment_topics import kafka_group, kafka_topic
from anabranch.core.subscriptions import Subscription, SubscriptionKind
from anabranch.core.topics import ScalableTopic
from anabranch.wire import clock

_FRESH_S: Final = 3.0
_ANSWER_S: Final = 3.0
_KEPT_MAX: Final = 1_000  # topics
_BUCKETS_MAX: Final = 4_096  # that Kafka is asked for at once
_GROUPS_MAX: Final = 32
_NO_POSITIONS: Final = {
    SubscriptionKind.QUEUE: "Kafka keeps a share group's positions to itself; "
    "kafka-share-groups.sh --describe shows them",
    SubscriptionKind.CHECKPOINT: "its consumers keep their positions themselves",
}


class Backlog(msgspec.Struct, frozen=True):
    """Records that are not acknowledged; None: not known, and `unknown` says why."""

    messages: int | None
    segments: Mapping[int, int | None]
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
        groups = (each.created_offset for each in subscriptions.values())
        version = (topic.incarnation, topic.version, *groups)
        known = self._known.get(name)
        if known is None or known.version != version or clock.now() >= known.until:
            self._known.pop(name, None)
            while len(self._known) >= _KEPT_MAX:
                del self._known[next(iter(self._known))]
            task = asyncio.create_task(self._find(name, topic, subscriptions), name="backlogs")
            known = self._known[name] = _Known(version, clock.now() + _FRESH_S, task)
        return await asyncio.shield(known.found)

    async def stop(self) -> None:
        """Waits for the questions that are under way."""
        tasks = [each.found for each in self._known.values()]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _find(
        self, name: str, topic: ScalableTopic, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Backlog]:
        question = await beside(topic, lambda: _question(self._prefix, name, topic, subscriptions))
        why, found = "", {}
        if question.buckets > _BUCKETS_MAX:
            why = (
                f"{question.buckets} entry buckets are more than the {_BUCKETS_MAX} that are "
                "looked up"
            )
        elif question.groups:
            try:
                found = await self._positions.ask(
                    lambda keeper, left_s: backlogs(keeper, question.groups, left_s), _ANSWER_S
                )
            except OperationError as error:
                why = error.reason
        return await beside(topic, lambda: _answers(topic, question, found, why))


class _Question(msgspec.Struct, frozen=True):
    """What Kafka is asked for: `groups`, and what each has yet to read, of `buckets` in all.

    `left`, `group`: the same by subscription; `unasked`: why Kafka is not asked for one.
    """

    left: Mapping[str, list[Part]]
    group: Mapping[str, str]
    unasked: Mapping[str, str]
    groups: Mapping[str, list[Part]]
    buckets: int


def _question(
    prefix: str, name: str, topic: ScalableTopic, subscriptions: Mapping[str, Subscription]
) -> _Question:
    parts = [
        Part(part, kafka_topic(prefix, name, topic.incarnation, part)) for part in topic.segments
    ]
    left: dict[str, list[Part]] = {}
    group: dict[str, str] = {}
    unasked: dict[str, str] = {}
    for each, known in subscriptions.items():
        drained = set(known.drained)
        left[each] = [part for part in parts if part.segment.segment_id not in drained]
        why = _NO_POSITIONS.get(known.kind, "")
        if not why and len(group) >= _GROUPS_MAX:
            why = f"only {_GROUPS_MAX} subscriptions of a topic are looked up"
        if why:
            unasked[each] = why
        else:
            group[each] = kafka_group(prefix, name, each, known.created_offset)
    groups = {named: left[each] for each, named in group.items()}
    asked = {part.segment.segment_id: part.segment for some in groups.values() for part in some}
    buckets = sum(segment.buckets for segment in asked.values())
    return _Question(left, group, unasked, groups, buckets)


def _answers(
    topic: ScalableTopic, question: _Question, found: Mapping[str, Mapping[int, int]], why: str
) -> dict[str, Backlog]:
    """`why`: nothing was found; else what was, by group."""
    answers = {}
    for each, left in question.left.items():
        unknown = question.unasked.get(each, why)
        answers[each] = (
            _unknown(topic, left, unknown)
            if unknown
            else _backlog(topic, found[question.group[each]])
        )
    return answers


def _backlog(topic: ScalableTopic, found: Mapping[int, int]) -> Backlog:
    segments = {part.segment_id: found.get(part.segment_id, 0) for part in topic.segments}
    return Backlog(sum(found.values()), segments)


def _unknown(topic: ScalableTopic, left: list[Part], why: str) -> Backlog:
    """What is drained has no backlog, whoever keeps the positions."""
    open_ids = {part.segment.segment_id for part in left}
    segments = {
        part.segment_id: None if part.segment_id in open_ids else 0 for part in topic.segments
    }
    return Backlog(None, segments, why)
