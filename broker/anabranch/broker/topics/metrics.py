"""A node's metrics of its topics.

They are decisions about load, shares of segments (PIP-486), stored messages, and unread ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anabranch.broker.metrics.registry import SECONDS
from anabranch.broker.topics.controllers.service import TopicService
from anabranch.broker.topics.lists import TopicLists
from anabranch.broker.topics.segment_looks import SegmentLooks
from anabranch.broker.topics.subscriptions.consumers import Consumers
from anabranch.broker.topics.subscriptions.position_watch import PositionWatch
from anabranch.broker.topics.subscriptions.positions import TopicSample
from anabranch.broker.topics.subscriptions.surveys import TopicSurveys
from anabranch.broker.topics.watches import OwnedTopics, Watches
from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.subscriptions.coordinator import SubscriptionCoordinator
from anabranch.wire import clock

_PREFIX: Final = "pulsar_scalable_topic_"
_COUNTERS: Final = {
    "auto_splits": "Automatic splits that took over.",
    "auto_merges": "Automatic merges that took over.",
    "rebucket_rollovers": "Segments replaced by one with other entry buckets, by hand or not.",
    "split_suppressed_max_segments": "Evaluations that maxSegments kept from a split.",
    "merge_suppressed_max_depth": "Evaluations that maxDagDepth kept from a merge.",
}
_TOPIC = ("topic",)
_SEGMENT = ("topic", "segment")
_SUBSCRIPTION = ("topic", "subscription")
_SHARE = ("topic", "subscription", "segment")
_RATES = (
    "anabranch_topic_messages_in_per_second",
    "anabranch_topic_bytes_in_per_second",
    "anabranch_topic_messages_out_per_second",
    "anabranch_topic_bytes_out_per_second",
)
_RATE = "Produced to the topic (in), or consumed from it (out)."
_GAUGE, _COUNTER = GaugeMetricFamily, CounterMetricFamily
_Family = tuple[type[GaugeMetricFamily] | type[CounterMetricFamily], str, Sequence[str]]
_Sample = tuple[str, list[str], float]
_ACTIVE: Final[Mapping[str, _Family]] = {
    f"{_PREFIX}active_segments": (_GAUGE, "Active segments of the topic.", _TOPIC),
}
_BUCKETS: Final[Mapping[str, _Family]] = {
    f"{_PREFIX}segment_entry_buckets": (_GAUGE, "Entry buckets of the segment.", _SEGMENT),
}
_SHARES: Final[Mapping[str, _Family]] = {
    f"{_PREFIX}segment_consumers": (_GAUGE, "Consumers that share the segment.", _SHARE),
    f"{_PREFIX}buckets_withheld": (
        _GAUGE,
        "Buckets that wait for their former consumer to settle its messages.",
        _SHARE,
    ),
    f"{_PREFIX}drain_mode_active": (
        _GAUGE,
        "1 while several consumers drain the backlog of a sealed segment.",
        _SHARE,
    ),
    f"{_PREFIX}buckets_unserved": (
        _GAUGE,
        "Buckets without a consumer for longer than they should wait.",
        _SHARE,
    ),
    f"{_PREFIX}bucket_reassignments": (
        _COUNTER,
        "Buckets given to another consumer than before, since this controller took over.",
        _SHARE,
    ),
}
_DEAD_LETTERS: Final[Mapping[str, _Family]] = {
    "anabranch_dead_letters_waiting": (
        _GAUGE,
        "Messages of a queue that its consumers could not put aside yet.",
        _SUBSCRIPTION,
    ),
}
_PROGRESS: Final[Mapping[str, _Family]] = {
    "anabranch_topic_stored_messages": (
        _GAUGE,
        "Messages that Kafka has of the topic.",
        _TOPIC,
    ),
    "anabranch_subscription_backlog_messages": (
        _GAUGE,
        "Unread messages of the subscription, as far as Kafka tells nodes.",
        _SUBSCRIPTION,
    ),
    "anabranch_subscription_backlog_bytes": (
        _GAUGE,
        "Estimated bytes of these, by the sizes of messages produced lately.",
        _SUBSCRIPTION,
    ),
    "anabranch_subscription_messages_per_second": (
        _GAUGE,
        "Messages that the subscription read a second, between the last two looks.",
        _SUBSCRIPTION,
    ),
    "anabranch_subscription_expires_in_seconds": (
        _GAUGE,
        "Time until an unused subscription is deleted, in the last quarter.",
        _SUBSCRIPTION,
    ),
}


def show(
    service: TopicService,
    owned: OwnedTopics,
    looks: SegmentLooks,
    watches: Watches,
    lists: TopicLists,
    consumers: Consumers,
    surveys: TopicSurveys,
    position_watch: PositionWatch,
) -> None:
    """Shows how much this node does for topics."""
    metrics = service.runtime.metrics
    metrics.registry.register(looks)
    metrics.registry.register(TopicMetrics(service, owned, surveys, consumers))
    metrics.total(
        "anabranch_subscription_positions_changed",
        "Outside changes of a stream subscription's positions in Kafka.",
        position_watch.found.total,
    )
    took = Histogram(
        "anabranch_topic_change_seconds",
        "Steps of this node's layout changes, and their time.",
        ["step"],
        buckets=SECONDS,
        registry=metrics.registry,
    )
    service.step_took = lambda step, seconds: took.labels(step).observe(seconds)
    metrics.gauge(
        "anabranch_topic_controllers",
        "Scalable topics that this node works for at the moment.",
        lambda: len(service.controllers()),
    )
    metrics.gauge(
        "anabranch_layout_watches", "Watches of layouts on this node.", lambda: watches.count
    )
    metrics.gauge(
        "anabranch_topic_list_watches",
        "Watches of lists of topics on this node.",
        lambda: lists.watch_count,
    )
    metrics.gauge(
        "anabranch_topic_lists",
        "Lists of topics, of namespaces, patterns and property filters, that this node keeps.",
        lambda: lists.count,
    )
    metrics.gauge(
        "anabranch_consumer_sessions",
        "Consumers of scalable topics whose controller this node is.",
        lambda: len(service.consumers),
    )


class TopicMetrics(Collector):
    """The segments, subscriptions and messages of this node's topics, read in its event loop."""

    def __init__(
        self, service: TopicService, owned: OwnedTopics, surveys: TopicSurveys, consumers: Consumers
    ) -> None:
        self._service = service
        self._owned = owned
        self._surveys = surveys
        self._consumers = consumers

    def collect(self) -> Iterable[Metric]:
        # A few at a time, because those of many topics are large.
        scaling = self._service.scaling
        scaling.drop(lambda name: self._topic(name) is None)
        mine = {each.name for each in self._service.controllers()}.union(self._owned.names())
        known = sorted(mine.union(scaling.topics))
        yield from _filled(_ACTIVE, self._active(known))
        for counter, text in _COUNTERS.items():
            name = f"{_PREFIX}{counter}"
            counts = ((name, [topic], scaling.count(topic, counter)) for topic in known)
            yield from _filled({name: (_COUNTER, text, _TOPIC)}, counts)
        yield from _filled(_BUCKETS, self._buckets(sorted(mine)))
        yield from _filled(_SHARES, self._shares())
        yield from _filled(_DEAD_LETTERS, self._waiting())
        loads = {name: self._loads(name) for name in self._owned.names()}
        for place, rate in enumerate(_RATES):
            rates = ((rate, [n], sum(p.rates[place] for p in loads[n])) for n in loads)
            yield from _filled({rate: (_GAUGE, _RATE, _TOPIC)}, rates)
        yield from _filled(_PROGRESS, self._progress(loads))

    def _topic(self, name: str) -> ScalableTopic | None:
        return self._service.runtime.view.topic(name)

    def _active(self, names: Iterable[str]) -> Iterator[_Sample]:
        for name in names:
            topic = self._topic(name)
            if topic is not None:
                yield f"{_PREFIX}active_segments", [name], len(topic.layout.active)

    def _buckets(self, names: Iterable[str]) -> Iterator[_Sample]:
        for name in names:
            topic = self._topic(name)
            for part in topic.segments if topic is not None else ():
                labels = [name, str(part.segment_id)]
                yield f"{_PREFIX}segment_entry_buckets", labels, part.buckets

    def _shares(self) -> Iterator[_Sample]:
        for controller in self._service.controllers():
            for subscription, coordinator in controller.coordinators.items():
                yield from _shares(controller.name, subscription, coordinator)

    def _waiting(self) -> Iterator[_Sample]:
        for key, count in sorted(self._consumers.dead_letters_waiting().items()):
            yield "anabranch_dead_letters_waiting", [*key], count

    def _progress(self, loads: Mapping[str, Iterable[SegmentLoad]]) -> Iterator[_Sample]:
        for name, seen in self._surveys.seen.items():
            yield from _progress(name, seen, _average_size(loads.get(name, [])))
        for key, left_s in self._surveys.expiry.soon.items():
            yield "anabranch_subscription_expires_in_seconds", [*key], left_s

    def _loads(self, name: str) -> list[SegmentLoad]:
        topic = self._topic(name)
        if topic is None:
            return []
        return list((self._service.load(name, topic.incarnation) or {}).values())


def _filled(families: Mapping[str, _Family], samples: Iterable[_Sample]) -> Iterable[Metric]:
    found = {name: kind(name, text, None, of) for name, (kind, text, of) in families.items()}
    for name, labels, value in samples:
        found[name].add_metric(labels, value)
    return found.values()


def _shares(
    name: str, subscription: str, coordinator: SubscriptionCoordinator
) -> Iterator[_Sample]:
    def of(segment_id: int) -> list[str]:
        return [name, subscription, str(segment_id)]

    waiting, target = coordinator.withheld(), coordinator.target
    owners = Counter(segment for shares in target.wanted().values() for segment in shares)
    for segment_id, count in target.unserved.overdue(clock.now()).items():
        yield f"{_PREFIX}buckets_unserved", of(segment_id), count
    for segment_id, count in owners.items():
        yield f"{_PREFIX}segment_consumers", of(segment_id), count
        yield f"{_PREFIX}buckets_withheld", of(segment_id), waiting[segment_id]
        drains = segment_id in target.backlog.draining
        yield f"{_PREFIX}drain_mode_active", of(segment_id), drains
    for segment_id, count in coordinator.moved.items():
        yield f"{_PREFIX}bucket_reassignments", of(segment_id), count


def _progress(name: str, seen: TopicSample, average: float | None) -> Iterator[_Sample]:
    """`average`: bytes of a message, of those that came in; None: none did."""
    yield "anabranch_topic_stored_messages", [name], seen.stored
    for subscription, left in seen.left.items():
        yield "anabranch_subscription_backlog_messages", [name, subscription], left
        if average is not None or not left:
            size = left * (average or 0.0)
            yield "anabranch_subscription_backlog_bytes", [name, subscription], size
    for subscription, per_second in seen.rates.items():
        yield "anabranch_subscription_messages_per_second", [name, subscription], per_second


def _average_size(loads: Iterable[SegmentLoad]) -> float | None:
    rates = [load.rates for load in loads]
    count = sum(each[0] for each in rates)
    return sum(each[1] for each in rates) / count if count > 0 else None
