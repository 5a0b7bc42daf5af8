"""`CheckpointConsumer`: ordered, with the positions in the caller's own hands.

It is for connectors, which store messages and positions together in one place. It commits saved
positions to Kafka too, but nobody begins there. They tell the nodes which messages are still unread
and must not be deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Self

import msgspec
from confluent_kafka import KafkaException

from anabranch.client._consumer.assignment import Fetch, Partition, SegmentBucket
from anabranch.client._consumer.consumer import LEAVE_S_MAX, Membership
from anabranch.client._consumer.group_offsets import Position
from anabranch.client._consumer.holding import Holding, Loss
from anabranch.client._consumer.messages import Lost, raise_lost
from anabranch.client._consumer.ordered import OrderedConsumer
from anabranch.client._consumer.resources import Offsets
from anabranch.client._errors import ClientError, PositionGoneError
from anabranch.client._settings import ConsumerSettings
from anabranch.client._topics.layout import TopicLayout
from anabranch.core.errors import InvalidInputError
from anabranch.wire.anabranch_pb2 import ScalableConsumerType

PositionOf = Callable[[int, int], Awaitable[int | None] | int | None]
_TELL_AGAIN_S: Final = 5.0
_GONE: Final = "Kafka's retention has removed what comes next; begin without it to pass over that"
_LOST: Final = "what came next is lost with its Kafka topic; begin without it to pass over that"
_PRUNED: Final = "it is in the layout no more; begin without the checkpoint to pass over that"


class Checkpoint(msgspec.Struct, frozen=True):
    """The progress of a consumer: the offset of the next message, by segment and bucket.

    `incarnation` is that of the topic. A topic that was deleted and created again has other
    messages.
    """

    incarnation: int
    positions: dict[int, dict[int, int]] = {}

    def position(self, segment_id: int, bucket: int) -> int | None:
        """Returns the offset of the next message of a bucket, None if it is not known."""
        return self.positions.get(segment_id, {}).get(bucket)

    def to_json(self) -> bytes:
        """Encodes it.

        >>> Checkpoint(7, {3: {0: 15}}).to_json()
        b'{"incarnation":7,"positions":{"3":{"0":15}}}'
        """
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Decodes it. Raises InvalidInputError."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise InvalidInputError(f"this is no checkpoint: {error}") from None


class CheckpointConsumer(OrderedConsumer):
    """Receives each bucket's messages in order, from the position that the caller gives.

    A bucket starts at the offset that `position_of(segment_id, bucket)` returns. This is a
    coroutine function, or a plain one, which runs on a thread. Without that function, or if it
    returns None, the bucket starts at this consumer's saved position, or at that of `checkpoint`.
    Otherwise it starts at its beginning. In a group, `position_of` reads what the other consumers
    have saved.

    The caller stores `checkpoint()` now and then, together with its results, over what is stored of
    the same buckets. Then it calls `saved` with that checkpoint. Only this lets a bucket go to
    another consumer (unless `settle_timeout_s` is set), and lets the children of a sealed segment
    begin.
    """

    _kind = ScalableConsumerType.CHECKPOINT
    _skips_gone = False  # a gap must not count as read

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
        self._position_of = None if position_of is None else functools.partial(_told, position_of)
        given = {} if checkpoint is None else checkpoint.positions
        # The known places to begin at.
        self._saved = {
            SegmentBucket(s, b): end for s, buckets in given.items() for b, end in buckets.items()
        }
        self._incarnation = None if checkpoint is None else checkpoint.incarnation  # for `_saved`
        # The last one of each place, also when it is over.
        self._had: dict[SegmentBucket, Holding] = {}
        self._marks: dict[Partition, int] = {}  # saved, and Kafka is to be told
        self._marks_at = 0.0
        self._newest = math.inf  # the newest segment of when it began
        self._resumes: bool | None = None  # True if somebody had read before; None: not asked yet

    def checkpoint(self) -> Checkpoint:
        """Returns the positions of this consumer's buckets, and of buckets that it has read to the
        end.

        It does not name a bucket that went to another consumer, because the stored position is that
        consumer's. Without `position_of` it repeats the first checkpoint for buckets that it has
        not had yet.
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
        """Notes that the caller has stored this checkpoint, and all before it, where a crash does
        not reach.

        Raises BucketLostError, once, if messages are delivered again that were delivered here:
        those not saved when their bucket was taken away. The rest counts as saved all the same.
        Raises ClientError for a checkpoint of another topic.
        """
        self._home.check()
        self._check_incarnation(checkpoint)
        self._look()
        now = self._now()
        beyond = []
        for segment_id, buckets in checkpoint.positions.items():
            for bucket, offset in buckets.items():
                place = SegmentBucket(segment_id, bucket)
                holding = self._core.holdings.get(place)
                # Another consumer may have saved more of a released bucket.
                mine = holding if holding is not None and holding.is_held else None
                if mine is not None and self._core.acknowledge(mine, offset, now):
                    self._core.on_committed(mine, offset, now)
                    self._saved[place] = max(offset, self._saved.get(place, 0))
                    self._marks[mine.partition] = self._saved[place]
                elif offset > self._stored_up_to(place):
                    had = self._had.get(place)
                    beyond.append(Lost(self.topic, place, had.loss if had else Loss.NOT_HELD))
        self._changed()
        raise_lost(list(dict.fromkeys([*beyond, *self.take_lost()])))

    def _stored_up_to(self, place: SegmentBucket) -> int:
        """Returns the end of what is surely stored.
        Messages below the first position were stored before.
        """
        had = self._had.get(place)
        begun = None if had is None else had.committed
        return max(self._saved.get(place, 0), begun or 0)

    def _look(self) -> None:
        """Notes its present and former buckets.
        It forgets all of a topic that was created again.
        """
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
        """Drops segments that have left the layout.
        Ids ascend, so a newer one may be yet to come.
        """
        if layout.incarnation != self._incarnation:
            return
        gone = _removed({place.segment_id for place in (*self._saved, *self._had)}, layout)
        self._saved = {p: e for p, e in self._saved.items() if p.segment_id not in gone}
        self._had = {p: h for p, h in self._had.items() if p.segment_id not in gone}

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
        """Returns the offset to start at, within Kafka's range.
        Raises PositionGoneError and the errors of `position_of`.
        """
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
        """Returns True if the caller had read before, by positions of segments that are gone.

        Raises PositionGoneError for a gone segment that was not read to its end.
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
        if position_of is not None:  # its positions count for more
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
        """Raises PositionGoneError if a bucket that ends at 0 was read further."""
        if position:
            raise PositionGoneError(
                f"bucket {place.bucket} of segment {place.segment_id} of {self.topic} was read up "
                f"to {position}: {_LOST}"
            )

    async def _follows(self, segment_id: int) -> bool:
        """Returns True if a parent of the segment was read, by this consumer or by one
        before it.
        """
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

    async def _close(self) -> None:
        """Leaves, as every ordered consumer does, and tells Kafka the last marks before."""
        group, marks = self._reading.offsets, self._marks
        self._marks = {}
        if group is not None and marks:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_S_MAX):
                    await self._tell(group, marks)
        await super()._close()

    async def _tell(self, group: Offsets, marks: dict[Partition, int]) -> None:
        """Commits the marks to Kafka. Nothing waits for it.
        Marks that Kafka does not take go with the next ones.
        """
        pause_s = self._settings.commit_interval_s
        untold = marks
        try:
            positions = {place: Position(at) for place, at in marks.items()}
            told, refused = await group.commit(positions, self._core.commits_until())
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


async def _told(position_of: PositionOf, segment_id: int, bucket: int) -> int | None:
    """Returns the caller's position.
    A plain function runs on a thread, where it may wait.
    """
    asked: Any = position_of
    if inspect.iscoroutinefunction(asked):
        found = asked(segment_id, bucket)
    else:
        found = await asyncio.to_thread(asked, segment_id, bucket)
    position: int | None = await found if inspect.isawaitable(found) else found
    return position


def _removed(segment_ids: Iterable[int], layout: TopicLayout) -> set[int]:
    """Returns the segments that have left the layout.
    Ids ascend, so a newer one may be yet to come.
    """
    newest = max(layout.segments, default=0)
    return {each for each in segment_ids if each not in layout.segments and each <= newest}
