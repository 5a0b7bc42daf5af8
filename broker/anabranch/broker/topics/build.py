"""The parts of scalable topics that ask Kafka, and the controllers that settings make of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import msgspec

from anabranch.broker.runtime import Runtime
from anabranch.broker.settings import Settings
from anabranch.broker.settings.current import CurrentSettings
from anabranch.broker.topics.controllers.service import TopicService
from anabranch.broker.topics.controllers.worker import WorkerPool
from anabranch.broker.topics.policies import fits_clients
from anabranch.broker.topics.subscriptions.positions import OpenPositions
from anabranch.channel.segments.admin import SegmentAdmin
from anabranch.core.adoption.survey import TopicSurvey
from anabranch.core.autoscale.schedule import AutoScaleSettings, LoadOf
from anabranch.core.subscriptions.timing import Timing
from anabranch.core.topics.controller import ControllerSettings
from anabranch.core.topics.retention import Retention


class TopicParts(msgspec.Struct, frozen=True):
    """The parts of scalable topics that ask Kafka. Threads call `open_*` when they need them."""

    open_keeper: Callable[[], SegmentAdmin]
    open_positions: OpenPositions
    load: LoadOf
    survey: Callable[[str, float], TopicSurvey]  # looks at a Kafka topic for so many seconds
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
    service = TopicService(runtime, controllers, prefix, workers, parts.load, fits_clients)

    def follow(now: Settings) -> None:
        if _auto_scale(now) != service.settings.auto_scale:
            service.configure(_auto_scale(now))

    current.subscribe(follow)
    return service


def _auto_scale(settings: Settings) -> AutoScaleSettings:
    return settings.auto_scale_settings(is_allowed=settings.scalable_topic_enabled)
