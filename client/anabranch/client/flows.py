"""Which partition takes a message now, and how a producer leaves one that is sealed. Pure, no I/O.

A *flow* is what one producer sends to one bucket of one segment. While it is open its messages are
appended as they come. It leaves, once and for ever, when Kafka refuses an append because the
segment is sealed, or when a layout says that this is about to happen:

1. what is sent to the flow from now on is *held*;
2. what is under way is waited for: each append is either acknowledged or refused. Kafka refuses
   everything once it refuses something, so what is refused is a suffix, and in order;
3. if a refused append may have been tried more than once, an earlier try may have succeeded without
   our knowing. Then the flow is *in doubt*, and Kafka is asked how many messages of this producer
   the sealed partition holds (`settlement`). An idempotent producer's appends to a partition
   succeed in order, so those it holds beyond the acknowledged ones are the first ones refused;
4. what is left of the refused ones, then what was held, is sent on, each key to where the newest
   layout wants it: a child under way or an active segment, whose own flow may be leaving as well,
   and then holds it in its turn.

A flow begins with a single append; until that is acknowledged, all else is held. A partition that
is new may refuse the first append, since Kafka tells who leads before that one does. If it accepted
the second one then, as it does any first one of a producer that it does not know, librdkafka would
take that for the proof that the first one was stored as well, and report it as such: it would be
lost. (So it was: by 4 of 40 new topics, on a busy machine, also with librdkafka alone.) Kafka
forgets a producer that has not appended to a partition for a day, so a flow that rested for long
begins again with a single append.

A message whose time is up is *given up*, its outcome unknown if it was appended. From then on the
flow cannot tell any more which of its numbers are whose: it is *renewed*, that is, replaced by
another flow to the same bucket through a producer that is new to Kafka.

Why keys keep their order, over any number of splits and merges in flight: a key has one place in
each segment, and at any time at most one flow takes it, the oldest one that has not been left yet
(`FlowTable.route`). Messages pass from a flow to the next only when everything older of the same
key has been settled in the former one, and in their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, Final, Generic, TypeVar

from anabranch.client.topic_layout import Segment, TopicLayout
from anabranch.core.hashing import bucket_of, hash32, segment_hash

_ROUTES_MAX: Final = 200_000  # keys remembered; then all are forgotten, which costs little


class Held:
    """A message in our hands: refused, or waiting for its flow to have left."""

    __slots__ = ("headers", "key", "on_delivery", "since", "timestamp_ms", "value")

    def __init__(
        self,
        key: str | bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, Any]] = (),
        timestamp_ms: int = 0,
        on_delivery: Any = None,
    ) -> None:
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp_ms = timestamp_ms  # 0: when it is appended
        self.on_delivery = on_delivery
        self.since = 0.0  # when it was sent, on the producer's clock; 0: not noted


class Step(Enum):
    """What a flow needs next."""

    NOTHING = auto()  # it is open, or its outstanding reports or the next layout must come first
    RESOLVE = auto()  # `resolved` or `fail_all`, after the sealed partition was read
    MOVE = auto()  # `FlowTable.leave`
    GIVE_UP = auto()  # `fail_all`: it is in doubt, and what could tell is gone


class Flow:
    """One producer's traffic to one bucket of one segment."""

    __slots__ = (
        "appended",
        "bucket",
        "forgone",
        "held",
        "in_doubt",
        "incarnation",
        "last_offset",
        "leaving_since",
        "open",
        "paused",
        "proven",
        "ready",
        "refused",
        "resolving",
        "segment",
        "settled",
        "unacked",
        "unlocated",
    )

    def __init__(self, incarnation: int, segment: Segment, bucket: int) -> None:
        self.incarnation = incarnation
        self.segment = segment
        self.bucket = bucket
        self.open = True
        self.paused = False  # open, but nothing is appended for now
        self.proven = False  # Kafka has acknowledged an append, so it knows our sequence
        self.ready = False  # open, proven, not paused: appends may follow one another
        self.appended = 0
        self.settled = 0  # of those, what has been reported
        self.unacked = 0  # of those, what Kafka refused or was given up
        self.forgone = 0  # of those, what was told to have failed; Kafka may have some of it
        self.last_offset = -1  # of the last acknowledged append, where offsets are kept
        self.unlocated = 0  # acknowledged after that one, without being told where
        self.refused: list[Held] = []
        self.held: deque[Held] = deque()
        self.in_doubt = False
        self.resolving = False  # somebody reads the sealed partition
        self.leaving_since = 0.0

    def __repr__(self) -> str:
        return f"Flow(segment {self.segment.info.descriptor}, bucket {self.bucket})"

    def covers(self, position: int) -> bool:
        """Whether a key at that position belongs to this bucket of this segment."""
        info = self.segment.info
        return info.start <= position >> 16 <= info.end and (
            bucket_of(position, info.buckets) == self.bucket
        )

    @property
    def outstanding(self) -> int:
        """How many appends have not been reported."""
        return self.appended - self.settled

    @property
    def acked_count(self) -> int:
        """How many appends Kafka has acknowledged."""
        return self.settled - self.unacked

    @property
    def may_append(self) -> bool:
        """Whether a message may be appended now; else it is to be held."""
        return self.ready or (self.open and not self.paused and not self.outstanding)

    def sent(self) -> None:
        """An append was handed to Kafka's client."""
        self.appended += 1

    def acked(self, offset: int) -> None:
        """Kafka has it; at an offset of -1 it does not say where."""
        self.settled += 1
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

    def was_refused(self, message: Held, in_doubt: bool) -> None:
        """Kafka refused it as to a sealed segment; `in_doubt` unless it was tried only once."""
        self.settled += 1
        self.unacked += 1
        self.refused.append(message)
        self.in_doubt |= in_doubt

    def failed(self) -> None:
        """It was given up, or Kafka refused it for a reason of its own; its sender is told."""
        self.settled += 1
        self.unacked += 1
        self.forgone += 1

    def step(self, layout: TopicLayout) -> Step:
        """What comes next, as far as that layout tells."""
        if self.open or self.outstanding or self.resolving:
            return Step.NOTHING
        if not _is_leaving(self, layout):
            return Step.NOTHING  # refused before we know why
        if not self.in_doubt:
            return Step.MOVE
        part = layout.segments.get(self.segment.segment_id)
        if part is None or self.incarnation != layout.incarnation or layout.deleted:
            return Step.GIVE_UP
        return Step.RESOLVE if part.info.end_offsets else Step.NOTHING

    def resolved(self, found: int) -> list[Held]:
        """Of the refused messages the first `found` are in the sealed segment; returns those."""
        there, self.refused = self.refused[:found], self.refused[found:]
        self.in_doubt = self.resolving = False
        return there

    def fail_refused(self) -> list[Held]:
        """Gives the refused messages up; returns them. What is held can go on."""
        lost = self.forgo(len(self.refused))
        self.in_doubt = self.resolving = False
        return lost

    def forgo(self, count: int) -> list[Held]:
        """Gives the first ones of the refused messages up; returns them."""
        lost, self.refused = self.refused[:count], self.refused[count:]
        self.forgone += len(lost)
        self.in_doubt = self.in_doubt and bool(self.refused)
        return lost


def _is_leaving(flow: Flow, layout: TopicLayout) -> bool:
    return flow.incarnation != layout.incarnation or layout.is_leaving(flow.segment.segment_id)


FlowT = TypeVar("FlowT", bound=Flow)
MakeFlow = Callable[[int, Segment, int], FlowT]


class FlowTable(Generic[FlowT]):
    """All flows of one producer; `routes` remembers where keys go, for the hot path.

    An entry of `routes` counts only while its flow is open.
    """

    def __init__(self, layout: TopicLayout, make: MakeFlow[FlowT]) -> None:
        self.layout = layout
        self.routes: dict[str | bytes, FlowT] = {}
        self.leaving: list[FlowT] = []  # the oldest first
        self._make = make
        self._flows: dict[tuple[int, int, int], FlowT] = {}
        self._rotation: list[FlowT] = []
        self._turn = 0

    def flows(self) -> list[FlowT]:
        """All that have not been left."""
        return list(self._flows.values())

    def update(self, layout: TopicLayout) -> list[FlowT]:
        """Takes a newer layout; returns the flows that begin to leave for it."""
        self.layout = layout
        self._rotation = []
        begun = [flow for flow in self._flows.values() if flow.open and _is_leaving(flow, layout)]
        for flow in begun:
            self.close(flow)
        return begun

    def close(self, flow: FlowT) -> None:
        """The flow begins to leave. Does nothing if it has begun."""
        if flow.open:
            flow.open = flow.ready = False
            self.leaving.append(flow)
            self.leaving.sort(key=lambda each: (each.incarnation, each.segment.segment_id))

    def reopen(self, flow: FlowT) -> list[Held]:
        """A flow that closed for no reason goes on; returns what it held, to be sent again."""
        flow.open = True
        flow.ready = flow.proven and not flow.paused
        self.leaving.remove(flow)
        return self._emptied(flow)

    def leave(self, flow: FlowT) -> list[Held]:
        """The flow is left for ever; returns what is to be sent on, in its order."""
        self.leaving.remove(flow)
        del self._flows[flow.incarnation, flow.segment.segment_id, flow.bucket]
        return self._emptied(flow)

    def renew(self, flow: FlowT) -> list[Held]:
        """Another flow takes the place of an open one, of which nothing is under way; else as
        `leave`.
        """
        flow.open = flow.ready = False
        self._rotation = []
        del self._flows[flow.incarnation, flow.segment.segment_id, flow.bucket]
        return self._emptied(flow)

    def route(self, key: str | bytes | None) -> FlowT:
        """The flow that takes a message now; if it is not open, by holding it."""
        if key is None:
            return self._next_in_rotation()
        position = hash32(key)
        for flow in self.leaving:
            if flow.covers(position):
                return flow
        flow = self._flow_at(self._segment_at(segment_hash(position)), position)
        if len(self.routes) >= _ROUTES_MAX:
            self.routes.clear()
        self.routes[key] = flow
        return flow

    def _segment_at(self, hash16: int) -> Segment:
        part = self.layout.active_at(hash16)
        if self.layout.is_leaving(part.segment_id):
            return self.layout.child_at(hash16) or part
        return part

    def _flow_at(self, part: Segment, position: int) -> FlowT:
        return self._flow(part, bucket_of(position, part.info.buckets))

    def _flow(self, part: Segment, bucket: int) -> FlowT:
        number = (self.layout.incarnation, part.segment_id, bucket)
        flow = self._flows.get(number)
        if flow is None:
            flow = self._flows[number] = self._make(self.layout.incarnation, part, bucket)
        return flow

    def _next_in_rotation(self) -> FlowT:
        """Messages without a key go round over all buckets that are open."""
        for _ in range(2):
            for _ in range(len(self._rotation)):
                self._turn = (self._turn + 1) % len(self._rotation)
                flow = self._rotation[self._turn]
                if flow.open:
                    return flow
            self._rotation = self._targets()
        return self.leaving[-1]  # all are leaving

    def _targets(self) -> list[FlowT]:
        parts = {
            part.segment_id: part
            for each in self.layout.active
            for part in (
                [
                    child
                    for child in self.layout.children
                    if each.segment_id in child.info.parent_ids
                ]
                if self.layout.is_leaving(each.segment_id)
                else [each]
            )
        }
        found = []
        gone = {id(flow) for flow in self.leaving}
        for part in parts.values():
            for bucket in range(part.info.buckets):
                flow = self._flow(part, bucket)
                if id(flow) not in gone:
                    found.append(flow)
        return found

    @staticmethod
    def _emptied(flow: FlowT) -> list[Held]:
        messages = [*flow.refused, *flow.held]
        flow.refused = []
        flow.held.clear()
        return messages
