"""Puts a node's part in scalable topics together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import msgspec
from prometheus_client import Histogram

from anabranch.broker.bundles.lookups import LookupService
from anabranch.broker.metrics.registry import SECONDS
from anabranch.broker.runtime import Runtime
from anabranch.broker.security.outgoing import OutgoingAccess
from anabranch.broker.settings import Settings
from anabranch.broker.settings.current import CurrentSettings
from anabranch.broker.topics.controllers.access import TopicAccess
from anabranch.broker.topics.controllers.elsewhere import OtherNodes
from anabranch.broker.topics.controllers.service import TopicService
from anabranch.broker.topics.controllers.worker import SegmentKeeper, WorkerPool
from anabranch.broker.topics.lists import TopicLists
from anabranch.broker.topics.metrics import (
    BacklogMetrics,
    DeadLetterMetrics,
    SegmentConsumerMetrics,
)
from anabranch.broker.topics.operations import TopicOperations
from anabranch.broker.topics.placement import KafkaPlacement
from anabranch.broker.topics.policies import AutoScalePolicies, Limits, fits_clients
from anabranch.broker.topics.segment_looks import SegmentLooks
from anabranch.broker.topics.subscriptions.changes import Resets
from anabranch.broker.topics.subscriptions.consumers import Consumers
from anabranch.broker.topics.subscriptions.groups import Groups, StartPositionFinder
from anabranch.broker.topics.subscriptions.position_watch import PositionWatch
from anabranch.broker.topics.subscriptions.positions import Backlogs, OpenPositions, Positions
from anabranch.broker.topics.subscriptions.surveys import AT_ONCE, TopicSurveys
from anabranch.broker.topics.transactions import SegmentTransactions
from anabranch.broker.topics.watches import ControllerFinder, OwnedTopics, Watches
from anabranch.core.autoscale.schedule import AutoScaleSettings, LoadOf
from anabranch.core.subscriptions.timing import Timing
from anabranch.core.topics.controller import ControllerSettings
from anabranch.core.topics.retention import Retention
from anabranch.wire import clock

OpenKeeper = Callable[[], SegmentKeeper]


class TopicParts(msgspec.Struct, frozen=True):
    """The parts of scalable topics that ask Kafka. Threads call `open_*` when they need them."""

    open_keeper: OpenKeeper
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


def build_topics(
    runtime: Runtime, lookups: LookupService, current: CurrentSettings, parts: TopicParts
) -> TopicOperations:
    """Everything about scalable topics."""
    settings, limits = current.now, _limits(current.now)
    controllers = ControllerSettings(
        timing=timing(settings),
        auto_scale=_auto_scale(settings),
        retention_s=retention(settings).read_s,
        doubt_s=settings.scalable_topic_sealed_retention_seconds,
    )
    copies = settings.replication_factor
    workers = WorkerPool(parts.open_keeper, settings.topic_prefix, copies)
    service = TopicService(
        *(runtime, controllers, settings.topic_prefix, workers),
        *(parts.load, fits_clients, parts.placement),
    )
    access = TopicAccess(runtime, lookups, service, current)
    finder = ControllerFinder(access)
    watches = Watches(access, finder)
    lists = TopicLists(service)
    positions = Positions(parts.open_positions)
    beginnings = StartPositionFinder(access, positions)
    groups = Groups(service, positions)
    consumers = Consumers(access, beginnings, groups, settings.lookup_timeout_s)
    resets = Resets(access, consumers, beginnings, limits.timeout_s)
    backlogs = Backlogs(positions, settings.topic_prefix)
    owned = OwnedTopics(service)
    service.scaling.owned = owned.names
    looks = SegmentLooks(service, owned, parts.lived_by)
    registry = runtime.metrics.registry
    registry.register(looks)
    served = SegmentConsumerMetrics(service.controllers, lambda: runtime.view, owned.names)
    registry.register(served)
    surveys = TopicSurveys(
        access,
        consumers,
        # Its own threads, because requests must not wait for a round.
        Positions(parts.open_positions, AT_ONCE),
        owned,
        retention(settings),
        settings.scalable_topic_survey_interval_seconds,
        clock.now,
        looks.note_ends,
        PositionWatch(access, consumers, Positions(parts.open_positions), owned, clock.now),
    )
    registry.register(
        BacklogMetrics(
            lambda: runtime.view, parts.load, owned.names, surveys.seen, surveys.expiry.soon
        )
    )
    _count(service, watches, lists, consumers, surveys.watch)
    looks.is_retained = surveys.is_retained
    transactions = SegmentTransactions(access, Positions(parts.open_positions), limits.timeout_s)
    topics = TopicOperations(
        *(access, consumers, backlogs, resets, surveys, looks, watches, transactions, lists),
        *(finder, limits, AutoScalePolicies(access, limits.timeout_s)),
        OtherNodes(OutgoingAccess(settings, settings.authentication_files_check_seconds)),
    )

    def follow(now: Settings) -> None:
        topics.configure(_limits(now), now.lookup_timeout_s)
        if _auto_scale(now) != service.settings.auto_scale:
            service.configure(_auto_scale(now))

    current.subscribe(follow)
    return topics


def _auto_scale(settings: Settings) -> AutoScaleSettings:
    return settings.auto_scale_settings(is_allowed=settings.scalable_topic_enabled)


def _limits(settings: Settings) -> Limits:
    policy = settings.auto_scale_policy
    return Limits(
        timeout_s=settings.operation_timeout_s,
        bucket_budget=policy.entry_bucket_budget,
        buckets_max=policy.max_entry_buckets_per_segment,
    )


def _count(
    service: TopicService,
    watches: Watches,
    lists: TopicLists,
    consumers: Consumers,
    position_watch: PositionWatch,
) -> None:
    """Shows how much this node does for topics."""
    metrics = service.runtime.metrics
    metrics.total(
        "anabranch_subscription_positions_changed",
        "Outside changes of a stream subscription's positions in Kafka.",
        position_watch.found.total,
    )
    metrics.registry.register(service.scaling)
    took = Histogram(
        "anabranch_topic_change_seconds",
        "Steps of this node's layout changes, and their time.",
        ["step"],
        buckets=SECONDS,
        registry=metrics.registry,
    )
    service.step_took = lambda step, seconds: took.labels(step).observe(seconds)
    metrics.registry.register(DeadLetterMetrics(consumers.dead_letters_waiting))
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
    metrics.total(
        "anabranch_topic_lists_given_up",
        "Lists of patterns and property filters that took too much of this node's time.",
        lambda: lists.given_up,
    )
    metrics.gauge(
        "anabranch_consumer_sessions",
        "Consumers of scalable topics whose controller this node is.",
        lambda: len(service.consumers),
    )
