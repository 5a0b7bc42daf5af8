"""`TopicSurveys`: a controller's regular work for its topics' subscriptions, used or not.

It asks Kafka for each one's progress, and keeps positions that Kafka forgets. Kafka forgets a
position without a commit for `offsets.retention.minutes`: that of a group without consumers, or of
a bucket without messages. So positions are written into the log, in a record that fits the very
version of the subscription that they were read for. Nothing is committed to Kafka. It has no
"unless somebody has committed since", and a late commit would take a consumer's own back.

Messages that all have read, and that are old enough, are deleted. An unused subscription expires if
an operator has set a time for that (`Expiry`).

Kafka may be slow, and librdkafka takes a client for each group. So eight topics are looked at at
once. A look takes half a minute at most for positions, ten seconds of it for a group. 1,000 topics
are through in about an hour if each takes all of it. Groups for which there was no time are the
first ones of the next look.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from anabranch.broker.errors import OperationError, UnavailableError
from anabranch.broker.logging import get_logger
from anabranch.broker.topics.kafka_threads import told
from anabranch.broker.topics.recurring import Recurring
from anabranch.broker.topics.subscriptions.changes import Subscriptions
from anabranch.broker.topics.subscriptions.groups import written_parts
from anabranch.broker.topics.subscriptions.positions import (
    Group,
    Part,
    Positions,
    Survey,
    TopicSample,
    reading_groups,
    survey,
)
from anabranch.broker.topics.subscriptions.queue_positions import KafkaPositions
from anabranch.broker.topics.watches import OwnedTopics
from anabranch.channel.kafka.offsets import LATEST, Place
from anabranch.core.entities.subscription import Subscription, SubscriptionKind, SubscriptionOp
from anabranch.core.entities.topic import Operation, ScalableTopic
from anabranch.core.subscriptions.draining import drained_by_positions
from anabranch.core.topics.kafka_names import kafka_topic
from anabranch.core.topics.retention import Expiring, Retention, expiring, trims, written_down
from anabranch.wire import clock

_KAFKA_S: Final = 30.0
_GROUP_S: Final = 10.0
_GRACES: Final = 2  # for which nobody was seen before a subscription may expire
_OLD_S: Final = 5.0  # left for the question what is old
AT_ONCE: Final = 8  # topics
_SEARCHES: Final = 60  # rounds from one search for stray groups to the next
_TRIMS: Final = 50  # in the time that what all have read is kept
_TRIM_S_MAX: Final = 3_600.0


class TopicSurveys(Recurring):
    """One node's surveys. `look` may be called for one topic; `round` looks at all its own.

    `busy_rounds`: the rounds after which positions in use are written down again.
    """

    busy_rounds = 60

    def __init__(
        self,
        subscriptions: Subscriptions,
        positions: Positions,
        owned: OwnedTopics,
        retention: Retention,
        interval_s: float,
        now: Callable[[], float],
        note_ends: Callable[[str, ScalableTopic, Mapping[Place, int]], None],
    ) -> None:
        access = subscriptions.access
        super().__init__(access.service, "subscriptions were kept", interval_s, now)
        self._note_ends = note_ends
        self.seen: dict[str, TopicSample] = {}
        self.expiry = Expiry(subscriptions, positions, retention.expiry_s, now)
        self._access = access
        self._subscriptions = subscriptions
        self._positions = positions
        self._owned = owned
        self._retention = retention
        self._note_at: dict[tuple[str, str], tuple[int, float]] = {}  # group's number, when next
        self._trim_at: dict[str, float] = {}
        self._unasked: dict[str, list[str]] = {}  # subscriptions for which no time was left
        self._rounds = 0
        self._retained: dict[str, set[str]] = {}  # topics, and which Kafka topics of each

    async def stop(self) -> None:
        """Ends work under way; a question that Kafka was asked has a deadline of its own."""
        await super().stop()
        await self._positions.stop()

    async def round(self) -> None:
        """Looks at all topics of this node, and leaves failed looks for the next round."""
        self._rounds += 1
        if self._rounds % _SEARCHES == 1 and self._runtime.core.is_leader():
            await self._search()
        await self._owned.follow()
        names = self._owned.names()
        mine = set(names)
        self._forget(mine)
        left = iter(names)  # of all that look
        async with asyncio.TaskGroup() as looking:
            for _ in range(AT_ONCE):
                looking.create_task(self._look_at(left))

    async def _look_at(self, names: Iterator[str]) -> None:
        for name in names:
            if not self._service.may_act(name):
                continue
            try:
                await self.look(name)
            except OperationError as error:
                self._failed(error, name)

    def _tell(self, why: str, topic: str) -> None:
        self._log.warning("topic.not_kept", topic=topic, why=why)

    async def _search(self) -> None:
        try:
            await self._subscriptions.groups.delete_strays(self._positions)
        except OperationError as error:
            self._log.warning("groups.not_searched", why=error.reason)

    def _forget(self, mine: set[str]) -> None:
        """Forgets topics of other nodes, and subscriptions that are gone."""
        kept: tuple[dict[str, Any], ...] = (
            self.seen,
            self._trim_at,
            self._unasked,
            self._retained,
        )
        for topics in kept:
            for name in topics.keys() - mine:
                del topics[name]
        for key in list(self._note_at):
            if key[0] not in mine or self._runtime.view.subscription(*key) is None:
                del self._note_at[key]
        self.expiry.forget(mine)

    async def look(self, name: str) -> None:
        """Looks at one topic whose controller this node is. Raises what its requests end in."""
        topic = self._access.topic(name)
        await self._retain(name, topic)
        subscriptions = dict(self._runtime.view.subscriptions(name))
        trims_due = self._trims_due(name)
        if not subscriptions and not trims_due:
            return
        prefix, first = self._service.prefix, self._unasked.get(name, ())
        parts = written_parts(prefix, name, topic)
        in_turn = dict.fromkeys(
            (*(each for each in first if each in subscriptions), *subscriptions)
        )
        wanted = {each: subscriptions[each] for each in in_turn}
        asked = _Asked(parts, reading_groups(prefix, name, parts, wanted))
        young_ms = self._young_ms() if trims_due else None
        found, old, stops = await self._positions.ask(
            lambda keeper, left_s: _survey(keeper, asked, young_ms, left_s), _KAFKA_S
        )
        if not self._service.may_act(name):
            return
        unasked = set(found.unasked)
        self._unasked[name] = [each for each, g in asked.groups.items() if g.name in unasked]
        self._note_seen(name, topic, asked, found)
        self._note_ends(name, topic, {**found.ends, **stops})
        late = False
        for subscription, group in asked.groups.items():
            at = found.positions.get(group.name)
            if at is not None and await self._say_drained(name, topic, subscription, group, found):
                continue
            # Kafka forgets no queue's, and where a checkpoint begins is its consumer's to say.
            if group.known.kind is not SubscriptionKind.STREAM:
                continue
            if at is None:
                late = True
            else:
                await self._write_down(name, subscription, group, at)
        if young_ms is not None:
            await self._trim(name, topic, subscriptions, asked, found, old)
        for subscription, known in subscriptions.items():
            await self.expiry.look(name, subscription, known)
        if late:
            raise UnavailableError(
                "Kafka did not tell in time how far each subscription has read; those that were "
                "not asked for are the first ones of the next look"
            )

    # --- positions ----------------------------------------------------------------------

    async def _say_drained(
        self,
        name: str,
        topic: ScalableTopic,
        subscription: str,
        group: Group,
        found: Survey,
    ) -> bool:
        """Returns whether the log is told of drained segments that no consumer is there to report.

        The consumers of a used stream report them. Kafka does not give a queue's acknowledged
        messages to any consumer again, so a queue's segments are told even if it has consumers.
        """
        known, at = group.known, found.positions[group.name]
        at = {place: max(offset, found.begins[place]) for place, offset in at.items()}
        drained = drained_by_positions(topic.layout, frozenset(known.drained), group.by_bucket(at))
        if not drained:
            return False
        is_queue = known.kind is SubscriptionKind.QUEUE
        if not is_queue and self._subscriptions.is_used(name, subscription, known):
            return False
        op = SubscriptionOp.DRAINED
        await self._subscriptions.change_as_read(name, subscription, known, op, segment_ids=drained)
        return True

    async def _write_down(
        self, name: str, subscription: str, group: Group, at: Mapping[Place, int]
    ) -> None:
        """Writes positions into the log; those in use only now and then: consumers commit them to
        Kafka.
        """
        known, key, now = group.known, (name, subscription), self._now()
        wanted = written_down(known, (part.segment for part in group.parts), group.by_bucket(at))
        number, not_before = self._note_at.get(key, (known.created_offset, -math.inf))
        if number == known.created_offset and known.consumers and now < not_before:
            return
        self._note_at[key] = (known.created_offset, now + self.busy_rounds * self._interval_s)
        if wanted == known.positions:
            return
        op = SubscriptionOp.POSITIONS
        await self._subscriptions.change_as_read(name, subscription, known, op, positions=wanted)

    # --- messages -----------------------------------------------------------------------

    async def _retain(self, name: str, topic: ScalableTopic) -> None:
        """Has Kafka know the settings of today: a segment may be older than they are."""
        parts = topic.segments if topic.operation is Operation.NONE else ()
        ours = (part for part in parts if not part.is_legacy)
        there = {kafka_topic(self._service.prefix, name, topic.incarnation, part) for part in ours}
        known = self._retained.setdefault(name, set())
        if new := sorted(there - known):
            await told(self._service.workers.retain(new))
            self._retained[name] = there

    def is_retained(self, name: str, kafka_topic: str) -> bool:
        """Returns whether Kafka has got today's retention of a segment from this node."""
        return kafka_topic in self._retained.get(name, ())

    def _trims_due(self, name: str) -> bool:
        if math.isinf(self._retention.read_s):
            return False
        return self._now() >= self._trim_at.get(name, -math.inf)

    def _young_ms(self) -> int:
        """Returns the time, on the log's clock, from which on messages are kept."""
        return max(0, self._runtime.core.log_ms - round(self._retention.read_s * 1000))

    async def _trim(
        self,
        name: str,
        topic: ScalableTopic,
        subscriptions: Mapping[str, Subscription],
        asked: _Asked,
        found: Survey,
        old: Mapping[Place, int],
    ) -> None:
        """Deletes old messages of active segments; a sealed one goes as a whole, once all have
        drained it.
        """
        read_s = self._retention.read_s
        self._trim_at[name] = self._now() + min(_TRIM_S_MAX, read_s / _TRIMS)
        positions = [found.positions.get(asked.groups[each].name, {}) for each in subscriptions]
        up_to = trims({place: found.begins[place] for place in old}, old, positions)
        if not up_to or not self._is_unchanged(name, topic, subscriptions):
            return
        await self._positions.ask(lambda keeper, left_s: keeper.trim(up_to, left_s), _KAFKA_S)
        count = sum(end - found.begins[place] for place, end in up_to.items())
        self._log.info("messages.trimmed", topic=name, buckets=len(up_to), messages=count)

    def _is_unchanged(
        self, name: str, topic: ScalableTopic, subscriptions: Mapping[str, Subscription]
    ) -> bool:
        """Returns whether no subscription with more to read has come since: a new one, or one
        moved.
        """
        now = self._runtime.view.topic(name)
        if now is None or now.incarnation != topic.incarnation:
            return False
        if not self._service.may_act(name):
            return False
        return all(
            each in subscriptions and subscriptions[each].created_offset == known.created_offset
            for each, known in self._runtime.view.subscriptions(name)
        )

    # --- progress seen ------------------------------------------------------------------

    def _note_seen(self, name: str, topic: ScalableTopic, asked: _Asked, found: Survey) -> None:
        now = self._now()
        before = self.seen.get(name)
        if before is not None and before.incarnation != topic.incarnation:
            before = None
        told = {each: g for each, g in asked.groups.items() if g.name in found.positions}
        lives = {each: group.known.created_offset for each, group in told.items()}
        read = {
            each: sum(found.positions[group.name].values())
            - sum(sum(part.segment.start_offsets) for part in group.parts)
            for each, group in told.items()
        }
        rates = {}
        for each, life in lives.items():
            if before is not None and before.lives.get(each) == life and now > before.at:
                grown = max(0, read[each] - before.read[each])
                rates[each] = grown / (now - before.at)
        self.seen[name] = TopicSample(
            topic.incarnation,
            now,
            sum(end - found.begins[place] for place, end in found.ends.items()),
            lives,
            read,
            {each: found.left_of(group) for each, group in told.items()},
            rates,
        )


class _Asked(msgspec.Struct, frozen=True):
    """A question to Kafka: all parts, and the groups by their subscriptions' names."""

    parts: list[Part]
    groups: dict[str, Group]


def _survey(
    keeper: KafkaPositions, asked: _Asked, young_ms: int | None, left_s: float
) -> tuple[Survey, dict[Place, int], dict[Place, int]]:
    """Surveys the groups; adds the ends of Kafka's partitions of sealed segments.

    If a time is given, it also adds the first offset of that time or a later one in active
    segments that may be trimmed.
    """
    deadline = clock.now() + left_s
    asked_s = left_s if young_ms is None else left_s - _OLD_S
    found = survey(keeper, asked.groups.values(), asked_s, asked.parts, _GROUP_S)
    sealed = [place for part in asked.parts if part.segment.end_offsets for place in part.places()]
    stops = keeper.told_offsets(sealed, LATEST, deadline - clock.now()) if sealed else {}
    if young_ms is None:
        return found, {}, stops
    ours = (part for part in asked.parts if not part.segment.is_legacy)  # others read the adopted
    active = [place for part in ours if part.segment.is_active for place in part.places()]
    at = keeper.offsets(active, young_ms, deadline - clock.now())
    old = {place: at[place] if at[place] >= 0 else found.ends[place] for place in active}
    return found, old, stops


_Key = tuple[str, str]  # topic and subscription


class Expiry:
    """One node's. `look` is called now and then for each subscription whose controller it is."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        positions: Positions,
        expiry_s: float,
        now: Callable[[], float],
    ) -> None:
        self.soon: dict[_Key, float] = {}  # seconds left, of those that are told
        self._access = access = subscriptions.access
        self._subscriptions = subscriptions
        self._positions = positions
        self._expiry_s = expiry_s
        self._now = now
        self._unused_since: dict[_Key, tuple[int, float]] = {}  # the group's number, and when
        self._log = get_logger(broker=access.runtime.core.me)

    def forget(self, mine: set[str]) -> None:
        """Forgets topics of other nodes, and subscriptions that are gone."""
        for keys in (self._unused_since, self.soon):
            for key in list(keys):
                if key[0] not in mine or self._access.runtime.view.subscription(*key) is None:
                    del keys[key]

    async def look(self, name: str, subscription: str, known: Subscription) -> None:
        """Says when it expires soon, and deletes it when its time is over."""
        key = (name, subscription)
        left = expiring(known, self._access.runtime.core.log_ms, self._expiry_s)
        if left is None or self._subscriptions.is_used(name, subscription, known):
            self._unused_since.pop(key, None)
            self.soon.pop(key, None)
            if left is not None and left.untold:
                await self._say_used(name, subscription, known)
            return
        before = self._unused_since.get(key)
        if before is None or before[0] != known.created_offset:
            before = self._unused_since[key] = (known.created_offset, self._now())
        if not left.soon:
            self.soon.pop(key, None)
            return
        self._announce(key, left)
        # A controller that has just taken over does not know yet who is there.
        grace_s = min(_GRACES * self._access.service.settings.timing.grace_s, self._expiry_s)
        if left.left_s <= 0 and self._now() >= before[1] + grace_s:
            await self._strike(name, subscription, known)

    def _announce(self, key: _Key, left: Expiring) -> None:
        left_s = max(0.0, left.left_s)
        if key not in self.soon:
            name, subscription = key
            self._log.warning(
                "subscription.expires",
                topic=name,
                subscription=subscription,
                in_s=round(left_s),
                why=f"it was not used for {round(self._expiry_s - left.left_s)} s",
            )
        self.soon[key] = left_s

    async def _strike(self, name: str, subscription: str, known: Subscription) -> None:
        group = self._access.group_id(name, subscription, known)
        if await self._positions.ask(
            lambda keeper, left_s: keeper.has_members(group, left_s), _KAFKA_S
        ):
            await self._say_used(name, subscription, known)
            return
        gone = await self._subscriptions.change_as_read(
            name, subscription, known, SubscriptionOp.DELETE
        )
        if gone is not None:
            self.soon.pop((name, subscription), None)
            self._log.warning("subscription.expired", topic=name, subscription=subscription)
            self._subscriptions.groups.delete(group)

    async def _say_used(self, name: str, subscription: str, known: Subscription) -> None:
        """Says in a record that a subscription is used, because no other record says it."""
        op = SubscriptionOp.POSITIONS
        await self._subscriptions.change_as_read(
            name, subscription, known, op, positions=known.positions
        )
