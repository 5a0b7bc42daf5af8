"""`PositionWatch`: sees that Kafka's positions of streams are those that count.

Kafka lets anybody reset the offsets of a group that has no members, or delete the group, though it
is consumed. Consumers here are no members (decision 0026). No node believes a stranger's position
(`core.subscriptions.known_positions`), but that has taken the place of the real one. If the
consumers ended now, only the log would have their positions, as of a while ago.

So a controller looks every few seconds. If it finds something else, it writes its own positions
into the log, and has the consumers commit once more. Without consumers it tells Kafka the log's
positions itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec

from anabranch.broker.errors import OperationError
from anabranch.broker.topics.recurring import Recurring
from anabranch.broker.topics.subscriptions.changes import Subscriptions
from anabranch.broker.topics.subscriptions.groups import written_parts
from anabranch.broker.topics.subscriptions.positions import Group, Positions, reading_groups
from anabranch.broker.topics.watches import OwnedTopics
from anabranch.channel.kafka.offsets import Place
from anabranch.core.entities.subscription import SubscriptionKind, SubscriptionOp
from anabranch.core.subscriptions.draining import Bucket
from anabranch.core.subscriptions.known_positions import (
    CommittedPosition,
    PositionFinding,
    kept_mark,
)
from anabranch.core.topics.retention import written_down

LOOK_S: Final = 4.0
_TOGETHER: Final = 500  # groups of one question
_KAFKA_S: Final = 10.0
_KEEP_S: Final = 3.0  # a commit that comes later might be of a controller that is replaced
_KEPT_MAX: Final = 20  # subscriptions in one round: each takes a client of Kafka
_AGAIN_S_MAX: Final = 60.0  # from one try to put the same right to the next one
_EARLY_S: Final = 1.0  # rounds are not that exact


class _Asked(msgspec.Struct, frozen=True):
    topic: str
    subscription: str
    group: Group
    places: Mapping[Bucket, Place]


_Wrong = tuple[dict[Bucket, PositionFinding], float, float]  # next try's time, and pause
_RIGHT: Final[_Wrong] = ({}, 0.0, LOOK_S)


class PositionWatch(Recurring):
    """One node's. `round` looks at all streams of the topics that it controls."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        positions: Positions,
        owned: OwnedTopics,
        now: Callable[[], float],
    ) -> None:
        service = subscriptions.access.service
        super().__init__(service, "positions were watched", LOOK_S, now)
        self.found = Counter[PositionFinding]()  # each time that a subscription is reported
        self._subscriptions = subscriptions
        self._standing = subscriptions.standing
        self._positions = positions
        self._owned = owned
        self._view: object = None  # that `_streams` was read of
        self._streams: dict[str, tuple[_Asked, ...]] = {}  # by topic, until it changes
        self._wrong: dict[tuple[str, str], _Wrong] = {}
        self._kept = 0  # in this round
        service.listeners.append(self._changed)

    def _changed(self, topics: list[str], _units: list[str]) -> None:
        for name in topics:
            self._streams.pop(name, None)

    def _tell(self, why: str, topic: str) -> None:
        self._log.warning("positions.not_watched", why=why)

    async def stop(self) -> None:
        """Ends work under way; a question that Kafka was asked has a deadline of its own."""
        await super().stop()
        await self._positions.stop()

    async def round(self) -> None:
        """Looks once, and puts wrong positions right. Raises Kafka's error."""
        self._kept = 0
        await self._owned.follow()
        names = self._owned.names()
        self._forget(set(names))
        streams = self._all(names)
        while some := {each.group.name: each for each in islice(streams, _TOGETHER)}:
            await self._look(some)

    def _forget(self, mine: set[str]) -> None:
        """Forgets topics of other nodes, and subscriptions that are gone."""
        view = self._runtime.view
        self._standing.forget(mine)
        if self._view is not view:
            self._view = view
            self._streams.clear()
        for name in self._streams.keys() - mine:
            del self._streams[name]
        for key in list(self._wrong):
            if key[0] not in mine or view.subscription(*key) is None:
                del self._wrong[key]

    def _all(self, names: list[str]) -> Iterator[_Asked]:
        for name in names:
            if self._service.may_act(name):
                found = self._streams.get(name)
                if found is None:
                    found = self._streams[name] = tuple(self._of(name))
                    self._standing.forget_others(name, {each.subscription for each in found})
                yield from found

    def _of(self, name: str) -> Iterator[_Asked]:
        """Yields the questions about one topic, as the log has it now."""
        view, prefix = self._runtime.view, self._service.prefix
        topic = view.topic(name)
        if topic is None:
            return
        kind = SubscriptionKind.STREAM
        streams = {each: known for each, known in view.subscriptions(name) if known.kind is kind}
        parts = written_parts(prefix, name, topic) if streams else []
        for each, group in reading_groups(prefix, name, parts, streams).items():
            places = {
                (part.segment.segment_id, place[1]): place
                for part in group.parts
                for place in part.places()
            }
            yield _Asked(name, each, group, places)

    async def _look(self, asked: Mapping[str, _Asked]) -> None:
        for each in asked.values():
            self._standing.known(each.topic, each.subscription, each.group.known).begin_look()
        wanted = {name: list(each.places.values()) for name, each in asked.items()}
        told = await self._positions.ask(
            lambda keeper, left_s: keeper.committed_by(wanted, left_s), _KAFKA_S
        )
        for name, each in asked.items():
            try:
                if name in told:
                    await self._judge(each, told[name])
            except OperationError as error:
                self._failed(error)
        left = {name: each for name, each in asked.items() if each.topic in self._streams}
        late = {name: each for name, each in left.items() if name not in told}
        if told and late:  # one group after another, which took all the time
            await self._look(late)

    async def _judge(self, each: _Asked, told: Mapping[Place, CommittedPosition]) -> None:
        key = each.topic, each.subscription
        if self._streams.get(each.topic) is None:  # it has changed meanwhile
            return
        standing = self._standing.known(*key, each.group.known)
        found = {bucket: told[place] for bucket, place in each.places.items() if place in told}
        wrong = standing.look(each.group.known, each.places, found)
        last, next_at, pause_s = self._wrong.pop(key, _RIGHT)
        if not wrong or not self._service.may_act(each.topic):
            return
        if wrong == last and self._now() < next_at:
            self._wrong[key] = last, next_at, pause_s
            return
        self._report(each, {b: how for b, how in wrong.items() if last.get(b) is not how})
        self._try_again(key, wrong, LOOK_S)  # it is told once, also where Kafka refuses
        if await self._put_right(each, standing.at, wrong) and wrong == last:
            # Such a bucket may have no holder for now: then it stays as it is until it has one.
            self._try_again(key, wrong, min(_AGAIN_S_MAX, 2 * pause_s))

    def _try_again(
        self, key: tuple[str, str], wrong: dict[Bucket, PositionFinding], pause_s: float
    ) -> None:
        self._wrong[key] = wrong, self._now() + pause_s - _EARLY_S, pause_s

    def _report(self, each: _Asked, wrong: Mapping[Bucket, PositionFinding]) -> None:
        by = Counter(how for how in wrong.values() if how is not PositionFinding.UNSAID)
        for how, count in by.items():
            self.found[how] += 1
            self._log.warning(
                "subscription.positions_changed",
                topic=each.topic,
                subscription=each.subscription,
                group=each.group.name,
                buckets=count,
                how=how.value,
                why="somebody else did, in Kafka: it has no effect on deliveries; "
                "`anabranch topics subscriptions seek` puts a subscription somewhere else",
            )

    async def _put_right(
        self, each: _Asked, at: Mapping[Bucket, int], wrong: Iterable[Bucket]
    ) -> bool:
        """Returns whether all was done that can be done now."""
        known, parts = each.group.known, each.group.parts
        noted = each.group.by_bucket(each.group.starts())
        right = {bucket: max(offset, at.get(bucket, 0)) for bucket, offset in noted.items()}
        wanted = written_down(known, (part.segment for part in parts), right)
        if wanted != known.positions:
            op = SubscriptionOp.POSITIONS
            if not await self._subscriptions.change_as_read(
                each.topic, each.subscription, known, op, positions=wanted
            ):
                return False  # it is another one by now: what is kept is to be in the log first
        coordinator = self._service.coordinator(each.topic, each.subscription)
        if coordinator is not None and coordinator.connected:
            coordinator.commit_again()
            self._service.reconcile(each.topic)
            return True
        return await self._keep(each, {bucket: right[bucket] for bucket in wrong})

    async def _keep(self, each: _Asked, right: Mapping[Bucket, int]) -> bool:
        """Tells Kafka the group's positions, for those who look there, while nobody consumes."""
        if self._kept >= _KEPT_MAX:
            return False
        self._kept += 1
        offsets = {each.places[bucket]: offset for bucket, offset in right.items()}
        group, mark = each.group.name, kept_mark(each.group.known.created_offset)
        async with self._subscriptions.alone(each.topic, each.subscription, 2 * _KEEP_S):
            known = self._runtime.view.subscription(each.topic, each.subscription)
            if known is None or known.created_offset != each.group.known.created_offset:
                return False
            if self._subscriptions.is_used(each.topic, each.subscription, known):
                return False
            if not self._service.may_act(each.topic):
                return False
            await self._positions.ask(
                lambda keeper, left_s: keeper.commit(group, offsets, mark, left_s), _KEEP_S
            )
        return True
