"""`admit`: what becomes of a consumer's wish to be served, by what the log and its controller know.

Whoever asks takes one step at a time and asks again, until the consumer is let in or refused: what
was folded meanwhile counts.
"""

from __future__ import annotations

from enum import Enum, unique

import msgspec

from anabranch.core.subscriptions.coordinator import SubscriptionCoordinator
from anabranch.core.subscriptions.instances import Bucket
from anabranch.core.subscriptions.subscription import NOBODY, Subscription, SubscriptionKind
from anabranch.core.tenants.limits import has_room


class SubscribeRequest(msgspec.Struct, frozen=True):
    """What a consumer subscribes with; `topic` is `tenant/namespace/name`."""

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
    """What is to be done next for a consumer; from DELETED on they refuse it."""

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

    `consumers_max`: of a queue, whose consumers the log does not count; 0 for any number.
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
    """Whether what a consumer says that it holds and has drained is of this subscription.

    What was put somewhere else has yet to be given all of it, and what a consumer holds from before
    it serves until it hears of that.
    """
    return wish.begun_at == known.created_offset


def _is_fenced(wish: SubscribeRequest, known: Subscription, rival: int | None) -> bool:
    """Whether it was subscribed before, and another process is by now: the newer one has the name.

    Else two processes of a name would take it from each other for ever.
    """
    if not wish.begun_at:
        return False
    instance = known.instance_of(wish.consumer)
    return rival is not None or instance not in (None, NOBODY, wish.instance)


def _lasts(wish: SubscribeRequest, known: Subscription | None) -> bool:
    """Whether what the consumer was subscribed to is there.

    A subscription that was put somewhere else knows its ordered consumers yet. A queue's read on in
    the former group: they are to begin anew.
    """
    if known is None:
        return False
    return is_same_life(wish, known) or known.knows(wish.consumer, wish.instance)
