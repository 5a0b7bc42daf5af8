"""`Subscription`: the log's entry for one subscription of a scalable topic (PIP-468).

The registrations are a durable session each: they outlive connections, processes and controllers.
Only the controller knows the connected consumers and the buckets that each holds (`coordinator`).
The log also has the drained sealed segments. So the assignment of a new controller is that of the
old one, and the audit can prove the order of draining.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum, unique
from typing import Final

import msgspec

# The most deliveries of a queue's message to the application: Kafka discards one after 10, and one
# of those is needed to put it aside.
DELIVERIES_MAX: Final = 9
DELIVERIES: Final = 5  # Kafka's own limit, unless somebody says otherwise
# The number of pruned segments whose ends a checkpoint subscription keeps: an old checkpoint is
# judged by them.
PRUNED_MAX: Final = 128


@unique
class SubscriptionKind(IntEnum):
    """The way in which a subscription is consumed; the numbers are stored, never reused."""

    STREAM = 0  # ordered, cumulative acknowledgement, positions kept in Kafka
    QUEUE = 1  # unordered, individual acknowledgement: a Kafka share group
    CHECKPOINT = 2  # ordered, positions in the consumers' own hands


@unique
class SubscriptionOp(IntEnum):
    """The operations on a subscription; the numbers are stored, never reused."""

    CREATE = 0
    DELETE = 1
    JOIN = 2  # a consumer registers, or another process takes its name over
    LEAVE = 3  # it leaves by itself, or because its session is over
    DRAINED = 4  # sealed segments are consumed to their ends
    RESET = 5  # it begins anew; a queue does with another Kafka group
    POSITIONS = 6  # the log keeps its progress, because Kafka may forget it
    DEAD_LETTER = 7  # the topic for failed messages, and a queue's number of tries
    LAPSED = 8  # the process of a consumer's name has certainly ended; the name stays registered


NOBODY: Final = 0  # the number of no process: the one that was registered has certainly ended


class SegmentPositions(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The offset of the next message in each bucket of one segment; 0: the first one."""

    segment_id: int
    offsets: tuple[int, ...]


class Subscription(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The log's entry for one subscription.

    `created_offset`: the log offset that created it, or reset it last; its commits name this
    offset. `consumers`: names with a session, sorted. `instances`: for each, the number of the
    process that serves under it, or NOBODY. `drained`: ids of sealed segments that are still in the
    layout. `positions`: the points at which it goes on in buckets whose position its Kafka group
    does not know, or no more. For a CHECKPOINT it also has the ends of the last pruned segments.
    `dead_letter`: the scalable topic, `tenant/namespace/name`, that takes what consumers could not
    process, "" for none: of a queue what was delivered `deliveries_max` times in vain; a stream's
    consumers count attempts by themselves, so that it is 0. `first_offset`: after a reset that kept
    its Kafka group, the log offset that created that group.
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
    positions: tuple[SegmentPositions, ...] = ()
    dead_letter: str = ""
    deliveries_max: int = 0
    first_offset: int = 0

    @property
    def group_offset(self) -> int:
        """The log offset that names its Kafka group."""
        return self.first_offset or self.created_offset

    def position(self, segment_id: int, bucket: int) -> int:
        """Returns the point at which it goes on in a bucket whose position its Kafka group does not
        know.
        """
        return next((p.offsets[bucket] for p in self.positions if p.segment_id == segment_id), 0)

    def instance_of(self, consumer: str) -> int | None:
        """The process registered under this name; None when the name is not registered."""
        if consumer not in self.consumers:
            return None
        return self.instances[self.consumers.index(consumer)]

    def knows(self, consumer: str, instance: int) -> bool:
        """Tells whether the name is registered, and no other process than this one under it."""
        return self.instance_of(consumer) in (instance, NOBODY)

    def with_consumer(self, consumer: str, instance: int) -> Subscription:
        """Returns it with the name registered for this process."""
        registered = dict(zip(self.consumers, self.instances, strict=True))
        return self._with({**registered, consumer: instance})

    def without_consumer(self, consumer: str) -> Subscription:
        """Returns it without the name."""
        registered = zip(self.consumers, self.instances, strict=True)
        return self._with({name: number for name, number in registered if name != consumer})

    def with_drained(self, segment_ids: Collection[int]) -> Subscription:
        """Returns it with these segments drained too, and without their positions, which it needs
        no more.
        """
        drained = tuple(sorted({*self.drained, *segment_ids}))
        left = tuple(each for each in self.positions if each.segment_id not in drained)
        return msgspec.structs.replace(self, drained=drained, positions=left)

    def without_segments(
        self, gone: Collection[SegmentPositions], left: Collection[int]
    ) -> Subscription:
        """Returns it where the layout has these no more, which end there; `left`: ids it has yet.

        >>> new = Subscription(1, SubscriptionKind.CHECKPOINT, 0, (), (), (0,), 0, 0, "")
        >>> new.without_segments([SegmentPositions(0, (7,))], [1]).positions
        (SegmentPositions(segment_id=0, offsets=(7,)),)
        """
        ids = {each.segment_id for each in gone}
        drained = tuple(each for each in self.drained if each not in ids)
        if self.kind is not SubscriptionKind.CHECKPOINT:
            return msgspec.structs.replace(self, drained=drained)
        kept = [each for each in self.positions if each.segment_id in left]
        ended = [each for each in self.positions if each.segment_id not in left]
        ended = [*ended, *gone][-PRUNED_MAX:]
        return msgspec.structs.replace(self, drained=drained, positions=(*kept, *ended))

    def _with(self, registered: Mapping[str, int]) -> Subscription:
        names = tuple(sorted(registered))
        numbers = tuple(registered[name] for name in names)
        return msgspec.structs.replace(self, consumers=names, instances=numbers)


def dead_letter_topic(topic: str, subscription: str) -> str:
    """Returns the default topic of a subscription's dead letters; Pulsar's convention.

    >>> dead_letter_topic("public/default/orders", "billing")
    'public/default/orders-billing-DLQ'
    """
    return f"{topic}-{subscription}-DLQ"
