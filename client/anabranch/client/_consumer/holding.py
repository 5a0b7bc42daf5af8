"""`Holding`, the life of one bucket in a consumer's hands: pure decisions, no I/O, no clock."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from anabranch.client._consumer.assignment import Fetch, Partition, SegmentBucket
from anabranch.client._consumer.gaps import Done, Gaps
from anabranch.client._consumer.lives import Lives


class Phase(enum.Enum):
    """The life of a holding, in this order. It may skip steps, and may go back from SETTLING."""

    SERVING = "SERVING"
    SETTLING = "SETTLING"
    RELEASED = "RELEASED"
    LOST = "LOST"


class Loss(enum.Enum):
    """The reason why a bucket is given up or lost, with the remedy if its messages are delivered
    again.
    """

    NOT_HELD = "this consumer does not have it; acknowledge only what it has received"
    SETTLE_TIMEOUT = (
        "another consumer was to have it, and settle_timeout_s was over; acknowledge sooner, or "
        "set no settle_timeout_s"
    )
    LAPSED = (
        "no controller answered for the session time; keep the event loop free (asyncio.to_thread) "
        "and the nodes within reach"
    )
    CLOSED = "this consumer left it; acknowledge before closing, or before the topic is deselected"
    ANEW = (
        "the topic or the subscription was made again, or put elsewhere; go on with what is "
        "received next"
    )
    FENCED = "another process has taken the consumer's name over; give each one its own name"
    FAILED = "the consumer failed; see what it raises, and make another one"


@dataclass(slots=True, eq=False)
class Holding:
    """A bucket from its grant until it is released or lost. Offsets are exclusive ends.

    Its methods take events of the bucket. `ConsumerCore` knows if the session lasts.

    `delivered` is the end of the application's messages. `acknowledged` is the end of those that it
    has done with, and `committed` of those that are never delivered again. All three are None until
    the position is known. Below `reached` Kafka has no undelivered message.

    `gaps` is what is done, where messages are not done in their order. Then `acknowledged` is its
    watermark, and `delivered` the end of what was begun. `done_above` is a committed position, and
    what is done above it. `is_after_lapse`: the same consumer has had it, and its session lapsed.

    `commits_again` is True while the committed end is to be committed once more. `loss` is the
    reason of giving it up or losing it. It calls `listeners` in the step that releases or loses it,
    before anybody hears of that. `held_back` is the start of the first open transaction that stops
    the reading, and the time since which it does. `fence` is greater than that of every consumer
    that had the bucket before.
    """

    place: SegmentBucket
    kafka_topic: str
    end_offset: int | None
    phase: Phase = Phase.SERVING
    fetch: Fetch | None = None
    delivered: int | None = None
    acknowledged: int | None = None
    committed: int | None = None
    commits_again: bool = False
    reached: int = 0
    settle_by: float = math.inf
    drain_told: bool = False
    loss: Loss = Loss.NOT_HELD
    listeners: list[Callable[[], None]] = field(default_factory=list)
    held_back: tuple[int, float] | None = None
    gaps: Gaps | None = None
    done_above: tuple[int, Done] = (0, Done([]))
    is_after_lapse: bool = False
    fence: int = 0

    @property
    def partition(self) -> Partition:
        return self.kafka_topic, self.place.bucket

    @property
    def is_held(self) -> bool:
        """True while the controller must count on this consumer for the bucket."""
        return self.phase in (Phase.SERVING, Phase.SETTLING)

    @property
    def in_flight(self) -> bool:
        """True if a delivered message is not acknowledged."""
        if self.gaps is not None:
            return bool(self.gaps.running)
        if self.delivered is None or self.acknowledged is None:
            return False
        return self.acknowledged < self.delivered

    def is_committed(self, end: int) -> bool:
        """Returns True if nothing below `end` will be delivered again."""
        return self.committed is not None and end <= self.committed

    @property
    def uncommitted(self) -> bool:
        """True if an acknowledged message is not committed."""
        if self.acknowledged is None or self.committed is None:
            return False
        if self.gaps is not None and not self.gaps.is_saved:
            return True
        return self.committed < self.acknowledged

    @property
    def to_commit(self) -> bool:
        """True if a commit is due.
        A commit after the release would undo those of other consumers.
        """
        return self.uncommitted or (self.commits_again and self.acknowledged is not None)

    @property
    def drained(self) -> bool:
        """True if the segment is sealed and nothing of the bucket will be delivered again."""
        if self.end_offset is None or self.committed is None or self.in_flight:
            return False  # an end may be before what is worked on, where Kafka lost the segment
        return self.committed >= self.end_offset

    @property
    def at_end(self) -> bool:
        """True if the segment is sealed and the application has done with all of the bucket."""
        if self.end_offset is None or self.acknowledged is None:
            return False
        return self.acknowledged >= self.end_offset

    @property
    def drain_untold(self) -> bool:
        """True if the controller does not know yet that the bucket is drained."""
        return self.is_held and self.drained and not self.drain_told

    def settled(self, now: float) -> bool:
        """Returns True if it is to be given up and waits only for a commit."""
        return self.phase is Phase.SETTLING and (not self.in_flight or now >= self.settle_by)

    def commit_urgent(self, now: float) -> bool:
        """Returns True if somebody waits for a commit."""
        is_waited_for = self.settled(now) or self.at_end
        if self.gaps is not None and self.gaps.waits:
            is_waited_for = True
        return self.is_held and self.to_commit and is_waited_for

    @property
    def limit(self) -> float:
        """The end of deliveries: messages from here on are not the segment's."""
        return math.inf if self.end_offset is None else self.end_offset

    def begin(self, offset: int) -> None:
        """Notes that reading starts there for the first time. Everything below is committed."""
        if self.delivered is None:
            self.delivered = self.acknowledged = self.committed = offset
            self._skip_removed()

    def deliver(self, end: int) -> None:
        """Notes that the application was given everything below `end`."""
        if self.delivered is not None and end > self.delivered:
            self.delivered = end

    def reach(self, offset: int) -> None:
        """Notes that Kafka has no undelivered message below `offset`."""
        if self.end_offset is not None:
            offset = min(offset, self.end_offset)
        self.reached = max(self.reached, offset)
        if self.gaps is not None:
            self.gaps.reach(offset)
            self._follow(self.gaps)
        self._skip_removed()

    def held_back_s(self, stable_end: int, now: float) -> float:
        """Returns the seconds for which only an open transaction has kept the sealed end from being
        read.

        Kafka returns nothing from `stable_end` on. The first open transaction begins there.
        """
        end, read = self.end_offset, self.delivered
        if end is None or read is None or not stable_end <= read < end:
            self.held_back = None
            return 0.0
        if self.held_back is None or self.held_back[0] != stable_end:
            self.held_back = stable_end, now
        return now - self.held_back[1]

    def acknowledge(self, end: int) -> bool:
        """Notes that the application has done with everything below `end`.
        Returns False if the bucket is lost.
        """
        if not self.is_held or self.acknowledged is None or self.delivered is None:
            return self.is_committed(end)
        self.acknowledged = max(self.acknowledged, min(end, self.delivered))
        if self.end_offset == 0:
            self.committed = self.acknowledged
        self._skip_removed()
        return True

    def work_apart(self) -> Gaps | None:
        """Has its messages done in any order from now on. None: its position is not known yet."""
        if self.gaps is None and self.acknowledged is not None:
            position, done = self.done_above
            is_of_it = position == self.acknowledged
            lives = Lives.after(done.lives, done.suspect) if is_of_it else None
            if lives is not None and self.is_after_lapse:
                lives = Lives.after(max(0, done.lives - 1), None)  # it has not ended
            # Kafka may have removed messages from there on, and the map holds above those. Before
            # there it is of a log that Kafka has lost.
            runs = done.runs if position <= self.acknowledged else ()
            self.gaps = Gaps(self.acknowledged, runs, lives)
            self._follow(self.gaps)
        return self.gaps

    def work_begins(self, offset: int) -> None:
        """Notes that a message is being worked on."""
        if self.gaps is not None:
            self.gaps.start(offset)
            self.deliver(offset + 1)

    def skip(self, start: int, offset: int) -> None:
        """Notes that a message was read that is known, and the part that begins at `start`."""
        if self.gaps is not None:
            self.gaps.skip(start, offset)
            self._follow(self.gaps)

    def finish(self, start: int, offset: int) -> None:
        """Notes that a message is done, and the part of the bucket that begins at `start`."""
        if self.gaps is None:
            return
        if not self.is_held:  # nobody is told of it any more
            self.gaps.give_up(offset)
            return
        self.gaps.finish(start, offset)
        self._follow(self.gaps)

    def give_up(self, offset: int) -> None:
        """Notes that a message is worked on no more, and is not done."""
        if self.gaps is not None:
            self.gaps.give_up(offset)
            if self.is_held:
                self._follow(self.gaps)

    def _follow(self, gaps: Gaps) -> None:
        if self.acknowledged is not None and self.delivered is not None:
            self.acknowledged = max(self.acknowledged, gaps.watermark)
            self.delivered = max(self.delivered, self.acknowledged)
        if self.end_offset == 0:  # Kafka's topic is gone, and takes no commit
            self.committed = self.acknowledged
            gaps.saved = gaps.saving = gaps.version

    def commit(self, end: int) -> bool:
        """Notes that everything below `end` is committed.
        Returns False if the bucket is not held.
        """
        if not self.is_held or self.acknowledged is None or self.committed is None:
            return False
        self.committed = max(self.committed, min(end, self.acknowledged))
        self.commits_again = False
        if self.gaps is not None:
            self.gaps.saved = self.gaps.saving
        return True

    def serve(self, fetch: Fetch | None) -> None:
        """Has it read again, or for the first time. None means that there is nothing to read."""
        if self.gaps is not None and self.phase is Phase.SETTLING:
            self.gaps.begin_life(Lives())
        self.phase, self.settle_by, self.fetch = Phase.SERVING, math.inf, fetch

    def settle(self, by: float, loss: Loss) -> None:
        """Begins to give it up: once all deliveries are acknowledged, or at the time `by`."""
        self.phase, self.settle_by, self.loss = Phase.SETTLING, min(self.settle_by, by), loss

    def release_if_settled(self, now: float) -> None:
        if not self.settled(now):
            return
        if self.gaps is not None:
            self.gaps.leave()
        if not self.to_commit:
            self._end(Phase.RELEASED)

    def end_where_it_began(self) -> None:
        """Ends deliveries at once: the bucket is empty, or was lost with its Kafka topic, which
        takes no commit.

        The application may still work on delivered messages.
        """
        self.serve(None)
        self.begin(0)
        self.committed = self.acknowledged
        self.commits_again = False
        if self.gaps is not None:
            self.gaps.saved = self.gaps.saving = self.gaps.version

    @property
    def is_cut_short(self) -> bool:
        """Returns True if more was delivered than it holds now, because its Kafka topic
        was lost.
        """
        return self.end_offset == 0 and bool(self.delivered)

    def lose(self, loss: Loss) -> None:
        """Notes that another consumer has it, or may soon."""
        if self.is_held:
            self.loss = loss
        self._end(Phase.LOST)

    def _end(self, phase: Phase) -> None:
        self.phase = phase
        listeners, self.listeners = self.listeners, []
        for listener in listeners:
            listener()

    def _skip_removed(self) -> None:
        if self.gaps is not None:
            return
        if self.delivered is not None and not self.in_flight and self.reached > self.delivered:
            self.delivered = self.acknowledged = self.reached


def committed_of(holdings: Iterable[Holding]) -> dict[SegmentBucket, int]:
    """Returns the committed end of each holding that has one."""
    return {each.place: each.committed for each in holdings if each.committed is not None}
