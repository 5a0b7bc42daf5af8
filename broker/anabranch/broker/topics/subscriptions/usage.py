"""The possible consumers of a subscription, and the end of an unused one.

`Expiry` deletes unused ones if an operator has set a time for that. `change_as_read` proposes a
change of a subscription that holds only if it is still as it was when it was looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from anabranch.broker.errors import ConflictError, listed
from anabranch.broker.logging import get_logger
from anabranch.broker.topics.controllers.access import TopicAccess
from anabranch.broker.topics.subscriptions.groups import Groups
from anabranch.broker.topics.subscriptions.positions import Positions
from anabranch.core.bundles.guards import controller_of
from anabranch.core.entities.subscription import Subscription, SubscriptionKind, SubscriptionOp
from anabranch.core.log.records import SubscriptionChange, TopicCause
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import full_name
from anabranch.core.subscriptions.propose import subscription_change
from anabranch.core.topics.retention import Expiring, expiring

_KAFKA_S: Final = 30.0
_LOG_S: Final = 10.0
_GRACES: Final = 2  # for which nobody was seen before a subscription may expire

_Key = tuple[str, str]  # topic and subscription


class Usage:
    """One node's, as a controller, for use in its event loop."""

    def __init__(self, access: TopicAccess) -> None:
        self._access = access

    def must_be_unused(
        self, topic: str, subscription: str, known: Subscription, remedy: str
    ) -> None:
        """Raises ConflictError if somebody consumes it, or may; it ends with the remedy."""
        what = f"subscription {subscription} of {full_name(topic)}"
        consumers = self.consumers(topic, subscription, known)
        if consumers:
            raise ConflictError(f"{what} has consumers: close {listed(consumers)} first{remedy}")
        left_s = self._unknown_s(topic, known)
        if left_s > 0:
            raise ConflictError(
                f"{what} may have consumers that do not know this node yet, which controls the "
                f"topic since a short time only: try again in {math.ceil(left_s)} s{remedy}"
            )

    def none_may_be_used(self, topic: str, remedy: str) -> None:
        """The same, of all subscriptions of a topic."""
        for each, known in self._access.runtime.view.subscriptions(topic):
            self.must_be_unused(topic, each, known, remedy)

    def is_used(self, topic: str, subscription: str, known: Subscription) -> bool:
        """Returns whether a consumer reads it, or may."""
        return bool(self.consumers(topic, subscription, known)) or self._unknown_s(topic, known) > 0

    def consumers(self, topic: str, subscription: str, known: Subscription) -> list[str]:
        """Names of those that are connected, and of those that may be serving without."""
        controller = self._access.service.controller(topic)
        coordinator = controller.coordinators.get(subscription) if controller else None
        found = set(coordinator.connected if coordinator else ())
        idle = set(coordinator.idle if coordinator else ())
        registered = zip(known.consumers, known.instances, strict=True)
        return sorted(found.union(name for name, number in registered if number not in idle))

    def _unknown_s(self, topic: str, known: Subscription) -> float:
        """Returns the seconds for which a queue may yet have consumers that no record names."""
        if known.kind is not SubscriptionKind.QUEUE:
            return 0.0
        view = self._access.runtime.view
        name, _ = controller_of(view, topic)
        unit = view.unit(name)
        if unit is not None and unit.since_offset <= known.created_offset:
            return 0.0
        opened_at = self._access.service.open_since.get(name, -math.inf)
        gone_s = self._access.service.settings.timing.queue_gone_s
        return opened_at + gone_s - self._access.runtime.now()


async def change_as_read(
    access: TopicAccess,
    name: str,
    subscription: str,
    known: Subscription,
    op: SubscriptionOp,
    **fields: object,
) -> SubscriptionChange | None:
    """Changes a subscription that is still as it was read; None: it is not."""

    def build() -> SubscriptionChange | None:
        before = access.runtime.view.subscription(name, subscription)
        if before is None or before.version != known.version:
            return None
        return subscription_change(
            access.proposals.actor(),
            name,
            access.topic(name),
            subscription,
            before,
            op,
            access.proposals.new_id(),
            TopicCause.RETENTION,
            **fields,
        )

    # A layout that has changed meanwhile is looked at next time.
    refusals = access.refusals(name) | {Verdict.SEGMENTS_INVALID: None}
    deadline = access.proposals.deadline(_LOG_S)
    return await access.proposals.settle(build, refusals, deadline)


class Expiry:
    """One node's. `look` is called now and then for each subscription whose controller it is."""

    def __init__(
        self,
        access: TopicAccess,
        usage: Usage,
        groups: Groups,
        positions: Positions,
        expiry_s: float,
        now: Callable[[], float],
    ) -> None:
        self.soon: dict[_Key, float] = {}  # seconds left, of those that are told
        self._access = access
        self._usage = usage
        self._groups = groups
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
        left = expiring(known, self._access.runtime.log_ms, self._expiry_s)
        if left is None or self._usage.is_used(name, subscription, known):
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
        gone = await change_as_read(self._access, name, subscription, known, SubscriptionOp.DELETE)
        if gone is not None:
            self.soon.pop((name, subscription), None)
            self._log.warning("subscription.expired", topic=name, subscription=subscription)
            self._groups.delete(group)

    async def _say_used(self, name: str, subscription: str, known: Subscription) -> None:
        """Says in a record that a subscription is used, because no other record says it."""
        op = SubscriptionOp.POSITIONS
        await change_as_read(self._access, name, subscription, known, op, positions=known.positions)
