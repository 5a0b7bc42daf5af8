"""`Upkeep`: what a producer does with what takes too long, and with what it has not used for long.

Time-outs. Each message has `delivery_timeout_s` from when it was sent. What is still in our hands
then is simply not sent. What was appended can be given up only together with everything else that
its segment's writer has under way: librdkafka can skip no single message, since Kafka takes the
producer's numbers without a gap. So the other buckets of the segment stop appending for a moment,
and what Kafka acknowledges in it is safe; the rest is given up, outcome unknown. Then the segment
gets a writer that is new to Kafka (`flows`, "renewed"), and what was held meanwhile goes on. So it
does when librdkafka has met an error after which it takes nothing more.

Rest. Kafka forgets an idempotent producer that appends nothing to a partition for a day
(`producer.id.expiration.ms`), so a flow that has rested for an hour begins anew. A writer of which
no flow was used for some minutes is closed, for its threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from anabranch.client.delivery_errors import not_sent
from anabranch.client.errors import ClientError, DeliveryError, UnknownOutcomeError
from anabranch.client.flows import FlowTable, Held
from anabranch.client.segment_writer import Lane, SegmentWriter
from anabranch.client.writer_pool import WriterPool
from anabranch.wire.log import get_logger

LOOK_S: Final = 1.0
_GRACE_S: Final = 0.5
_FORGOTTEN_S: Final = 3_600.0
_UNUSED_S: Final = 300.0
_log = get_logger(__name__)


class Upkeep:
    """`fail` tells a sender; `send_on` appends where the newest layout wants it. Blocks never."""

    def __init__(
        self,
        table: FlowTable[Lane],
        writers: WriterPool,
        patience_s: float,
        fail: Callable[[Held, ClientError], None],
        send_on: Callable[[list[Held]], None],
    ) -> None:
        self.ending: dict[SegmentWriter, float] = {}  # those that give up, and when
        self._table = table
        self._writers = writers
        self._patience_s = patience_s
        self._fail = fail
        self._send_on = send_on

    def look(self, now: float) -> None:
        """To be called every `LOOK_S`."""
        sent_by = now - self._patience_s
        for lane in self._table.flows():
            lane.look(now)
            self._expire(lane, sent_by)
            if lane.resting_since() < now - _FORGOTTEN_S:
                lane.rested()
            if lane.waiting_since() < sent_by or (lane.writer.is_broken and lane.open):
                self._begin(lane, now)
        for lane in list(self._table.leaving):
            if not (lane.outstanding or lane.resolving) and lane.leaving_since < sent_by:
                self._reopen(lane)
        self._rest(now)

    def go_on(self, now: float) -> None:
        """To be called often while there is something in `ending`."""
        sent_by = now - self._patience_s
        for writer, at in list(self.ending.items()):
            if not writer.outstanding:
                del self.ending[writer]
                self._renew(writer)
            elif not writer.given_up and (now >= at or _all_late(writer, sent_by)):
                writer.give_up(f"Kafka did not acknowledge it in {self._patience_s:g} s")

    def _begin(self, lane: Lane, now: float) -> None:
        writer = lane.writer
        if writer in self.ending:
            return
        self.ending[writer] = now + _GRACE_S
        self._writers.replace(writer)
        for each in writer.lanes:
            each.pause()
        _log.warning(
            "producer.gives_up",
            where=lane.where,
            waiting=writer.outstanding,
            trouble=writer.trouble,
        )

    def _renew(self, writer: SegmentWriter) -> None:
        self._writers.replace(writer)
        messages: list[Held] = []
        for lane in self._table.flows():
            if lane.writer is writer and lane.open:
                messages += self._table.renew(lane)
        self._writers.retire(self._table.layout, (lane.writer for lane in self._table.flows()))
        self._send_on(messages)

    def _rest(self, now: float) -> None:
        unused_since = {writer: writer.given_at for writer in self._writers}
        for lane in self._table.flows():
            since = lane.resting_since() if lane.open else math.inf
            unused_since[lane.writer] = max(unused_since[lane.writer], since)
        for writer, since in unused_since.items():
            if since < now - _UNUSED_S:
                self._renew(writer)

    def _expire(self, lane: Lane, sent_by: float) -> None:
        late = [held for held in lane.held if held.since < sent_by]
        if late:
            rest = [held for held in lane.held if held.since >= sent_by]
            lane.held.clear()
            lane.held.extend(rest)
        for held in late:
            self._fail(held, not_sent(lane.where, self._patience_s, lane.writer.trouble))
        if lane.refused and not lane.resolving and lane.refused[0].since < sent_by:
            error = self._refused_error(lane)
            for held in lane.forgo(sum(held.since < sent_by for held in lane.refused)):
                self._fail(held, error)

    def _reopen(self, lane: Lane) -> None:
        """A flow that could not leave in time: no layout says that its segment is sealed."""
        error = self._refused_error(lane)
        for held in lane.fail_refused():
            self._fail(held, error)
        self._send_on(self._table.reopen(lane))

    def _refused_error(self, lane: Lane) -> DeliveryError:
        kind = UnknownOutcomeError if lane.in_doubt else DeliveryError
        return kind(
            f"Kafka refused messages to {lane.where} as too large, but in {self._patience_s:g} s "
            "no node said that the segment is sealed: check the topic's max.message.bytes and the "
            f"nodes{'; a message may have been stored before' if lane.in_doubt else ''}"
        )


def _all_late(writer: SegmentWriter, sent_by: float) -> bool:
    return all(lane.waiting_since() < sent_by for lane in writer.lanes if lane.outstanding)
