"""What a node needs of Kafka before it starts. Everything here blocks: use a thread."""

from __future__ import annotations

import os
import time
from typing import Any, Final

from anabranch.access import kafka_tokens
from anabranch.access.kafka import read_access
from anabranch.broker.errors import StartError
from anabranch.broker.logging import get_logger
from anabranch.broker.settings import Settings
from anabranch.channel.heartbeats import KafkaHeartbeats
from anabranch.channel.kafka.connection import KAFKA_S_MAX, KafkaConnection
from anabranch.channel.kafka.makes import Make
from anabranch.channel.kafka.topics import Topics, TopicSettings, ensure_topics
from anabranch.channel.segments.admin import SegmentSettings
from anabranch.core.sessions.lease import Heartbeat
from anabranch.projections.view import View

_POLL_S: Final = 0.5

_log = get_logger()


def connect(settings: Settings) -> KafkaConnection:
    """Returns how Kafka is reached. Raises InvalidInputError."""
    servers = settings.bootstrap_servers
    security = kafka_tokens.at(kafka_properties(settings), servers)
    return KafkaConnection(servers, security, settings.broker_id)


def kafka_properties(settings: Settings) -> dict[str, Any]:
    """Returns a client's properties for any Kafka (`kafka_tokens.at`). Raises InvalidInputError."""
    access = read_access(settings.kafka_properties_file, os.environ).checked()
    return access.with_tokens(settings.kafka_token_provider)


def prepare_topics(settings: Settings, connection: KafkaConnection) -> Topics:
    """The cluster's topics, made if they are missing, checked if not."""
    topics = Topics(settings.topic_prefix)
    wanted = topic_settings(settings)
    made = ensure_topics(connection, topics, wanted, KAFKA_S_MAX, _tell_unproven)
    if made:
        _log.info("topics.made", topics=made)
    return topics


def _tell_unproven(make: Make) -> None:
    _log.warning("kafka.unproven", make=make.name, why=make.told)


def topic_settings(settings: Settings) -> TopicSettings:
    """Returns the settings that the cluster's own topics must have."""
    return TopicSettings(settings.replication_factor, settings.min_insync_replicas)


def segment_settings(settings: Settings) -> SegmentSettings:
    """Returns the settings of the segments' Kafka topics."""
    read_s = settings.scalable_topic_retention_seconds
    unread_s = settings.scalable_topic_unread_retention_seconds
    return SegmentSettings(
        replication_factor=settings.replication_factor,
        min_insync_replicas=settings.min_insync_replicas,
        max_message_bytes=settings.max_message_size,
        retention_ms=unread_s * 1000 if unread_s >= 0 else -1,
        retention_bytes=settings.scalable_topic_unread_retention_bytes,
        oldest_ms=read_s * 1000 if read_s >= 0 else -1,
    )


def check_not_in_use(
    broker: str, view: View, heartbeats: KafkaHeartbeats, lease_s: float, watched_since: float
) -> list[tuple[Heartbeat, int]]:
    """Raises StartError when another process is alive under this broker id.

    Only a broker with an open session can be alive. So only the restart after a crash has to wait,
    for heartbeats that came after `watched_since`, when the reader began. Returns the last
    heartbeat of each other broker, with the log's timestamp.
    """
    heard: dict[str, tuple[Heartbeat, int]] = {}
    session = view.session(broker)
    if session is None or not session.open:
        return []
    # The old process may act until its lease ends, heard or not: it may be cut off, or paused. A
    # heartbeat acknowledged before the reader began gives it a lease's time from then at most; a
    # later one is read here.
    deadline = watched_since + lease_s
    left = _POLL_S  # beats that were read meanwhile are looked at in any case
    while left > 0:
        beats = heartbeats.poll(min(left, _POLL_S))
        left = deadline - time.monotonic()
        for beat, log_ms in beats:
            heard[beat.broker] = (beat, log_ms)
            if beat.broker == broker:
                raise StartError(
                    f"broker id {broker} is in use: another node sends heartbeats under it "
                    f"(session {beat.session}, heartbeat {beat.sequence}). Stop that node, or give "
                    "this one an advertisedAddress or webServicePort of its own"
                )
    return list(heard.values())
