"""A layout watch that asks no node: for a producer of a topic whose layout does not change."""

from __future__ import annotations

from typing import NoReturn

from anabranch.client import LayoutWatch, Producer, ProducerSettings, Segment, TopicLayout
from anabranch.client._topics.nodes import Nodes
from anabranch.core.topics.layout import SegmentLayout


class StillWatch(LayoutWatch):
    """Knows one layout."""

    def __init__(self, layout: TopicLayout) -> None:
        super().__init__(Nodes("pulsar://127.0.0.1:1"), f"topic://{layout.topic}")
        self._still = layout

    @property
    def layout(self) -> TopicLayout:
        """The only one."""
        return self._still


async def lone_producer(servers: str, settings: ProducerSettings) -> Producer:
    """A started producer of one segment with four buckets, the partitions of the Kafka topic t0."""
    plain = SegmentLayout.initial(1, 4)
    layout = TopicLayout(
        "public/default/orders",
        incarnation=1,
        epoch=1,
        segments={each: Segment(part, f"t{each}") for each, part in plain.segments.items()},
        bootstrap_servers=servers,
    )
    producer = Producer(StillWatch(layout), {}, settings)
    await producer.start()
    return producer


async def no_producer(topic: str, _settings: object) -> NoReturn:
    """For consumers that have nothing to put aside."""
    raise AssertionError(f"a producer of {topic} is asked for")
