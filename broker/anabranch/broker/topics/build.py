"""Puts a node's part in scalable topics together."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from anabranch.broker.lookups import Lookups
from anabranch.broker.requests import Requests
from anabranch.broker.settings import Settings
from anabranch.broker.topics.access import Access
from anabranch.broker.topics.backlogs import Backlogs
from anabranch.broker.topics.consumers import Consumers
from anabranch.broker.topics.limits import Limits
from anabranch.broker.topics.operations import TopicOperations
from anabranch.broker.topics.policies import AutoScalePolicies
from anabranch.broker.topics.positions import OpenPositions, Positions
from anabranch.broker.topics.reading import Reading
from anabranch.broker.topics.resets import Resets
from anabranch.broker.topics.seeker import Seeker
from anabranch.broker.topics.service import TopicService
from anabranch.broker.topics.sharing import Sharing
from anabranch.broker.topics.watches import Watches
from anabranch.broker.topics.worker import SegmentKeeper
from anabranch.core.autoscaler import LoadOf
from anabranch.core.controller import ControllerSettings
from anabranch.core.timing import Timing

OpenKeeper = Callable[[], SegmentKeeper]


class TopicParts(msgspec.Struct, frozen=True):
    """What scalable topics need of Kafka. `open_*` are called in threads, when they are needed."""

    open_keeper: OpenKeeper
    open_positions: OpenPositions
    load: LoadOf


def timing(settings: Settings) -> Timing:
    """How patient a controller is with consumers."""
    return Timing(
        grace_s=settings.scalable_topic_consumer_session_grace_period_seconds,
        session_timeout_s=settings.scalable_topic_consumer_session_timeout_seconds,
        drain_after_s=settings.drain_after_s(),
    )


def build_topics(
    requests: Requests, lookups: Lookups, settings: Settings, parts: TopicParts
) -> TopicOperations:
    """Everything about scalable topics."""
    kept_s = settings.scalable_topic_retention_seconds
    controllers = ControllerSettings(
        timing=timing(settings),
        auto_scale=settings.auto_scale_settings(),
        retention_s=math.inf if kept_s < 0 else float(kept_s),
    )
    runtime = requests.runtime
    service = TopicService(
        runtime, controllers, settings.topic_prefix, parts.open_keeper, parts.load
    )
    access = Access(requests, lookups, service)
    seeker = Seeker(access)
    watches = Watches(access, seeker)
    timeout_s = settings.operation_timeout_millis / 1000
    consumers = Consumers(access, settings.lookup_timeout_millis / 1000)
    positions = Positions(parts.open_positions)
    resets = Resets(access, consumers, positions, timeout_s)
    reading = Reading(Backlogs(positions, settings.topic_prefix), resets, positions)
    limits = Limits(
        timeout_s=timeout_s,
        bucket_budget=settings.scalable_topic_entry_bucket_budget,
        buckets_max=settings.scalable_topic_entry_bucket_max_per_segment,
        enabled=settings.scalable_topic_enabled,
    )
    metrics = runtime.metrics
    metrics.registry.register(service.scaling)
    metrics.registry.register(Sharing(service.controllers, lambda: runtime.view))
    metrics.gauge(
        "anabranch_topic_controllers",
        "Scalable topics that this node does something for at the moment.",
        lambda: service.controlled,
    )
    metrics.gauge(
        "anabranch_layout_watches", "Watches of layouts on this node.", lambda: watches.count
    )
    metrics.gauge(
        "anabranch_consumer_sessions",
        "Consumers of scalable topics whose controller this node is.",
        lambda: len(service.consumers),
    )
    policies = AutoScalePolicies(access, settings.auto_scale_policy(), timeout_s)
    return TopicOperations(access, consumers, reading, watches, seeker, limits, policies)
