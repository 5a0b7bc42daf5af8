"""`Upkeep`: what a producer does with what takes too long, and with what it has not used for long.

Time-outs. Each message has `delivery_timeout_s` from when it was sent. What is still in our hands
then is simply not sent. What was appended can be given up only together with everything else that
its segment's writer has under way: librdkafka can skip no single message, since Kafka takes the
producer's numbers without a gap. So the other buckets of the segment stop appending for a moment,
and what Kafka acknowledges in it is safe; the rest is given up, outcome unknown. Then the segment
gets a writer that is new to Kafka (`sender`, "renewed"), and what was held meanwhile goes on. So it
does when librdkafka has met an error after which it takes nothing more.

Rest. Kafka forgets an idempotent producer that appends nothing to a partition for a day
(`producer.id.expiration.ms`), so a partition writer that has rested for an hour begins anew. A
segment's writer that nothing was sent through for some minutes is closed, for its threads.
"""

from __future__ import annotations

import math
from typing import Final

from anabranch.client._producer.kafka_writer import KafkaPartitionWriter
from anabranch.client._producer.partition_writer import PendingMessage
from anabranch.client._producer.segment_writer import SegmentWriter
from anabranch.client._producer.sender import Sender
from anabranch.client._producer.writer_pool import WriterPool
from anabranch.wire.logging import get_logger

LOOK_S: Final = 1.0
_GRACE_S: Final = 0.5
_FORGOTTEN_S: Final = 3_600.0
_UNUSED_S: Final = 300.0
_log = get_logger(__name__)


class Upkeep:
    """Of one sender, whose messages are given up after `patience_s`. Blocks never."""

    def __init__(
        self, sender: Sender[KafkaPartitionWriter], writers: WriterPool, patience_s: float
    ) -> None:
        self.ending: dict[SegmentWriter, float] = {}  # those that give up, and when
        self._sender = sender
        self._router = sender.router
        self._writers = writers
        self._patience_s = patience_s

    def look(self, now: float) -> None:
        """To be called every `LOOK_S`."""
        sent_by = now - self._patience_s
        for partition in self._router.writers():
            partition.look(now)
            self._sender.expire(partition, now)
            if partition.resting_since() < now - _FORGOTTEN_S:
                partition.rested()
            if partition.waiting_since() < sent_by or (
                partition.segment_writer.is_broken and partition.open
            ):
                self._begin(partition, now)
        self._sender.reopen(now)
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

    def _begin(self, partition: KafkaPartitionWriter, now: float) -> None:
        writer = partition.segment_writer
        if writer in self.ending:
            return
        self.ending[writer] = now + _GRACE_S
        self._writers.replace(writer)
        for each in writer.partitions:
            each.pause()
        _log.warning(
            "producer.gives_up",
            where=partition.where,
            waiting=writer.outstanding,
            trouble=writer.trouble,
        )

    def _renew(self, writer: SegmentWriter) -> None:
        self._writers.replace(writer)
        messages: list[PendingMessage] = []
        for partition in self._router.writers():
            if partition.segment_writer is writer and partition.open:
                messages += self._router.renew(partition)
        self._writers.retire(
            self._router.layout, (partition.segment_writer for partition in self._router.writers())
        )
        self._sender.send_on(messages)

    def _rest(self, now: float) -> None:
        unused_since = {writer: writer.given_at for writer in self._writers}
        for partition in self._router.writers():
            since = partition.resting_since() if partition.open else math.inf
            unused_since[partition.segment_writer] = max(
                unused_since[partition.segment_writer], since
            )
        for writer, since in unused_since.items():
            if since < now - _UNUSED_S:
                self._renew(writer)


def _all_late(writer: SegmentWriter, sent_by: float) -> bool:
    return all(
        partition.waiting_since() < sent_by
        for partition in writer.partitions
        if partition.outstanding
    )
