"""`Subscription`: what the log keeps of one subscription of a scalable topic (seed 001).

The registrations are a durable session each: they outlive connections, processes and controllers.
Whether a consumer is connected, and which buckets it holds, only its controller knows
(`coordinator`). Which sealed segments are drained is logged too, so that the assignment of a new
controller is that of the old one and the audit can prove the order of draining.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, unique

import msgspec


@unique
class SubscriptionKind(IntEnum):
    """How a subscription is consumed; the numbers are stored, never reused."""

    STREAM = 0  # ordered, cumulative acknowledgement, positions kept in Kafka
    QUEUE = 1  # unordered, individual acknowledgement: a Kafka share group
    CHECKPOINT = 2  # ordered, positions in the consumers' own hands


@unique
class SubscriptionOp(IntEnum):
    """What happens to a subscription; the numbers are stored, never reused."""

    CREATE = 0
    DELETE = 1
    JOIN = 2  # a consumer registers, or another process takes its name over
    LEAVE = 3  # by itself, or because its session is over
    DRAINED = 4  # sealed segments are consumed to their ends
    RESET = 5  # it begins anew, with another Kafka group


class Subscription(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What the log says of one subscription.

    `created_offset`: the log offset that created it, or reset it last, which names its Kafka group.
    `consumers`: names with a session, sorted; `instances`: for each, the number of the process that
    serves under it. `drained`: ids of sealed segments that are still in the layout.
    """

    version: int
    kind: SubscriptionKind
    created_offset: int
    consumers: tuple[str, ...]
    instances: tuple[int, ...]
    drained: tuple[int, ...]
    since_ms: int
    since_offset: int
    proposal_id: str

    def instance_of(self, consumer: str) -> int | None:
        """The process registered under this name; None when the name is not registered."""
        if consumer not in self.consumers:
            return None
        return self.instances[self.consumers.index(consumer)]

    def with_consumer(self, consumer: str, instance: int) -> Subscription:
        """With the name registered for this process."""
        registered = dict(zip(self.consumers, self.instances, strict=True))
        return self._with({**registered, consumer: instance})

    def without_consumer(self, consumer: str) -> Subscription:
        """Without the name."""
        registered = zip(self.consumers, self.instances, strict=True)
        return self._with({name: number for name, number in registered if name != consumer})

    def _with(self, registered: Mapping[str, int]) -> Subscription:
        names = tuple(sorted(registered))
        numbers = tuple(registered[name] for name in names)
        return msgspec.structs.replace(self, consumers=names, instances=numbers)
