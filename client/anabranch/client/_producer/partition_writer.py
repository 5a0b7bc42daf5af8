"""`PartitionWriter`: what one producer appends to one bucket of one segment. Pure, no I/O.

While it is open its messages are appended as they come. It begins with a single append; until that
is acknowledged, all else is held. A partition that is new may refuse the first append, since Kafka
tells who leads before that one does. If it accepted the second one then, as it does any first one
of a producer that it does not know, librdkafka would take that for the proof that the first one was
stored as well, and report it as such: it would be lost. (So it was: by 4 of 40 new topics, on a
busy machine, also with librdkafka alone.) Kafka forgets a producer that has not appended to a
partition for a day, so a writer that rested for long begins again with a single append.

How it leaves a partition that is sealed, `sender` tells.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

import msgspec

from anabranch.client._topics.layout import Segment, TopicLayout
from anabranch.core.hashing import bucket_of

_ORDER_MIN: Final = 128


class PendingMessage(msgspec.Struct, eq=False):
    """A message in our hands: new, refused, or waiting for its partition writer to have left."""

    key: str | bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, Any]] = ()
    timestamp_ms: int = 0  # then it is that of the append
    on_delivery: Any = None
    since: float = 0.0  # when it was sent, on the producer's clock; 0: not noted


class Step(Enum):
    """What a partition writer needs next."""

    NOTHING = auto()  # it is open, or its outstanding reports or the next layout must come first
    RESOLVE = auto()  # `resolved` or `fail_refused`, once it is known what the partition holds
    MOVE = auto()  # `Router.leave`
    GIVE_UP = auto()  # `fail_refused`: it is in doubt, and what could tell is gone


@dataclass(slots=True, eq=False)  # whose attributes are set faster than a Struct's
class PartitionWriter:
    """One producer's traffic to one bucket of one segment."""

    incarnation: int
    segment: Segment
    bucket: int
    where: str = field(default="", init=False)
    open: bool = True
    paused: bool = False  # open, but nothing is appended for now
    lost: str = ""  # paused, since Kafka does not have the segment's topic: what to tell of that
    proven: bool = False  # Kafka has acknowledged an append, so it knows our sequence
    ready: bool = False  # open, proven, not paused: appends may follow one another
    appended: int = 0
    reported: int = 0  # of those, what Kafka's client has reported
    unacked: int = 0  # of those, what Kafka refused or was given up
    forgone: int = 0  # of those, what was told to have failed; Kafka may have some of it
    last_offset: int = -1  # of the last acknowledged append, where offsets are kept
    unlocated: int = 0  # acknowledged after that one, without being told where
    refused: list[PendingMessage] = field(default_factory=list)
    is_in_order: bool = True  # `refused` is
    # Key, value, key, value as they were appended, but for the first ones, which are reported. A
    # tuple for each message would cost the hot path 100 ns more, for the garbage collector.
    order: list[str | bytes | None] = field(default_factory=list)
    order_max: int = _ORDER_MIN  # then those are forgotten
    forgotten: int = 0  # how many those are, and
    forgotten_unacked: int = 0  # how many of those failed
    held: deque[PendingMessage] = field(default_factory=deque)
    in_doubt: bool = False
    resolving: bool = False  # somebody reads the sealed partition
    leaving_since: float = 0.0

    def __post_init__(self) -> None:
        self.where = f"segment {self.segment.info.descriptor}, bucket {self.bucket}"

    def __repr__(self) -> str:
        return f"PartitionWriter(segment {self.segment.info.descriptor}, bucket {self.bucket})"

    def covers(self, position: int) -> bool:
        """Whether a key at that position belongs to this bucket of this segment."""
        info = self.segment.info
        return info.start <= position >> 16 <= info.end and (
            bucket_of(position, info.buckets) == self.bucket
        )

    @property
    def trouble(self) -> str:
        """What Kafka's client complained of last; "" when there is nothing."""
        return ""

    def sent_by(self, now: float, patience_s: float) -> float:
        """What was sent before that is late."""
        return now - patience_s

    def throttling(self, _now: float, _patience_s: float) -> str:
        """What to say of Kafka's throttling where something is late; "" for nothing."""
        return ""

    @property
    def has_copies(self) -> bool:
        """Whether another broker may come to lead the partition, which did not refuse anything."""
        return False

    @property
    def outstanding(self) -> int:
        """How many appends have not been reported."""
        return self.appended - self.reported

    @property
    def acked_count(self) -> int:
        """How many appends Kafka has acknowledged."""
        return self.reported - self.unacked

    @property
    def may_append(self) -> bool:
        """Whether a message may be appended now; else it is to be held."""
        return self.ready or (self.open and not self.paused and not self.outstanding)

    def sent(self, key: str | bytes | None, value: bytes | None) -> None:
        """An append was handed to Kafka's client."""
        self.appended += 1
        self.order.append(key)
        self.order.append(value)
        if len(self.order) > self.order_max:
            self.forget()

    def forget(self) -> None:
        """Forgets the order of what is reported, unless something is refused."""
        if not self.refused:
            del self.order[: 2 * (self.reported - self.forgotten)]
            self.forgotten, self.forgotten_unacked = self.reported, self.unacked
        self.order_max = _ORDER_MIN + 2 * len(self.order)

    def acked(self, offset: int) -> None:
        """Kafka has it; at an offset of -1 it does not say where."""
        self.reported += 1
        if offset < 0:
            self.unlocated += 1
        else:
            self.last_offset, self.unlocated = offset, 0
        self.proven = True
        self.ready = self.open and not self.paused

    def pause(self) -> None:
        """Nothing more is appended until `resume`."""
        self.paused, self.ready = True, False

    def resume(self) -> None:
        """Appends may go on."""
        self.paused, self.ready = False, self.open and self.proven

    def rested(self) -> None:
        """Nothing was appended for so long that Kafka may have forgotten the producer."""
        self.proven = self.ready = False

    def was_refused(self, message: PendingMessage, in_doubt: bool) -> None:
        """Kafka refused it as to a sealed segment; `in_doubt` unless it was tried only once."""
        self.reported += 1
        self.unacked += 1
        self.refused.append(message)
        self.is_in_order = False
        self.in_doubt |= in_doubt

    def put_in_order(self) -> None:
        """Puts the refused messages into the order in which they were appended.

        Kafka may put a batch off (while a replica is missing, or a leader comes back), refuse the
        next ones in the meantime, and refuse the first one when it is tried again. What is not
        among those remembered was appended before them: something that was sent later is reported.
        """
        if self.is_in_order:
            return
        self.is_in_order = True
        # What is acknowledged may be equal to what is refused. What was given up may come later.
        acked = self.acked_count + self.forgotten_unacked - self.forgotten
        del self.order[: 2 * acked]
        self.forgotten += acked
        places: dict[tuple[bytes | None, bytes | None], deque[int]] = defaultdict(deque)
        for place, (key, value) in enumerate(zip(self.order[::2], self.order[1::2], strict=True)):
            places[_as_bytes(key), _as_bytes(value)].append(place)
        found = [places.get((_as_bytes(each.key), each.value)) for each in self.refused]
        order = [each.popleft() if each else -1 for each in found]
        at = sorted(range(len(order)), key=order.__getitem__)
        self.refused = [self.refused[place] for place in at]

    def failed(self) -> None:
        """It was given up, or Kafka refused it for a reason of its own; its sender is told."""
        self.reported += 1
        self.unacked += 1
        self.forgone += 1

    def step(self, layout: TopicLayout) -> Step:
        """What comes next, as far as that layout tells."""
        if self.open or self.outstanding or self.resolving:
            return Step.NOTHING
        is_current = self.incarnation == layout.incarnation
        segment_id = self.segment.segment_id
        if is_current and not layout.is_leaving(segment_id):
            return Step.NOTHING  # refused before we know why
        if is_current and self.has_copies and not layout.is_sealed(segment_id):
            return Step.NOTHING  # only this leader is known to refuse
        if not self.in_doubt:
            return Step.MOVE
        part = layout.segments.get(segment_id)
        if part is None or not is_current or layout.deleted:
            return Step.GIVE_UP
        return Step.RESOLVE if part.info.end_offsets else Step.NOTHING

    def resolved(self, found: int) -> list[PendingMessage]:
        """Of the refused messages the first `found` are in the sealed segment; returns those."""
        there, self.refused = self.refused[:found], self.refused[found:]
        self.in_doubt = self.resolving = False
        return there

    def fail_refused(self) -> list[PendingMessage]:
        """Gives the refused messages up; returns them. What is held can go on."""
        lost = self.forgo(len(self.refused))
        self.in_doubt = self.resolving = False
        return lost

    def forgo(self, count: int) -> list[PendingMessage]:
        """Gives the first ones of the refused messages up; returns them."""
        lost, self.refused = self.refused[:count], self.refused[count:]
        self.forgone += len(lost)
        self.in_doubt = self.in_doubt and bool(self.refused)
        return lost


def _as_bytes(key: str | bytes | None) -> bytes | None:
    return key.encode() if isinstance(key, str) else key
