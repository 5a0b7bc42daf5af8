"""How full a producer's batches are (seed 002, "Metrics"): from librdkafka's statistics.

librdkafka counts the batches of a topic, not of its partitions, so a producer that is asked for
them has a librdkafka producer for each bucket, as it has anyway where Kafka has several brokers.
"""

from __future__ import annotations

import msgspec


class BatchStats(msgspec.Struct, frozen=True):
    """Of the batches that a producer wrote to a bucket.

    `buckets`: which one; several where the segment has more than 8, which share their producers.
    `bytes`: of the batches as they are stored, so compressed; `bytes_max`: how large one may be.
    What librdkafka had to write again counts again.
    """

    segment_id: int
    buckets: tuple[int, ...]
    batches: int
    messages: int
    bytes: int
    bytes_max: int

    @property
    def mean_messages(self) -> float:
        """Messages of a batch; 0 when there was none."""
        return self.messages / self.batches if self.batches else 0.0

    @property
    def mean_bytes(self) -> float:
        """Bytes of a batch; 0 when there was none."""
        return self.bytes / self.batches if self.batches else 0.0

    @property
    def fill_ratio(self) -> float:
        """Bytes of a batch as a part of what it may have, 0 to about 1."""
        return self.mean_bytes / self.bytes_max


class _Window(msgspec.Struct):
    """Since the statistics before."""

    sum: int
    cnt: int


class _Topic(msgspec.Struct):
    batchsize: _Window
    batchcnt: _Window


class _Statistics(msgspec.Struct):
    topics: dict[str, _Topic]


_DECODER = msgspec.json.Decoder(_Statistics)


class BatchCount:
    """Adds up what librdkafka says of one producer, each time."""

    def __init__(self) -> None:
        self.batches = 0
        self.messages = 0
        self.bytes = 0

    def take(self, statistics: str) -> None:
        """The next statistics, JSON."""
        for topic in _DECODER.decode(statistics).topics.values():
            self.batches += topic.batchcnt.cnt
            self.messages += topic.batchcnt.sum
            self.bytes += topic.batchsize.sum
