"""The audit of subscriptions that begin anew."""

from __future__ import annotations

from anabranch.core.subscriptions.subscription import SubscriptionOp
from support.local_audit import audited, violated
from support.topic_history import created, drain, reshape, subscribe, subscription_move


def test_a_subscription_that_begins_anew_drains_everything_once_more() -> None:
    history = created()
    subscribe(history)
    reshape(history, (0,))
    reshape(history, (2,))
    drain(history, (0, 2))
    history.accepted(subscription_move(history, SubscriptionOp.RESET))
    drain(history, (0,))
    assert violated(audited(history)) == []
