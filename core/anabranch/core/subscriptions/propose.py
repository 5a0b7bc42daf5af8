"""Proposals on subscriptions, for the next version of each, and the facts that the log must
hear.
"""

from __future__ import annotations

from typing import Any

import msgspec

from anabranch.core.bundles.propose import Actor
from anabranch.core.entities.subscription import Subscription, SubscriptionOp
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.log.records import SubscriptionChange, TopicCause
from anabranch.core.subscriptions.coordinator import SubscriptionCoordinator


def subscription_change(
    actor: Actor,
    name: str,
    topic: ScalableTopic,
    subscription: str,
    before: Subscription | None,
    op: SubscriptionOp,
    proposal_id: str,
    cause: TopicCause = TopicCause.CONSUMER,
    **fields: Any,
) -> SubscriptionChange:
    """A proposal for the subscription's next version."""
    return SubscriptionChange(
        proposal_id=proposal_id,
        topic=name,
        incarnation=topic.incarnation,
        subscription=subscription,
        op=op,
        version=(before.version if before is not None else 0) + 1,
        cause=cause,
        **actor.signature(),
        **fields,
    )


class DueChange(msgspec.Struct, frozen=True):
    """A change to be proposed; `fields` are the record's own."""

    op: SubscriptionOp
    cause: TopicCause
    fields: dict[str, Any]


def change_due(coordinator: SubscriptionCoordinator, now: float) -> DueChange | None:
    """The first of them, since each makes a version of its own."""
    drained = coordinator.drained_segments()
    if drained:
        return DueChange(SubscriptionOp.DRAINED, TopicCause.CONSUMER, {"segment_ids": drained})
    over = coordinator.over(now)
    if over:
        return DueChange(SubscriptionOp.LEAVE, TopicCause.GRACE_OVER, {"consumer": over[0]})
    lapsed = coordinator.lapsed(now)
    if lapsed:
        name, instance = lapsed[0]
        fields = {"consumer": name, "instance": instance}
        return DueChange(SubscriptionOp.LAPSED, TopicCause.CONSUMER, fields)
    return None
