"""`PartitionWriter`: the appends of one producer to one bucket of one segment. Pure, no I/O.

Messages fill batches. One batch at a time is tried, until Kafka has answered for it; the next one
waits. So Kafka stores the batches of a bucket in their order, each once: a batch that is tried
again has its former number, by which Kafka knows it (KIP-98). Numbers have no gaps. A batch that
was given up and may be stored leaves one, so the writer then goes on under another producer id.

A sealed partition refuses a batch before it looks at its number. So a refused batch is not there,
unless an earlier try went unanswered. Then it is *in doubt*, and `sender` describes the next steps.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from anabranch.client._producer.batch import BatchLimits, PendingMessage, ProducerId, RecordBatch
from anabranch.client._topics.layout import Segment, TopicLayout
from anabranch.core.hashing import segment_hash

_NO_LIMITS: Final = BatchLimits()
_NO_HEADERS: Final[list[Any]] = []  # aiokafka's builder wants a list


class Step(Enum):
    """The next need of a partition writer."""

    NOTHING = auto()  # it is open, or an answer or the next layout must come first
    RESOLVE = auto()  # `resolved` or `fail_refused`, once it is known what the partition holds
    MOVE = auto()  # `Router.leave`
    GIVE_UP = auto()  # `fail_refused`: it is in doubt, and what could tell is gone


@dataclass(slots=True, eq=False)  # its attributes are set faster than a Struct's
class PartitionWriter:
    """The traffic of one producer to one bucket of one segment."""

    incarnation: int
    segment: Segment
    bucket: int
    limits: BatchLimits = _NO_LIMITS
    where: str = field(default="", init=False)
    open: bool = True
    lost: str = ""  # the text to tell if Kafka does not have the segment's topic
    copies: int = 0  # copies of the partition; 0: not known, so perhaps several
    producer: ProducerId | None = None  # None: it needs one
    former: ProducerId | None = None  # the one before, which it may not have again
    sequence: int = 0  # the number of the next batch
    filling: RecordBatch | None = None
    full: deque[RecordBatch] = field(default_factory=deque)
    trying: RecordBatch | None = None  # on its way, or to be tried again
    on_its_way: bool = False
    appended: int = 0
    reported: int = 0  # appends that Kafka has answered, or that were given up
    refused: list[PendingMessage] = field(default_factory=list)
    in_doubt: bool = False  # the refused messages are
    refused_number: int = -1  # the number of the first refused message
    held: deque[PendingMessage] = field(default_factory=deque)
    resolving: bool = False  # somebody asks what the sealed partition holds
    leaving_since: float = 0.0
    batches: int = 0  # the stored ones, with
    batched_messages: int = 0
    batched_bytes: int = 0  # the stored size

    def __post_init__(self) -> None:
        self.where = f"segment {self.segment.info.descriptor}, bucket {self.bucket}"

    def __repr__(self) -> str:
        return f"PartitionWriter(segment {self.segment.info.descriptor}, bucket {self.bucket})"

    def covers(self, key: str | bytes, position: int) -> bool:
        """Returns True if a key, at that position, belongs to this bucket of this segment."""
        is_here = segment_hash(position) in self.segment.info
        return is_here and self.segment.info.bucket(key, position) == self.bucket

    @property
    def outstanding(self) -> int:
        """The number of appends that have not been answered."""
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
        """Appends a message, and remembers it as `message` if its sender waits for it.

        Returns True if a new batch has begun with it.
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
        """Ends the batch that is being filled and lets it wait, because its messages may become
        late one by one.
        """
        if self.filling is not None:
            self.full.append(self.filling)
            self.filling = None

    # --- what is tried ----------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        """True if there is a batch to try now."""
        waits = self.trying is not None or bool(self.full) or self.filling is not None
        return waits and not self.on_its_way

    def take(self) -> RecordBatch | None:
        """Returns the numbered batch to send now, None if there is none.

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
        """Notes that Kafka has the batch that was tried."""
        batch = self._answered()
        self.sequence = batch.after
        self.batches += 1
        self.batched_messages += batch.count
        self.batched_bytes += len(batch.data)
        return batch

    def unanswered(self, in_doubt: bool) -> None:
        """Notes that the batch must be tried again.
        `in_doubt` is True if Kafka may have stored it.
        """
        self.on_its_way = False
        if self.trying is not None:
            self.trying.in_doubt |= in_doubt

    def estranged(self) -> None:
        """Notes that Kafka has forgotten the producer id.
        The tried batch becomes a new one under the next id.
        """
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
        """Gives up the batch that was tried. Kafka may have it, or get it yet."""
        if self.on_its_way and self.trying is not None:
            self.trying.in_doubt = True
        batch = self._answered()
        if batch.in_doubt:
            self.forget_id()
        return batch

    def drop_untried(self, sent_by: float) -> list[RecordBatch]:
        """Gives up the batches that began before `sent_by` and were never tried."""
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
        """Returns the time of sending of the oldest message under way, None if there is none."""
        first = self.trying or self._first()
        return None if first is None else first.since

    # --- how it leaves ----------------------------------------------------------------------

    def reclaim(self) -> list[PendingMessage]:
        """Takes back the messages under way, except those on their way to Kafka. Returns them in
        their order.

        The tried ones become refused, the others held.
        """
        found: list[PendingMessage] = []
        if self.trying is not None and not self.on_its_way:
            found = self.refused = self.trying.messages()
            self.refused_number, self.in_doubt = self.trying.sequence, self.trying.in_doubt
            self.trying = None
        untried: list[PendingMessage] = []
        while self._first() is not None:
            untried += self._next().messages()
        self.held.extendleft(reversed(untried))
        self.appended = self.reported + (self.trying.count if self.trying is not None else 0)
        return found + untried

    def step(self, layout: TopicLayout) -> Step:
        """Returns the next step, as far as that layout tells."""
        if self.open or self.outstanding or self.resolving:
            return Step.NOTHING
        is_current = self.incarnation == layout.incarnation
        segment_id = self.segment.segment_id
        if is_current and not layout.is_leaving(segment_id):
            return Step.NOTHING  # refused before we know why
        # Only this leader is known to refuse. Others' writers may have put a key of ours into any
        # partition of an adopted topic, which itself takes messages again only once all refuse.
        is_enough = (
            self.copies == 1 and not self.segment.info.is_legacy and not layout.is_being_given_back
        )
        if is_current and not is_enough and not layout.is_sealed(segment_id):
            return Step.NOTHING
        if not self.in_doubt:
            return Step.MOVE
        part = layout.segments.get(segment_id)
        if part is None or not is_current or layout.deleted:
            return Step.GIVE_UP
        return Step.RESOLVE if part.info.end_offsets else Step.NOTHING

    def resolved(self, is_stored: bool) -> list[PendingMessage]:
        """Notes that the sealed segment has the refused messages, or none.
        Returns those that it has.
        """
        there = self.refused if is_stored else []
        if is_stored:
            self.refused = []
        self.in_doubt = self.resolving = False
        return there

    def fail_refused(self) -> list[PendingMessage]:
        """Gives up the refused messages and returns them. Held messages can go on."""
        lost, self.refused = self.refused, []
        if self.in_doubt:
            self.forget_id()
        self.in_doubt = self.resolving = False
        return lost


def _as_bytes(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else bytes(key)
