"""A coordinator of one subscription, the state that it is shown, and what it sends."""

from __future__ import annotations

from anabranch.core.entities import subscription
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.subscriptions.coordinator import ConsumerAssignment, SubscriptionCoordinator
from anabranch.core.subscriptions.draining import Bucket
from anabranch.core.subscriptions.propose import change_due
from anabranch.core.subscriptions.timing import Timing

Buckets = tuple[Bucket, ...]
TIMING = Timing(grace_s=60, session_timeout_s=10)
WHOLE = SegmentLayout.initial(1, bucket_budget=2)
EMPTY = subscription.Subscription(1, subscription.SubscriptionKind.STREAM, 0, (), (), (), 0, 0, "p")


class Desk:
    """A coordinator, the state that it is shown, and what each connection was last sent."""

    def __init__(
        self, layout: SegmentLayout = WHOLE, before: subscription.Subscription = EMPTY
    ) -> None:
        self.layout, self.subscription = layout, before
        self.coordinator = SubscriptionCoordinator(TIMING)
        self.has: dict[int, tuple[tuple[int, tuple[int, ...]], ...]] = {}
        self.sent: list[tuple[int, ConsumerAssignment]] = []
        self.now = 100.0
        self.show()

    def show(self) -> None:
        self.coordinator.changed(self.layout, self.subscription, self.now)
        self.send()

    def send(self) -> list[tuple[int, ConsumerAssignment]]:
        sent = self.coordinator.assignments(self.now)
        self.has |= {connection: assignment.shares for connection, assignment in sent}
        self.sent += sent
        return sent

    def join(self, name: str, number: int, connection: int, holds: Buckets = ()) -> bool:
        if self.subscription.instance_of(name) != number:
            self.subscription = self.subscription.with_consumer(name, number)
            self.show()
        done = self.coordinator.opened(name, number, connection, holds, (), self.now)
        self.send()
        return done

    def report(
        self, name: str, connection: int, released: Buckets = (), drained: Buckets = ()
    ) -> bool:
        known = self.coordinator.heard(name, connection, released, drained, self.now)
        self.send()
        return known

    def leave(self, name: str) -> None:
        self.coordinator.left(name)
        self.subscription = self.subscription.without_consumer(name)
        self.show()

    def log(self) -> subscription.SubscriptionOp | None:
        """What the log must hear next is logged, as its fold does."""
        due = change_due(self.coordinator, self.now)
        if due is None:
            return None
        known, name = self.subscription, due.fields.get("consumer", "")
        if due.op is subscription.SubscriptionOp.LAPSED:
            self.subscription = known.with_consumer(name, subscription.NOBODY)
        elif due.op is subscription.SubscriptionOp.LEAVE:
            self.subscription = known.without_consumer(name)
        self.show()
        return due.op
