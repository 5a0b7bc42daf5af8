"""`CheckpointConsumer`: ordered, with the positions in the caller's own hands.

For connectors, which store what they read and how far they have read in one place, together.
What is saved is committed to Kafka, too, but nobody begins there: it tells the nodes what is left
to read, so that nothing of that is deleted, and what is not.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final, Self

import msgspec
from confluent_kafka import KafkaException

from anabranch.client._consumer.assignment import Fetch, Holding, Partition, SegmentBucket
from anabranch.client._consumer.consumer import Membership
from anabranch.client._consumer.resources import Offsets
from anabranch.client._consumer.stream import OrderedConsumer
from anabranch.client._errors import ClientError, PositionGoneError
from anabranch.client._settings import ConsumerSettings
from anabranch.client._topics.layout import TopicLayout
from anabranch.core.errors import InvalidInputError
from anabranch.wire.anabranch_pb2 import ScalableConsumerType

PositionOf = Callable[[int, int], Awaitable[int | None]]
_TELL_AGAIN_S: Final = 5.0
_GONE: Final = "Kafka's retention has removed what comes next; begin without it to pass over that"


class Checkpoint(msgspec.Struct, frozen=True):
    """How far a consumer has read: by segment and bucket, the offset of the next message.

    `incarnation` is that of the topic: one that was deleted and made again has other messages.
    """

    incarnation: int
    positions: dict[int, dict[int, int]] = {}

    def position(self, segment_id: int, bucket: int) -> int | None:
        """The offset of the next message of a bucket; None if nothing is known of it."""
        return self.positions.get(segment_id, {}).get(bucket)

    def over(self, before: Checkpoint) -> Checkpoint:
        """This one, with what `before` has of the same topic and this one does not name.

        >>> Checkpoint(7, {0: {1: 9}}).over(Checkpoint(7, {0: {0: 4, 1: 5}})).positions
        {0: {0: 4, 1: 9}}
        """
        if before.incarnation != self.incarnation:
            return self
        positions = {segment: dict(buckets) for segment, buckets in before.positions.items()}
        for segment_id, buckets in self.positions.items():
            positions.setdefault(segment_id, {}).update(buckets)
        return Checkpoint(self.incarnation, positions)

    def to_json(self) -> bytes:
        """Written down.

        >>> Checkpoint(7, {3: {0: 15}}).to_json()
        b'{"incarnation":7,"positions":{"3":{"0":15}}}'
        """
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Read back. Raises InvalidInputError."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise InvalidInputError(f"this is no checkpoint: {error}") from None


class CheckpointConsumer(OrderedConsumer):
    """Receives each bucket's messages in order, from the position that the caller gives.

    A bucket starts at what `position_of(segment_id, bucket)` says; where that is not given, or
    says None, at what this consumer has saved of it, or began with in `checkpoint`; else at its
    beginning. In a group, `position_of` reads what the others have saved. The caller stores
    `checkpoint()` now and then, with what it made of the messages, over what is stored of the same
    buckets, and then calls `saved` with it: only that lets a bucket go to another consumer before
    `settle_timeout_s`, and lets the children of a sealed segment begin.
    """

    _kind = ScalableConsumerType.CHECKPOINT
    _skips_gone = False  # nobody may take the gap for read

    def __init__(
        self,
        membership: Membership,
        settings: ConsumerSettings,
        checkpoint: Checkpoint | None = None,
        position_of: PositionOf | None = None,
    ) -> None:
        kind = type(checkpoint)
        if checkpoint is not None and not issubclass(kind, Checkpoint):
            raise InvalidInputError(f"checkpoint must be a Checkpoint: {kind.__name__}")
        super().__init__(membership, settings)
        self._first = checkpoint
        self._position_of = position_of
        given = {} if checkpoint is None else checkpoint.positions
        # Where to begin, by all that this consumer knows.
        self._saved = {
            SegmentBucket(s, b): end for s, buckets in given.items() for b, end in buckets.items()
        }
        self._incarnation = None if checkpoint is None else checkpoint.incarnation  # of the above
        # The last one of each place, also when it is over.
        self._had: dict[SegmentBucket, Holding] = {}
        self._marks: dict[Partition, int] = {}  # saved, and Kafka is to be told
        self._marks_at = 0.0
        self._repeats = False  # something that was delivered was lost, and nobody was told

    def checkpoint(self) -> Checkpoint:
        """How far each bucket is that this consumer has, and each that it has read to the end.

        One that went to another consumer is not named: what is stored of it is that one's. Without
        `position_of`, what the consumer began with stands for buckets that it did not have yet.
        """
        self._look()
        known = self._saved if self._position_of is None else {}
        found = {place: end for place, end in known.items() if place not in self._had}
        for place, each in self._had.items():
            end = known.get(place) if each.delivered is None else each.delivered
            if end is not None and (each.is_held or each.drained):
                found[place] = end
        positions: dict[int, dict[int, int]] = {}
        for (segment_id, bucket), offset in sorted(found.items()):
            positions.setdefault(segment_id, {})[bucket] = offset
        return Checkpoint(self._incarnation or 0, positions)

    def saved(self, checkpoint: Checkpoint) -> bool:
        """This checkpoint, with what came before it, is stored where a crash does not reach.

        False if something is delivered again that was delivered here: what was not saved of a
        bucket when it went to another consumer, or the session lapsed. That is told once.
        """
        self._check_incarnation(checkpoint)
        self._look()
        now = self._now()
        kept = True
        for segment_id, buckets in checkpoint.positions.items():
            for bucket, offset in buckets.items():
                place = SegmentBucket(segment_id, bucket)
                holding = self._core.holdings.get(place)
                if holding is not None and self._core.acknowledge(holding, offset, now):
                    self._core.on_committed(holding, offset, now)
                    self._saved[place] = max(offset, self._saved.get(place, 0))
                    self._marks[holding.partition] = self._saved[place]
                elif offset > self._stored_up_to(place):
                    kept = False
        self._note_repeats()
        kept, self._repeats = kept and not self._repeats, False
        self._changed()
        return kept

    def _stored_up_to(self, place: SegmentBucket) -> int:
        """Of what this consumer knows to be stored; what it began at was stored before."""
        had = self._had.get(place)
        begun = None if had is None else had.committed
        return max(self._saved.get(place, 0), begun or 0)

    def _look(self) -> None:
        """Notes what it has, and what it had; of a topic that was made again nothing is known."""
        assignment = self._core.assignment
        if assignment is not None and assignment.incarnation != self._incarnation:
            self._saved, self._had = {}, {}
            self._incarnation = assignment.incarnation
        self._note_repeats()
        self._had.update(self._core.holdings)

    def _note_repeats(self) -> None:
        """Once of each bucket that is over with something delivered that was not saved."""
        for holding in self._had.values():
            if not holding.is_held and holding.in_flight:
                self._repeats = True
                holding.forget_position()

    async def _prepare(self, timeout_s: float) -> None:
        self._look()
        self._forget_removed(self._watch.layout)

    def _layout_changed(self, layout: TopicLayout) -> None:
        super()._layout_changed(layout)
        self._forget_removed(layout)

    def _forget_removed(self, layout: TopicLayout) -> None:
        """Drops what the layout has no more. Ids ascend: a newer one may be yet to come."""
        if layout.incarnation != self._incarnation:
            return
        known, newest = layout.segments, max(layout.segments, default=0)
        self._saved = {p: e for p, e in self._saved.items() if p[0] in known or p[0] > newest}
        self._had = {p: h for p, h in self._had.items() if p[0] in known or p[0] > newest}

    def _check_incarnation(self, checkpoint: Checkpoint) -> None:
        assignment = self._core.assignment
        if assignment is not None and checkpoint.incarnation != assignment.incarnation:
            raise ClientError(
                f"the checkpoint is of another {self.topic}, one that was deleted: begin without it"
            )

    async def _positions(self, group: Offsets, fetches: list[Fetch]) -> dict[int, int]:
        self._look()  # before anything of these is delivered
        ranges = await group.ranges(fetch.partition for fetch in fetches)
        return {
            fetch.number: await self._start_of(fetch, *ranges[fetch.partition]) for fetch in fetches
        }

    async def _start_of(self, fetch: Fetch, first: int, end: int) -> int:
        """Where to start, of what Kafka has. Raises PositionGoneError and what the caller does."""
        place = fetch.place
        if self._first is not None:
            self._check_incarnation(self._first)
        asked = None if self._position_of is None else await self._position_of(*place)
        position = self._saved.get(place) if asked is None else asked
        if position is None:
            return min(max(first, fetch.otherwise), end)
        if not first <= position <= end:
            raise PositionGoneError(
                f"bucket {place.bucket} of segment {place.segment_id} of {self.topic} has messages "
                f"from {first} to {end}, exclusive, and the position to begin at is {position}: "
                + ("the checkpoint is of something else" if position > end else _GONE)
            )
        return position

    async def _commit(self, group: Offsets, offsets: list[tuple[Holding, int]]) -> None:
        # Only what Kafka's retention removed comes here, and ends of transactions: there is nothing
        # to store of that.
        for holding, end in offsets:
            self._core.on_committed(holding, end, self._now())
            self._saved[holding.place] = max(end, self._saved.get(holding.place, 0))

    def _commit_if_due(self, now: float) -> float:
        commit_at = super()._commit_if_due(now)
        group = self._reading.offsets
        if not self._marks or group is None:
            return commit_at
        if now >= self._marks_at:
            marks, self._marks = self._marks, {}
            self._marks_at = math.inf  # until they are told
            self._tasks.spawn(self._tell(group, marks))
        return min(commit_at, self._marks_at)

    async def _tell(self, group: Offsets, marks: dict[Partition, int]) -> None:
        """Nothing waits for it; what Kafka does not take now it is told with the next ones."""
        pause_s = self._settings.commit_interval_s
        try:
            await group.commit(marks, self._core.commits_until())
        except KafkaException as error:
            self._reading.trouble.note(error.args[0], "to commit")
            self._marks = {**marks, **self._marks}
            pause_s = _TELL_AGAIN_S
        finally:
            self._marks_at = self._now() + pause_s
            self._changed()
