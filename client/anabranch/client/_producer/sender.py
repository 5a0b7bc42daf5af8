"""`Sender`: decides the place of each of a producer's messages, and its result. Pure: no I/O.

Its shell tells it the events: sent messages, Kafka's reports, layouts, the time. Then the shell
calls `advance`. The sender acts through its `Effects`. Producers and their simulation are shells of
it.

A `PartitionWriter` has the appends of one producer to one bucket of one segment. It leaves, once
and for ever, when its partition is known to refuse appends: Kafka has refused one of ours, or a
layout shows the segment as sealed. The log has that only after all its partitions refuse.

An announced sealing is no reason to leave. A bucket that refuses does so for everybody and for
good. So an append to a child comes after everything in the parent that anybody was told of:
**acknowledged before another one was sent comes first, whoever sent them**. So a producer that
begins during a sealing begins in the parent, too. If a bucket has several copies, its leader
refuses, and the next leader may not yet. Then the sender waits for the layout that shows the
segment as sealed.

The steps from Kafka's refusal to the child are, in the order of the methods of `Sender`:

1. `refused`: the refused batch is put aside. Messages behind it, and later ones, are *held*;
2. `resolved`: an earlier, unanswered try may have stored the batch. Then the writer is *in doubt*,
   and asks the leader of the sealed segment for the number of this producer's last message. Numbers
   have no gap, and a batch is stored as a whole, so the answer is exact;
3. `_leave`, with copies once the segment is sealed: the rest of the refused messages, then the held
   ones, are sent on. The newest layout decides each key's place (`Router`): a child under way or an
   active segment, whose own writer may be leaving as well, and then holds it in its turn.

A batch whose time is up is *given up*, and its outcome is unknown if it was tried. Then its bucket
goes on under another producer id, because a number is missing, or may be.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol

from anabranch.client._errors import (
    ClientError,
    DeliveryError,
    MessageTooLargeError,
    SegmentMissingError,
    TopicNotFoundError,
    UnknownOutcomeError,
)
from anabranch.client._producer.batch import PendingMessage, bytes_of
from anabranch.client._producer.partition_writer import PartitionWriter, Step
from anabranch.client._producer.router import Router, WriterT
from anabranch.client._topics.layout import Segment, TopicLayout
from anabranch.core.errors import UncoveredHashError


class Effects(Protocol[WriterT]):
    """The actions that a sender asks for."""

    def make(self, incarnation: int, segment: Segment, bucket: int) -> WriterT:
        """Makes a writer for a bucket."""

    def begun(self, writer: WriterT) -> None:
        """Notes that a new batch of the writer has its first message."""

    def resolve(self, writer: WriterT) -> None:
        """Asks Kafka if the sealed partition holds the refused messages, and later calls `resolved`
        or `unresolved`.
        """

    def stored(self, writer: WriterT, message: PendingMessage) -> None:
        """Notes that a message that was in doubt is in the sealed partition."""

    def failed(self, message: PendingMessage, error: ClientError) -> None:
        """Notes that the message is given up."""

    def moved(self, writer: WriterT, messages: Sequence[PendingMessage]) -> None:
        """Notes that the writer was left, and that these messages are sent on now."""


class Sender(Generic[WriterT]):
    """The decisions of one producer. It gives messages up after `patience_s` seconds.

    `late_before` returns, for a time, the time of sending before which messages are late.
    `batch_span_s` bounds the seconds from the first message of a batch to its last.
    """

    def __init__(
        self,
        layout: TopicLayout,
        effects: Effects[WriterT],
        patience_s: float,
        late_before: Callable[[float], float] | None = None,
        batch_span_s: float = 0.0,
    ) -> None:
        self.router = Router(layout, effects.make)
        self._effects = effects
        self._patience_s = patience_s
        self._late_before = late_before or (lambda now: now - patience_s)
        self._batch_span_s = batch_span_s
        self._barriers: list[Barrier] = []  # at which somebody waits

    # --- what is sent ---------------------------------------------------------------------

    def send(self, message: PendingMessage) -> None:
        """Appends a message, or holds it while its bucket is moving. Raises UncoveredHashError."""
        self.append(message, self.router.route(message.key))

    def append(self, message: PendingMessage, writer: WriterT) -> None:
        """Appends or holds a message by the writer that it was routed to."""
        if writer.lost:
            self.fail(message, SegmentMissingError(writer.lost))
        elif not writer.open:
            writer.held.append(message)
        else:
            waited_for = message if message.on_delivery is not None else None
            begins = writer.append(
                message.key, message.value, message.timestamp_ms, list(message.headers), waited_for
            )
            for barrier in self._barriers:
                barrier.appended(message, writer)
            if writer.filling is not None and message.since:
                writer.filling.since = min(writer.filling.since or message.since, message.since)
            if begins:
                self._effects.begun(writer)

    def send_on(self, messages: Iterable[PendingMessage]) -> None:
        """Appends messages that were taken before, at the places of the newest layout.

        An adopted topic may take less than what they were taken for.
        """
        layout = self.router.layout
        for message in messages:
            size = 0
            if layout.is_adopted:
                size = bytes_of(message.key, message.value, message.headers)
            if size > layout.max_message_bytes:
                self.fail(message, MessageTooLargeError(_too_large(layout, size)))
                continue
            try:
                self.send(message)
            except UncoveredHashError as error:  # its sender does not wait in this call any more
                self.fail(message, DeliveryError(str(error)))

    # --- what happens -----------------------------------------------------------------------

    def update(self, layout: TopicLayout, now: float) -> None:
        """Takes a newer layout."""
        for writer in self.router.update(layout):
            writer.leaving_since = now
            self._reclaim(writer)
        if layout.deleted:
            self.router.routes.clear()
            for writer in self.router.writers():
                if writer.trying is not None:
                    self._fail_all(writer.drop_tried().messages(), self.gone())

    def fail(self, message: PendingMessage, error: ClientError) -> None:
        """Gives up the message."""
        for barrier in self._barriers:
            barrier.done(message)
        self._effects.failed(message, error)

    def refused(self, writer: WriterT, now: float) -> None:
        """Notes that Kafka refused the batch as a sealed partition does.
        The writer begins to leave.
        """
        writer.unanswered(in_doubt=False)
        self._reclaim(writer)
        if writer.open:
            writer.leaving_since = now
            self.router.close(writer)

    def unanswered(self, writer: WriterT, in_doubt: bool) -> None:
        """Notes that Kafka did not take the batch, or may have. An open writer tries it again."""
        writer.unanswered(in_doubt)
        if not writer.open:  # its segment is sealed, so nothing that is tried from now on is stored
            self._reclaim(writer)

    def _reclaim(self, writer: WriterT) -> None:
        first = writer.reported + 1
        if writer.on_its_way and writer.trying is not None:
            first += writer.trying.count
        messages = writer.reclaim()
        for barrier in self._barriers:
            barrier.reclaimed(writer, first, messages)

    def advance(self) -> None:
        """Takes the steps that are due after the last events."""
        layout = self.router.layout
        for writer in list(self.router.leaving):
            match writer.step(layout):
                case Step.MOVE:
                    self._leave(writer)
                case Step.RESOLVE:
                    writer.resolving = True
                    self._effects.resolve(writer)
                case Step.GIVE_UP:
                    self._fail_in_doubt(writer, "is gone")
                    self._leave(writer)

    def resolved(self, writer: WriterT, is_stored: bool) -> None:
        """Notes that the sealed partition has all the refused messages, or none of them."""
        for message in writer.resolved(is_stored):
            for barrier in self._barriers:
                barrier.done(message)
            self._effects.stored(writer, message)

    def unresolved(self, writer: WriterT, why: str) -> None:
        """Notes that the content of the sealed partition stays unknown."""
        self._fail_in_doubt(writer, f"not known: {why}")

    def _leave(self, writer: WriterT) -> None:
        messages, layout = self.router.leave(writer), self.router.layout
        if layout.deleted:
            self._fail_all(messages, self.gone())
        else:
            self._effects.moved(writer, messages)
            self.send_on(messages)

    def gone(self) -> TopicNotFoundError:
        """Returns the error for a message to a topic that was deleted."""
        return TopicNotFoundError(
            f"topic://{self.router.layout.topic} was deleted: create it, or send elsewhere"
        )

    def _fail_in_doubt(self, writer: WriterT, why: str) -> None:
        error = UnknownOutcomeError(
            f"a message to {writer.where} may or may not be there; the segment is sealed and "
            f"{why}. Look for it before you send it again"
        )
        self._fail_all(writer.fail_refused(), error)

    def _fail_all(self, messages: Iterable[PendingMessage], error: ClientError) -> None:
        for message in messages:
            self.fail(message, error)

    # --- what takes too long ------------------------------------------------------------------

    def expire(self, now: float, cause: str) -> None:
        """Gives up messages that were in hand for too long. `cause` is the end of a sentence."""
        sent_by = self._late_before(now)
        begun_by = sent_by - self._batch_span_s
        for writer in self.router.writers():
            since = writer.waiting_since
            if writer.held or writer.refused or (since is not None and since < begun_by):
                self._expire(writer, sent_by, begun_by, cause)

    def _expire(self, writer: WriterT, sent_by: float, begun_by: float, cause: str) -> None:
        why = f"in {self._patience_s:g} s{cause}"
        error = DeliveryError(f"a message to {writer.where} could not be sent {why}")
        trying = writer.trying
        if trying is not None and trying.since < begun_by:
            self._fail_tried(writer, f"Kafka did not acknowledge it {why}", error)
        late = [message for batch in writer.drop_untried(begun_by) for message in batch.messages()]
        held = list(writer.held)
        writer.held.clear()
        writer.held.extend(message for message in held if message.since >= sent_by)
        late += [message for message in held if message.since < sent_by]
        self._fail_all(late, error)
        if writer.refused and not writer.resolving and writer.refused[0].since < sent_by:
            error = self._not_sealed(writer)
            self._fail_all(writer.fail_refused(), error)

    def give_up(self, writer: WriterT, why: str, error: ClientError) -> None:
        """Gives up all that the writer has under way, with `error`.
        Messages in doubt get an error of their own.
        """
        if writer.trying is not None:
            self._fail_tried(writer, why, error)
        for batch in writer.drop_untried(math.inf):
            self._fail_all(batch.messages(), error)

    def reject(self, writer: WriterT, why: str) -> None:
        """Notes that Kafka will never take the batch that was tried, for that reason."""
        writer.unanswered(in_doubt=False)
        self._fail_tried(writer, why, DeliveryError(f"a message to {writer.where}: {why}"))
        if not writer.open:
            self._reclaim(writer)

    def _fail_tried(self, writer: WriterT, why: str, error: ClientError) -> None:
        """Gives up the tried batch, with `error` if Kafka cannot have it."""
        batch = writer.drop_tried()
        if batch.in_doubt:
            error = UnknownOutcomeError(
                f"a message to {writer.where}: {why}; Kafka may have it or get it, so look before "
                "you send it again"
            )
        self._fail_all(batch.messages(), error)

    def reopen(self, now: float) -> None:
        """Lets writers go on that could not leave in time, because no layout asks them to."""
        for writer in list(self.router.leaving):
            is_waiting = writer.outstanding or writer.resolving
            if not is_waiting and writer.leaving_since < now - self._patience_s:
                error = self._not_sealed(writer)
                self._fail_all(writer.fail_refused(), error)
                self.send_on(self.router.reopen(writer))

    def _not_sealed(self, writer: WriterT) -> DeliveryError:
        """Returns the error for refused messages of a segment that no layout shows as sealed."""
        kind = UnknownOutcomeError if writer.in_doubt else DeliveryError
        return kind(
            f"Kafka refused messages to {writer.where} as too large, but in {self._patience_s:g} s "
            "no node said that the segment is sealed: check the topic's max.message.bytes and the "
            f"nodes{'; a message may have been stored before' if writer.in_doubt else ''}"
        )

    def close(self, why: str, error: DeliveryError | None = None) -> None:
        """Gives up all that is in hand, with that error, since the producer ends."""
        closed = error or DeliveryError(
            f"a message to topic://{self.router.layout.topic} was not sent: {why}; send it by "
            "another one"
        )
        for writer in self.router.writers():
            self.give_up(writer, why, closed)
        for writer in list(self.router.leaving):
            if writer.in_doubt:
                self._fail_in_doubt(writer, "was not asked yet")
            self._fail_all(self.router.leave(writer), closed)
        for writer in self.router.writers():
            held = list(writer.held)
            writer.held.clear()
            self._fail_all(held, closed)

    # --- what waits for it ----------------------------------------------------------------------

    @contextmanager
    def barrier(self) -> Iterator[Barrier]:
        """Follows all unsettled messages that were sent until now, as long as somebody waits."""
        barrier = Barrier(self.router.writers())
        self._barriers.append(barrier)
        try:
            yield barrier
        finally:
            self._barriers.remove(barrier)


def _too_large(layout: TopicLayout, size: int) -> str:
    return (
        f"a message of {size} bytes is larger than topic://{layout.topic} takes since its Kafka "
        f"topic was given back, {layout.max_message_bytes} bytes: make it smaller"
    )


class Barrier:
    """The messages that were sent before a moment and are not settled, for `flush`.

    It is made at that moment, from all writers that have not been left. A writer's appends are
    answered in their order. So a count for each writer covers the messages under way, and the hot
    path has nothing to note. Messages in our hands are known one by one, and followed to the writer
    that takes them.
    """

    def __init__(self, writers: Iterable[PartitionWriter]) -> None:
        writers = list(writers)
        self._before = {writer: writer.appended for writer in writers if writer.outstanding}
        self._held = {held for writer in writers for held in (*writer.refused, *writer.held)}
        # The numbers of the appends of messages that were in our hands then, ascending.
        self._followed: defaultdict[PartitionWriter, deque[int]] = defaultdict(deque)

    @property
    def left(self) -> int:
        """Returns the number of messages that are not settled."""
        return len(self._held) + sum(
            self._left(writer) for writer in {**self._before, **self._followed}
        )

    def appended(self, held: PendingMessage, writer: PartitionWriter) -> None:
        """Notes that a message that was in our hands is the newest append of that writer."""
        if held in self._held:
            self._held.remove(held)
            self._followed[writer].append(writer.appended)

    def reclaimed(
        self, writer: PartitionWriter, first: int, messages: Sequence[PendingMessage]
    ) -> None:
        """Notes that the writer's appends from that number on are in our hands again."""
        before, followed = self._before.get(writer, 0), self._followed.get(writer, ())
        for number, message in enumerate(messages, first):
            if number <= before or number in followed:
                self._held.add(message)
        if writer in self._before:
            self._before[writer] = min(before, writer.appended)
        if followed:
            self._followed[writer] = deque(each for each in followed if each < first)

    def done(self, held: PendingMessage) -> None:
        """Notes that a message that was in our hands needs no append any more."""
        self._held.discard(held)

    def _left(self, writer: PartitionWriter) -> int:
        followed = self._followed[writer]
        while followed and followed[0] <= writer.reported:
            followed.popleft()
        return max(0, self._before.get(writer, 0) - writer.reported) + len(followed)
