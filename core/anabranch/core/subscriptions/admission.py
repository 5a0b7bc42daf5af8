"""`admit`: the next step of a consumer's admission, by the log and its controller's knowledge.

The caller takes one step at a time and asks again, until the consumer is let in or refused, because
newly folded records count.
"""

from __future__ import annotations

from enum import Enum, unique

import msgspec

from anabranch.core.entities.subscription import NOBODY, Subscription, SubscriptionKind
from anabranch.core.subscriptions.coordinator import SubscriptionCoordinator
from anabranch.core.subscriptions.draining import Bucket
from anabranch.core.tenants.limits import has_room


class SubscribeRequest(msgspec.Struct, frozen=True):
    """A consumer's request to subscribe; `topic` is `tenant/namespace/name`."""

    topic: str
    subscription: str
    kind: SubscriptionKind
    consumer: str
    instance: int
    begun_at: int = 0  # `created_offset` of the subscription that holdings and drained speak of
    holdings: tuple[Bucket, ...] = ()
    drained: tuple[Bucket, ...] = ()


@unique
class AdmissionStep(Enum):
    """The next step for a consumer; the steps from DELETED on refuse it."""

    CREATE = "propose the subscription"
    JOIN = "propose the consumer's registration"
    OPEN = "let it in"
    FENCE = "tell the process that is connected under its name to leave; that takes a moment"
    DELETED = "what it was subscribed to is gone"
    REPLACED = "what it was subscribed to is gone, and another one is there"
    OTHER_KIND = "the subscription is of another kind"
    FENCED = "another process has taken its name over"
    LAPSING = "another process may be serving under its name"
    FULL = "the queue has as many consumers as it may have"


def admit(
    wish: SubscribeRequest,
    known: Subscription | None,
    coordinator: SubscriptionCoordinator | None,
    consumers_max: int = 0,
) -> AdmissionStep:
    """The next step towards a session.

    `consumers_max`: for a queue, whose consumers the log does not count; 0 for any number.
    """
    if wish.begun_at and not _lasts(wish, known):
        return AdmissionStep.DELETED if known is None else AdmissionStep.REPLACED
    if known is None:
        return AdmissionStep.CREATE
    if known.kind is not wish.kind:
        return AdmissionStep.OTHER_KIND
    rival = None if coordinator is None else coordinator.rival(wish.consumer, wish.instance)
    if _is_fenced(wish, known, rival):
        return AdmissionStep.FENCED
    if rival is not None:
        return AdmissionStep.FENCE
    if known.kind is SubscriptionKind.QUEUE:
        # Its consumers are registered nowhere: only its controller can count them.
        connected = coordinator.connected if coordinator is not None else ()
        fits = wish.consumer in connected or has_room(consumers_max, connected)
        return AdmissionStep.OPEN if fits else AdmissionStep.FULL
    if coordinator is not None and coordinator.is_lapsing(wish.consumer, wish.instance):
        return AdmissionStep.LAPSING
    return (
        AdmissionStep.OPEN
        if known.instance_of(wish.consumer) == wish.instance
        else AdmissionStep.JOIN
    )


def is_same_life(wish: SubscribeRequest, known: Subscription) -> bool:
    """Tells whether the consumer's told holdings and drained buckets are of this subscription.

    A subscription that was put somewhere else has yet to give out all its buckets. A consumer
    serves its earlier holdings until it hears of that.
    """
    return wish.begun_at == known.created_offset


def _is_fenced(wish: SubscribeRequest, known: Subscription, rival: int | None) -> bool:
    """Tells whether it was subscribed before and another process is by now; the newer one has the
    name.

    Otherwise two processes of a name would take it from each other for ever.
    """
    if not wish.begun_at:
        return False
    instance = known.instance_of(wish.consumer)
    return rival is not None or instance not in (None, NOBODY, wish.instance)


def _lasts(wish: SubscribeRequest, known: Subscription | None) -> bool:
    """Tells whether the consumer's earlier subscription is there.

    A subscription that was put somewhere else still knows its ordered consumers. A queue's
    consumers read on in the former group, so they must begin anew.
    """
    if known is None:
        return False
    return is_same_life(wish, known) or known.knows(wish.consumer, wish.instance)
