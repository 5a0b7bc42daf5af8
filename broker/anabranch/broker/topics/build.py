"""The parts of scalable topics that ask Kafka, the controllers from them, and their metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import msgspec
from prometheus_client import Histogram

from anabranch.broker.metrics.registry import SECONDS
from anabranch.broker.runtime import Runtime
from anabranch.broker.settings import Settings
from anabranch.broker.settings.current import CurrentSettings
from anabranch.broker.topics.controllers.service import TopicService
from anabranch.broker.topics.controllers.worker import WorkerPool
from anabranch.broker.topics.lists import TopicLists
from anabranch.broker.topics.metrics import TopicMetrics
from anabranch.broker.topics.placement import KafkaPlacement
from anabranch.broker.topics.policies import fits_clients
from anabranch.broker.topics.segment_looks import SegmentLooks
from anabranch.broker.topics.subscriptions.consumers import Consumers
from anabranch.broker.topics.subscriptions.positions import OpenPositions
from anabranch.broker.topics.subscriptions.surveys import TopicSurveys
from anabranch.broker.topics.watches import OwnedTopics, Watches
from anabranch.channel.segments.admin import SegmentAdmin
from anabranch.core.autoscale.schedule import AutoScaleSettings, LoadOf
from anabranch.core.subscriptions.timing import Timing
from anabranch.core.topics.controller import ControllerSettings
from anabranch.core.topics.retention import Retention


class TopicParts(msgspec.Struct, frozen=True):
    """The parts of scalable topics that ask Kafka. Threads call `open_*` when they need them."""

    open_keeper: Callable[[], SegmentAdmin]
    open_positions: OpenPositions
    load: LoadOf
    placement: KafkaPlacement
    lived_by: Mapping[str, str] = {}  # settings of each segment's Kafka topic


def timing(settings: Settings) -> Timing:
    """Returns a controller's patience with consumers."""
    return Timing(
        grace_s=settings.scalable_topic_consumer_session_grace_period_seconds,
        session_timeout_s=settings.scalable_topic_consumer_session_timeout_seconds,
        drain_after_s=settings.drain_after_s(),
    )


def retention(settings: Settings) -> Retention:
    """Returns the times for which messages and subscriptions are kept."""

    def seconds(given: int) -> float:
        return math.inf if given < 0 else float(given)

    return Retention(
        read_s=seconds(settings.scalable_topic_retention_seconds),
        unread_s=seconds(settings.scalable_topic_unread_retention_seconds),
        expiry_s=seconds(settings.scalable_topic_subscription_expiry_seconds),
    )


def controllers_of(runtime: Runtime, current: CurrentSettings, parts: TopicParts) -> TopicService:
    """Returns the controllers of a node's topics; they follow the settings of auto-scaling."""
    settings = current.now
    controllers = ControllerSettings(
        timing=timing(settings),
        auto_scale=_auto_scale(settings),
        retention_s=retention(settings).read_s,
        doubt_s=settings.scalable_topic_sealed_retention_seconds,
    )
    copies, prefix = settings.replication_factor, settings.topic_prefix
    workers = WorkerPool(parts.open_keeper, prefix, copies)
    service = TopicService(
        *(runtime, controllers, prefix, workers, parts.load, fits_clients, parts.placement)
    )

    def follow(now: Settings) -> None:
        if _auto_scale(now) != service.settings.auto_scale:
            service.configure(_auto_scale(now))

    current.subscribe(follow)
    return service


def _auto_scale(settings: Settings) -> AutoScaleSettings:
    return settings.auto_scale_settings(is_allowed=settings.scalable_topic_enabled)


def show(
    service: TopicService,
    owned: OwnedTopics,
    looks: SegmentLooks,
    watches: Watches,
    lists: TopicLists,
    consumers: Consumers,
    surveys: TopicSurveys,
) -> None:
    """Shows how much this node does for topics."""
    runtime = service.runtime
    metrics = runtime.metrics
    for each in (
        looks,
        service.scaling,
        TopicMetrics(
            *(lambda: runtime.view, service.load, service.controllers, owned.names),
            *(surveys.seen, surveys.expiry.soon, consumers.dead_letters_waiting),
        ),
    ):
        metrics.registry.register(each)
    metrics.total(
        "anabranch_subscription_positions_changed",
        "Outside changes of a stream subscription's positions in Kafka.",
        surveys.watch.found.total,
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
