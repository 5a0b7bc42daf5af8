"""`PartitionWriter`: what one producer appends to one bucket of one segment. Pure, no I/O.

Messages fill batches. One batch at a time is tried, until Kafka has answered for it; the next one
waits. So Kafka stores the batches of a bucket in their order, each once: a batch that is tried
again has the number it had, by which Kafka knows it (KIP-98). Numbers are without gap. A batch that
was given up and may be stored leaves one, so the writer then goes on under another producer id.

A sealed partition refuses a batch before it looks at its number. So a batch that was refused is not
there, unless a try before went unanswered. Then it is *in doubt*, and `sender` tells what follows.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from anabranch.client._producer.batch import BatchLimits, PendingMessage, ProducerId, RecordBatch
from anabranch.client._topics.layout import Segment, TopicLayout
from anabranch.core.hashing import bucket_of

_NO_LIMITS: Final = BatchLimits()
_NO_HEADERS: Final[list[Any]] = []  # aiokafka's builder wants a list


class Step(Enum):
    """What a partition writer needs next."""

    NOTHING = auto()  # it is open, or an answer or the next layout must come first
    RESOLVE = auto()  # `resolved` or `fail_refused`, once it is known what the partition holds
    MOVE = auto()  # `Router.leave`
    GIVE_UP = auto()  # `fail_refused`: it is in doubt, and what could tell is gone


@dataclass(slots=True, eq=False)  # whose attributes are set faster than a Struct's
class PartitionWriter:
    """One producer's traffic to one bucket of one segment."""

    incarnation: int
    segment: Segment
    bucket: int
    limits: BatchLimits = _NO_LIMITS
    where: str = field(default="", init=False)
    open: bool = True
    lost: str = ""  # Kafka does not have the segment's topic: what to tell of that
    copies: int = 0  # of the partition; 0: not known, so perhaps several
    producer: ProducerId | None = None  # None: it needs one
    former: ProducerId | None = None  # which it had before, and may not have again
    sequence: int = 0  # of the next batch
    filling: RecordBatch | None = None
    full: deque[RecordBatch] = field(default_factory=deque)
    trying: RecordBatch | None = None  # on its way, or to be tried again
    on_its_way: bool = False
    appended: int = 0
    reported: int = 0  # of those, for how many Kafka has answered, or that were given up
    refused: list[PendingMessage] = field(default_factory=list)
    in_doubt: bool = False  # those are
    refused_number: int = -1  # of the first of those
    held: deque[PendingMessage] = field(default_factory=deque)
    resolving: bool = False  # somebody asks what the sealed partition holds
    leaving_since: float = 0.0
    batches: int = 0  # that were stored, with
    batched_messages: int = 0
    batched_bytes: int = 0  # as they are stored

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
    def outstanding(self) -> int:
        """How many appends have not been answered."""
        return self.appended - self.reported

    # --- what is appended -------------------------------------------------------------------

    def append(
        self,
        key: str | bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Any = _NO_HEADERS,
        message: PendingMessage | None = None,
    ) -> bool:
        """Appends a message, remembered as `message` where somebody waits for it.

        Returns whether a new batch has begun with it.
        """
        key_bytes = key if key.__class__ is bytes or key is None else _as_bytes(key)
        batch, begins = self.filling, False
        if batch is None or not batch.take(key_bytes, value, timestamp_ms, headers):
            begins, batch = True, RecordBatch(self.limits)
            batch.take(key_bytes, value, timestamp_ms, headers)
            self.cut()  # not before: it may have raised
            self.filling = batch
        if message is not None:
            batch.note(message)
        self.appended += 1
        return begins

    def cut(self) -> None:
        """Lets what is being filled wait as it is: its messages may become late one by one."""
        if self.filling is not None:
            self.full.append(self.filling)
            self.filling = None

    # --- what is tried ----------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        """Whether there is a batch to be tried now."""
        waits = self.trying is not None or bool(self.full) or self.filling is not None
        return waits and not self.on_its_way

    def take(self) -> RecordBatch | None:
        """Returns the batch to be sent now, numbered; None where there is none.

        The writer must have a producer id.
        """
        if not self.has_more or self.producer is None:
            return None
        if self.trying is None:
            self.trying = self._next()
            self.trying.number(self.producer, self.sequence)
        self.trying.tries += 1
        self.on_its_way = True
        return self.trying

    def acked(self) -> RecordBatch:
        """Kafka has the batch that was tried."""
        batch = self._answered()
        self.sequence = batch.after
        self.batches += 1
        self.batched_messages += batch.count
        self.batched_bytes += len(batch.data)
        return batch

    def unanswered(self, in_doubt: bool) -> None:
        """The batch must be tried again; `in_doubt` where Kafka may have stored it."""
        self.on_its_way = False
        if self.trying is not None:
            self.trying.in_doubt |= in_doubt

    def estranged(self) -> None:
        """Kafka knows the producer id no more: what was tried is new under the next one."""
        batch, self.trying, self.on_its_way = self.trying, None, False
        self.forget_id()
        if batch is not None:
            again = RecordBatch(self.limits)
            again.since = batch.since
            notes = dict(batch.noted)
            for place, each in enumerate(batch.messages()):
                key = None if each.key is None else _as_bytes(each.key)
                again.take(key, each.value, each.timestamp_ms, list(each.headers))
                if place in notes:
                    again.note(each)
            self.full.appendleft(again)

    def forget_id(self) -> None:
        """Goes on under another producer id, whose numbers begin at 0."""
        self.former = self.producer or self.former
        self.producer, self.sequence = None, 0

    def drop_tried(self) -> RecordBatch:
        """Gives the batch up that was tried. Kafka may have it, or get it yet."""
        if self.on_its_way and self.trying is not None:
            self.trying.in_doubt = True
        batch = self._answered()
        if batch.in_doubt:
            self.forget_id()
        return batch

    def drop_untried(self, sent_by: float) -> list[RecordBatch]:
        """Gives up the batches that began before that and were never tried."""
        late = []
        while (
            self.trying is None and (first := self._first()) is not None and first.since < sent_by
        ):
            late.append(self._next())
            self.reported += first.count
        return late

    def _answered(self) -> RecordBatch:
        batch = self.trying
        if batch is None:
            raise LookupError(f"{self} has tried nothing")
        self.trying, self.on_its_way = None, False
        self.reported += batch.count
        return batch

    def _first(self) -> RecordBatch | None:
        return self.full[0] if self.full else self.filling

    def _next(self) -> RecordBatch:
        if self.full:
            return self.full.popleft()
        batch, self.filling = self.filling, None
        if batch is None:
            raise LookupError(f"nothing waits in {self}")
        return batch

    @property
    def waiting_since(self) -> float | None:
        """When the oldest message of those under way was sent; None where there is none."""
        first = self.trying or self._first()
        return None if first is None else first.since

    # --- how it leaves ----------------------------------------------------------------------

    def reclaim(self) -> list[PendingMessage]:
        """Takes back what is under way, but for what is on its way; returns it in its order.

        What was tried is refused from now on, the rest is held.
        """
        found: list[PendingMessage] = []
        if self.trying is not None and not self.on_its_way:
            self.refused = self.trying.messages()
            self.refused_number, self.in_doubt = self.trying.sequence, self.trying.in_doubt
            found += self.refused
            self.trying = None
        untried: list[PendingMessage] = []
        while self._first() is not None:
            untried += self._next().messages()
        self.held.extendleft(reversed(untried))
        self.appended = self.reported + (self.trying.count if self.trying is not None else 0)
        return found + untried

    def step(self, layout: TopicLayout) -> Step:
        """What comes next, as far as that layout tells."""
        if self.open or self.outstanding or self.resolving:
            return Step.NOTHING
        is_current = self.incarnation == layout.incarnation
        segment_id = self.segment.segment_id
        if is_current and not layout.is_leaving(segment_id):
            return Step.NOTHING  # refused before we know why
        if is_current and self.copies != 1 and not layout.is_sealed(segment_id):
            return Step.NOTHING  # only this leader is known to refuse
        if not self.in_doubt:
            return Step.MOVE
        part = layout.segments.get(segment_id)
        if part is None or not is_current or layout.deleted:
            return Step.GIVE_UP
        return Step.RESOLVE if part.info.end_offsets else Step.NOTHING

    def resolved(self, is_stored: bool) -> list[PendingMessage]:
        """The sealed segment has the refused messages, or has none; returns those that it has."""
        there = self.refused if is_stored else []
        if is_stored:
            self.refused = []
        self.in_doubt = self.resolving = False
        return there

    def fail_refused(self) -> list[PendingMessage]:
        """Gives the refused messages up; returns them. What is held can go on."""
        lost, self.refused = self.refused, []
        if self.in_doubt:
            self.forget_id()
        self.in_doubt = self.resolving = False
        return lost


def _as_bytes(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else bytes(key)
