"""Proposals on scalable topics and their subscriptions, for the next version of each."""

from __future__ import annotations

from typing import Any

from anabranch.core.ownership import Actor
from anabranch.core.records import SubscriptionChange, TopicCause, TopicChange
from anabranch.core.subscriptions import Subscription, SubscriptionOp
from anabranch.core.topics import ScalableTopic, TopicMove


def topic_change(
    actor: Actor,
    name: str,
    topic: ScalableTopic | None,
    move: TopicMove,
    proposal_id: str,
    cause: TopicCause = TopicCause.PROTOCOL,
    **fields: Any,
) -> TopicChange:
    """A proposal for the topic's next version."""
    form = {
        "proposal_id": proposal_id,
        "topic": name,
        "move": move,
        "version": (topic.version if topic is not None else 0) + 1,
        "actor": actor.broker,
        "session": actor.session,
        "cause": cause,
        **fields,
    }
    return TopicChange(**form)


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
    form = {
        "proposal_id": proposal_id,
        "topic": name,
        "incarnation": topic.incarnation,
        "subscription": subscription,
        "op": op,
        "version": (before.version if before is not None else 0) + 1,
        "actor": actor.broker,
        "session": actor.session,
        "cause": cause,
        **fields,
    }
    return SubscriptionChange(**form)
