"""`CheckpointConsumer`: ordered, with the positions in the caller's own hands.

For connectors, which store what they read and how far they have read in one place, together.
What is saved is committed to Kafka, too, but nobody begins there: it tells the nodes what is left
to read, so that nothing of that is deleted, and what is not.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Self

import msgspec
from confluent_kafka import KafkaException

from anabranch.client._consumer.assignment import Fetch, Holding, Loss, Partition, SegmentBucket
from anabranch.client._consumer.consumer import Membership
from anabranch.client._consumer.held import Lost, raise_lost
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
_LOST: Final = "what came next is lost with its Kafka topic; begin without it to pass over that"
_PRUNED: Final = "it is in the layout no more; begin without the checkpoint to pass over that"


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
    buckets, and then calls `saved` with it: only that lets a bucket go to another consumer (unless
    `settle_timeout_s` is set), and lets the children of a sealed segment begin.
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
        self._newest = math.inf  # the newest segment of when it began
        self._resumes: bool | None = None  # whether somebody had read before; None: not asked yet

    def checkpoint(self) -> Checkpoint:
        """How far each bucket is that this consumer has, and each that it has read to the end.

        One that went to another consumer is not named: what is stored of it is that one's. Without
        `position_of`, what the consumer began with stands for buckets that it did not have yet.
        """
        self._home.check()
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

    def saved(self, checkpoint: Checkpoint) -> None:
        """This checkpoint, with what came before it, is stored where a crash does not reach.

        Raises BucketLostError, once, if something is delivered again that was delivered here: what
        was not saved of a bucket when it was taken away. The rest counts as saved all the same.
        """
        self._home.check()
        raise_lost(self.note_saved(checkpoint))

    def note_saved(self, checkpoint: Checkpoint) -> list[Lost]:
        """The same; returns what is delivered again. Raises ClientError for another topic's."""
        self._check_incarnation(checkpoint)
        self._look()
        now = self._now()
        beyond = []
        for segment_id, buckets in checkpoint.positions.items():
            for bucket, offset in buckets.items():
                place = SegmentBucket(segment_id, bucket)
                holding = self._core.holdings.get(place)
                # Of one that is released another consumer may have saved more.
                mine = holding if holding is not None and holding.is_held else None
                if mine is not None and self._core.acknowledge(mine, offset, now):
                    self._core.on_committed(mine, offset, now)
                    self._saved[place] = max(offset, self._saved.get(place, 0))
                    self._marks[mine.partition] = self._saved[place]
                elif offset > self._stored_up_to(place):
                    had = self._had.get(place)
                    beyond.append(Lost(self.topic, place, had.loss if had else Loss.NOT_HELD))
        self._changed()
        return list(dict.fromkeys([*beyond, *self.take_lost()]))

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
        self._had.update(self._core.holdings)

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
        gone = _removed({place.segment_id for place in (*self._saved, *self._had)}, layout)
        self._saved = {p: e for p, e in self._saved.items() if p.segment_id not in gone}
        self._had = {p: h for p, h in self._had.items() if p.segment_id not in gone}

    def without_removed(self, checkpoint: Checkpoint) -> Checkpoint:
        """Without what the layout has no more, all of which was read by who was given it."""
        layout = self._watch.layout
        if layout.incarnation != checkpoint.incarnation:
            return checkpoint
        gone = _removed(checkpoint.positions, layout)
        left = {each: at for each, at in checkpoint.positions.items() if each not in gone}
        return Checkpoint(checkpoint.incarnation, left)

    def _check_incarnation(self, checkpoint: Checkpoint) -> None:
        assignment = self._core.assignment
        if assignment is not None and checkpoint.incarnation != assignment.incarnation:
            raise ClientError(
                f"the checkpoint is of another {self.topic}, one that was deleted: begin without it"
            )

    async def _positions(self, group: Offsets, fetches: list[Fetch]) -> dict[int, int]:
        self._look()  # before anything of these is delivered
        if self._resumes is None:
            self._resumes = await self._resume()
        ranges, refused = await group.ranges(fetch.partition for fetch in fetches)
        if refused:
            self._reading.refused(refused, "to find out where to read")
        return {
            fetch.number: await self._start_of(fetch, *ranges[fetch.partition])
            for fetch in fetches
            if fetch.partition in ranges
        }

    async def _start_of(self, fetch: Fetch, first: int, end: int) -> int:
        """Where to start, of what Kafka has. Raises PositionGoneError and what the caller does."""
        place = fetch.place
        if self._first is not None:
            self._check_incarnation(self._first)
        asked = None if self._position_of is None else await self._position_of(*place)
        position = self._saved.get(place) if asked is None else asked
        if position is None and not await self._follows(place.segment_id):
            return min(max(first, fetch.otherwise), end)
        if position is None:  # all of it is to be read, from where the subscription began
            position = min(fetch.otherwise, end)
        if not first <= position <= end:
            raise PositionGoneError(
                f"bucket {place.bucket} of segment {place.segment_id} of {self.topic} has messages "
                f"from {first} to {end}, exclusive, and the position to begin at is {position}: "
                + ("the checkpoint is of something else" if position > end else _GONE)
            )
        return position

    async def _resume(self) -> bool:
        """Whether somebody had read before, by what is known of segments that are gone.

        Raises PositionGoneError for one that was not read to its end.
        """
        assignment, position_of = self._core.assignment, self._position_of
        pruned, epoch = (
            ({}, 0) if assignment is None else (assignment.pruned, assignment.layout_epoch)
        )
        layout = self._watch.layout
        self._newest = max(layout.segments, default=math.inf)
        named: dict[int, dict[int, int]] = {}
        if self._first is not None:
            self._check_incarnation(self._first)
            gone = self._first.positions.keys() & pruned.keys()
            if layout.incarnation == self._incarnation and layout.epoch <= epoch:
                gone |= _removed(self._first.positions, layout)  # all that the assignment can tell
            named = {each: self._first.positions[each] for each in gone}
        if position_of is not None:  # which counts for more
            for segment_id, ends in pruned.items():
                found = {b: await position_of(segment_id, b) for b in range(len(ends))}
                known = {b: at for b, at in found.items() if at is not None}
                named[segment_id] = named.get(segment_id, {}) | known
        for segment_id, buckets in named.items():
            if not pruned or segment_id >= min(pruned):
                self._must_be_read(segment_id, buckets, pruned.get(segment_id))
            else:  # a checkpoint that is added to names all that there ever was
                self._logger.info("consumer.position_not_judged", segment=segment_id)
        for segment_id, part in layout.segments.items():
            if part.info.end_offsets and not any(part.info.end_offsets):
                for bucket in range(part.info.buckets):
                    place = SegmentBucket(segment_id, bucket)
                    asked = None if position_of is None else await position_of(*place)
                    self._must_not_be_lost(place, asked or self._saved.get(place, 0))
        return self._first is not None or any(named.values())

    def _must_be_read(
        self, segment_id: int, buckets: Mapping[int, int], ends: tuple[int, ...] | None
    ) -> None:
        what = f"segment {segment_id} of {self.topic}"
        if ends is None:
            raise PositionGoneError(
                f"nobody can tell whether {what} was read to its end: {_PRUNED}"
            )
        for bucket, position in buckets.items():
            if bucket < len(ends) and position != ends[bucket]:
                raise PositionGoneError(
                    f"bucket {bucket} of {what} ended at {ends[bucket]}, and the position to begin "
                    f"at is {position}: {_PRUNED}"
                )

    def _must_not_be_lost(self, place: SegmentBucket, position: int) -> None:
        """Of a bucket that ends at 0."""
        if position:
            raise PositionGoneError(
                f"bucket {place.bucket} of segment {place.segment_id} of {self.topic} was read up "
                f"to {position}: {_LOST}"
            )

    async def _follows(self, segment_id: int) -> bool:
        """Whether it is read after something that this consumer, or one before it, has read."""
        if self._resumes or segment_id > self._newest:
            return True
        segments, position_of = self._watch.layout.segments, self._position_of
        part = segments.get(segment_id)
        if part is None or position_of is None:
            return False
        above = [segments[each].info for each in part.info.parent_ids if each in segments]
        places = [(each.segment_id, bucket) for each in above for bucket in range(each.buckets)]
        return any([await position_of(*place) is not None for place in places])

    async def _commit(self, group: Offsets, offsets: list[tuple[Holding, int]]) -> None:
        # Only what Kafka's retention removed comes here, and ends of transactions: there is nothing
        # to store of that.
        for holding, end in offsets:
            self._core.on_committed(holding, end, self._now())
            self._saved[holding.place] = max(end, self._saved.get(holding.place, 0))

    def _commit_if_due(self, now: float) -> float:
        for place, holding in self._core.holdings.items():
            if holding.is_held and holding.is_cut_short:
                self._must_not_be_lost(place, holding.delivered or 0)
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
        untold = marks
        try:
            told, refused = await group.commit(marks, self._core.commits_until())
            self._reading.refused(refused, "to commit")
            untold = {place: at for place, at in marks.items() if place not in told}
        except Exception as error:
            if group is not self._reading.offsets:
                untold = {}
                return  # it was left, and its client is closed
            if not isinstance(error, KafkaException):
                raise
            self._reading.trouble.note(error.args[0], "to commit")
        finally:
            if untold:
                self._marks = {**untold, **self._marks}
                pause_s = _TELL_AGAIN_S
            self._marks_at = self._now() + pause_s
            self._changed()


def _removed(segment_ids: Iterable[int], layout: TopicLayout) -> set[int]:
    """Those that the layout has no more. Ids ascend: a newer one may be yet to come."""
    newest = max(layout.segments, default=0)
    return {each for each in segment_ids if each not in layout.segments and each <= newest}
