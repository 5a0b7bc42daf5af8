"""`Sender`: where each of a producer's messages is appended, and what becomes of it. Pure: no I/O.

Its shell tells it what happened: what is sent, what Kafka reports, layouts, the time; then it calls
`advance`. What is to be done about it the sender asks of its `Effects`. Producers and their
simulation are shells of this one.

What one producer appends to one bucket of one segment is a `PartitionWriter`. It leaves, once and
for ever, when its partition is known to refuse appends: because Kafka has refused one of ours, or
because a layout says that the segment is sealed, which is logged when all its partitions refuse.
That sealing is announced is no reason. A bucket that refuses does so for everybody and for good, so
what is appended to a child comes after whatever anybody was told is in the parent: **acknowledged
before another one was sent comes first, whoever sent them**. So a producer that begins while
sealing is under way begins in the parent, too. Where a bucket has several copies, it is its leader
that refuses, and the next one may not yet; then the layout that says so is waited for.

From Kafka's refusal to the child, in the order of the methods of `Sender`:

1. `refused`: what is sent to the writer from now on is *held*;
2. `advance`: what is under way is waited for: each append is either acknowledged or refused. Kafka
   refuses everything once it refuses something, so what is refused is a suffix. Its reports come in
   any order, and are put in that of sending (`PartitionWriter.put_in_order`);
3. `resolved`: if a refused append may have been tried more than once, an earlier try may have
   succeeded without our knowing. Then the writer is *in doubt*, and Kafka is asked how many
   messages of this producer the sealed partition holds (`settlement`). An idempotent producer's
   appends to a partition succeed in order, so those it holds beyond the acknowledged ones are the
   first ones refused;
4. `_leave`, with copies once the segment is sealed: what is left of the refused ones, then what was
   held, is sent on, each key to where the newest layout wants it (`Router`): a child under way or
   an active segment, whose own writer may be leaving as well, and then holds it in its turn.

A message whose time is up is *given up*, its outcome unknown if it was appended. From then on the
writer cannot tell any more which of its numbers are whose: it is *renewed*, that is, replaced by
another one for the same bucket through a producer that is new to Kafka (`writer_pool`).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol

from anabranch.client._errors import (
    ClientError,
    DeliveryError,
    SegmentMissingError,
    TopicNotFoundError,
    UnknownOutcomeError,
)
from anabranch.client._producer.partition_writer import PartitionWriter, PendingMessage, Step
from anabranch.client._producer.router import Router, WriterT
from anabranch.client._topics.layout import Segment, TopicLayout
from anabranch.core.errors import UncoveredHashError


class Effects(Protocol[WriterT]):
    """What a sender has done."""

    def make(self, incarnation: int, segment: Segment, bucket: int) -> WriterT:
        """A writer for a bucket. Raises DeliveryError when there can be none."""

    def append(self, writer: WriterT, message: PendingMessage) -> bool:
        """Hands the message to Kafka's client and counts it (`PartitionWriter.sent`); False if that
        takes nothing more: the message is held then.

        Raises ClientError when this message cannot be appended.
        """

    def resolve(self, writer: WriterT) -> None:
        """Asks Kafka which of the refused messages the sealed partition holds, to tell `resolved`
        or `unresolved`.
        """

    def stored(
        self, writer: WriterT, message: PendingMessage, offset: int, timestamp_ms: int
    ) -> None:
        """A message that had been in doubt is in the sealed partition."""

    def failed(self, message: PendingMessage, error: ClientError) -> None:
        """The message is given up."""

    def moved(self, writer: WriterT, messages: Sequence[PendingMessage]) -> None:
        """The writer was left; these messages are sent on now."""


class Sender(Generic[WriterT]):
    """Of one producer, of messages that are given up after `patience_s`."""

    def __init__(self, layout: TopicLayout, effects: Effects[WriterT], patience_s: float) -> None:
        self.router = Router(layout, effects.make)
        self._effects = effects
        self._patience_s = patience_s
        self._barriers: list[Barrier] = []  # at which somebody waits
        self._opening: list[WriterT] = []  # whose first append is under way

    # --- what is sent ---------------------------------------------------------------------

    def send(self, message: PendingMessage) -> None:
        """Appends a message, or holds it while its bucket is moving.

        Raises DeliveryError when there is nothing to append it by, UncoveredHashError.
        """
        self.append(message, self.router.route(message.key))

    def append(self, message: PendingMessage, writer: WriterT) -> None:
        """The same, by the writer that the message was routed to."""
        if writer.lost:
            self.fail(message, SegmentMissingError(writer.lost))
            return
        if not writer.may_append:
            writer.held.append(message)
            return
        if not writer.proven:
            self._opening.append(writer)
        try:
            is_taken = self._effects.append(writer, message)
        except ClientError as error:
            self.fail(message, error)
            return
        if is_taken:
            for barrier in self._barriers:
                barrier.appended(message, writer)
        else:
            writer.held.append(message)

    def append_held(self, writer: WriterT) -> None:
        """Appends what the writer held, if it is open."""
        if writer.open:
            messages = list(writer.held)
            writer.held.clear()
            for message in messages:
                self.append(message, writer)

    def send_on(self, messages: Iterable[PendingMessage]) -> None:
        """Appends messages that were taken before where the newest layout wants them."""
        for message in messages:
            try:
                self.send(message)
            except DeliveryError as error:
                self.fail(message, error)
            except UncoveredHashError as error:  # whoever sent it cannot be raised to any more
                self.fail(message, DeliveryError(str(error)))

    # --- what happens -----------------------------------------------------------------------

    def update(self, layout: TopicLayout, now: float) -> None:
        """A newer layout is known."""
        for writer in self.router.update(layout):
            writer.leaving_since = now
        if layout.deleted:
            self.router.routes.clear()

    def fail(self, message: PendingMessage, error: ClientError) -> None:
        """The message is given up."""
        self._done(message)
        self._effects.failed(message, error)

    def refused(self, writer: WriterT, message: PendingMessage, in_doubt: bool, now: float) -> None:
        """Kafka refused an append as it does when the partition is sealed; the writer begins to
        leave. `in_doubt` unless it was tried only once.
        """
        writer.was_refused(message, in_doubt)
        for barrier in self._barriers:
            barrier.refused(message, writer)
        if writer.open:
            writer.leaving_since = now
            self.router.close(writer)

    def advance(self) -> None:
        """Takes the steps that are due after whatever happened."""
        if self._opening:
            self._open_up()
        layout = self.router.layout
        for writer in list(self.router.leaving):
            if not writer.outstanding:
                writer.put_in_order()
            match writer.step(layout):
                case Step.MOVE:
                    self._leave(writer)
                case Step.RESOLVE:
                    writer.resolving = True
                    self._effects.resolve(writer)
                case Step.GIVE_UP:
                    self._fail_in_doubt(writer, "is gone")
                    self._leave(writer)

    def resolved(self, writer: WriterT, found: Sequence[tuple[int, int]]) -> None:
        """The sealed partition holds the first ones of the refused messages, with these offsets and
        times.
        """
        there = writer.resolved(len(found))
        for message, (offset, timestamp_ms) in zip(there, found, strict=True):
            self._done(message)
            self._effects.stored(writer, message, offset, timestamp_ms)

    def unresolved(self, writer: WriterT, why: str) -> None:
        """What the sealed partition holds stays unknown."""
        self._fail_in_doubt(writer, f"not known: {why}")

    def _leave(self, writer: WriterT) -> None:
        messages, layout = self.router.leave(writer), self.router.layout
        if layout.deleted:
            self._fail_all(messages, self.gone())
        else:
            self._effects.moved(writer, messages)
            self.send_on(messages)

    def _open_up(self) -> None:
        """Appends what was held for the first append of a writer, once that is reported."""
        opening, self._opening = self._opening, []
        for writer in opening:
            if writer.outstanding and not writer.proven:
                self._opening.append(writer)
            else:
                self.append_held(writer)

    def gone(self) -> TopicNotFoundError:
        """The error for a message to a topic that was deleted."""
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

    def expire(self, writer: WriterT, now: float) -> None:
        """Gives up what the writer has had in hand for too long."""
        sent_by = writer.sent_by(now, self._patience_s)
        late = [message for message in writer.held if message.since < sent_by]
        if late:
            rest = [message for message in writer.held if message.since >= sent_by]
            writer.held.clear()
            writer.held.extend(rest)
        cause = writer.throttling(now, self._patience_s)
        cause += f"; the last trouble with Kafka: {writer.trouble}" if writer.trouble else ""
        for message in late:
            why = f"a message to {writer.where} could not be sent in {self._patience_s:g} s{cause}"
            self.fail(message, DeliveryError(why))
        writer.put_in_order()
        if writer.refused and not writer.resolving and writer.refused[0].since < sent_by:
            error = self._not_sealed(writer)
            self._fail_all(
                writer.forgo(sum(message.since < sent_by for message in writer.refused)), error
            )

    def reopen(self, now: float) -> None:
        """Lets writers go on that could not leave in time: no layout says that they must."""
        for writer in list(self.router.leaving):
            is_waiting = writer.outstanding or writer.resolving
            if not is_waiting and writer.leaving_since < now - self._patience_s:
                error = self._not_sealed(writer)
                self._fail_all(writer.fail_refused(), error)
                self.send_on(self.router.reopen(writer))

    def _not_sealed(self, writer: WriterT) -> DeliveryError:
        """The error for refused messages when no layout says that their segment is sealed."""
        kind = UnknownOutcomeError if writer.in_doubt else DeliveryError
        return kind(
            f"Kafka refused messages to {writer.where} as too large, but in {self._patience_s:g} s "
            "no node said that the segment is sealed: check the topic's max.message.bytes and the "
            f"nodes{'; a message may have been stored before' if writer.in_doubt else ''}"
        )

    def close(self) -> None:
        """Gives up all that is in hand."""
        closed = DeliveryError(
            f"a message to topic://{self.router.layout.topic} was not sent: the producer was "
            "closed; send it by another one"
        )
        for writer in list(self.router.leaving):
            self._fail_in_doubt(writer, "was not read yet")
            self._fail_all(self.router.leave(writer), closed)
        for writer in self.router.writers():
            self._fail_all(self.router.renew(writer), closed)

    # --- what waits for it ----------------------------------------------------------------------

    @contextmanager
    def barrier(self) -> Iterator[Barrier]:
        """Tells what of all that was sent until now is not settled, as long as somebody waits."""
        barrier = Barrier(self.router.writers())
        self._barriers.append(barrier)
        try:
            yield barrier
        finally:
            self._barriers.remove(barrier)

    def _done(self, message: PendingMessage) -> None:
        for barrier in self._barriers:
            barrier.done(message)


class Barrier:
    """What was sent before a moment and is not settled, for `flush`.

    Made at that moment, of all writers that have not been left. What is stored is reported in the
    order of the appends. So of what is under way a count for each writer tells, and the hot path
    has nothing to note. What is held or refused is known one by one; it is followed to the writer
    that it is appended to. What is refused, or given up, is reported in any order, but then the
    writer is closed, or paused: nothing new comes after it, and all that it has under way is waited
    for.
    """

    def __init__(self, writers: Iterable[PartitionWriter]) -> None:
        writers = list(writers)
        self._before = {writer: writer.appended for writer in writers if writer.outstanding}
        self._held = {held for writer in writers for held in (*writer.refused, *writer.held)}
        # Of what was held then, the numbers of its appends, ascending.
        self._followed: defaultdict[PartitionWriter, deque[int]] = defaultdict(deque)
        self._closing: set[PartitionWriter] = set()  # writers of these that refuse

    @property
    def left(self) -> int:
        """How many are not settled."""
        return len(self._held) + sum(
            self._left(writer) for writer in {**self._before, **self._followed}
        )

    def appended(self, held: PendingMessage, writer: PartitionWriter) -> None:
        """A message that was in our hands is the newest append of that writer."""
        if held in self._held:
            self._held.remove(held)
            if writer in self._closing:  # it was opened again, with nothing under way
                self._closing.remove(writer)
                self._before.pop(writer, None)
                self._followed[writer].clear()
            self._followed[writer].append(writer.appended)

    def refused(self, held: PendingMessage, writer: PartitionWriter) -> None:
        """The newest report of that writer refused a message, which is in our hands again."""
        followed = self._followed[writer]
        newest = max(self._before.get(writer, 0), followed[-1] if followed else 0)
        if writer.reported <= newest:
            self._closing.add(writer)
        if writer in self._closing or (writer.paused and newest):
            self._held.add(held)

    def done(self, held: PendingMessage) -> None:
        """What was in our hands needs no append any more."""
        self._held.discard(held)

    def _left(self, writer: PartitionWriter) -> int:
        if writer.paused or writer in self._closing:
            return writer.outstanding
        followed = self._followed[writer]
        while followed and followed[0] <= writer.reported:
            followed.popleft()
        return max(0, self._before.get(writer, 0) - writer.reported) + len(followed)
