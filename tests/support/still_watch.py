"""A layout watch that asks no node: for a producer of a topic whose layout does not change."""

from __future__ import annotations

from typing import Any, NoReturn

from msgspec.structs import replace

from anabranch.client import LayoutWatch, Producer, ProducerSettings, Segment, TopicLayout
from anabranch.client._consumer.consumer import Membership
from anabranch.client._consumer.resources import OWN, ConsumerResources
from anabranch.client._topics.nodes import Nodes
from anabranch.core.entities.layout import SegmentLayout
from anabranch.wire.kafka.link import KafkaLinks


class StillWatch(LayoutWatch):
    """Knows one layout."""

    def __init__(self, layout: TopicLayout) -> None:
        super().__init__(Nodes("pulsar://127.0.0.1:1"), f"topic://{layout.topic}")
        self._still = layout

    @property
    def layout(self) -> TopicLayout:
        """The only one."""
        return self._still


def layout_of(plain: SegmentLayout, servers: str = "", **fields: Any) -> TopicLayout:
    """A topic's layout; segment 0 is the Kafka topic t0."""
    segments = {each: Segment(part, f"t{each}") for each, part in plain.segments.items()}
    first = TopicLayout("public/default/orders", 1, 1, segments, bootstrap_servers=servers)
    return replace(first, **fields)


async def lone_producer(servers: str, settings: ProducerSettings) -> Producer:
    """A started producer of one segment with four buckets, the partitions of the Kafka topic t0."""
    producer = LoneProducer(servers, settings)
    await producer.start()
    return producer


class LoneProducer(Producer):
    """With connections of its own, which end with it."""

    def __init__(self, servers: str, settings: ProducerSettings) -> None:
        self._own = KafkaLinks(servers, {})
        watch = StillWatch(layout_of(SegmentLayout.initial(1, 4), servers))
        super().__init__(watch, self._own, settings)

    async def close(self, timeout_s: float | None = None) -> None:
        self._home.check()
        try:
            await super().close(timeout_s)
        finally:
            self._own.close()


async def no_producer(topic: str, _settings: object) -> NoReturn:
    """For consumers that have nothing to put aside."""
    raise AssertionError(f"a producer of {topic} is asked for")


def lone_member(
    subscription: str,
    consumer: str = "",
    topic: str = "public/default/orders",
    resources: ConsumerResources = OWN,
) -> Membership:
    """Of a topic whose nodes are nowhere."""
    nodes = Nodes("pulsar://127.0.0.1:1")
    watch = LayoutWatch(nodes, f"topic://{topic}")
    return Membership(nodes, watch, {}, subscription, consumer, resources)
