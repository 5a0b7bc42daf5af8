"""All that a node serves on its binary port."""

from __future__ import annotations

from functools import partial

from anabranch.broker.binary.consuming import consumer_sessions
from anabranch.broker.binary.forms import ClientSettings
from anabranch.broker.binary.guarding import check_again, guarded, may_at_once
from anabranch.broker.binary.handlers import (
    CheckAgain,
    May,
    lookups,
    on_kafka,
    open_sessions,
)
from anabranch.broker.binary.lineage import lineages
from anabranch.broker.binary.listing import topic_lists
from anabranch.broker.binary.traffic import traffic_reports
from anabranch.broker.binary.watching import layout_watches
from anabranch.broker.operations import Operations
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.settings import Settings
from anabranch.wire.server.server import OpenSession, Peer, Route


def _of_look_ups(guard: AccessGuard | None) -> tuple[May | None, CheckAgain | None]:
    if guard is None:
        return None, None
    return partial(may_at_once, guard), partial(check_again, guard)


def sessions(
    operations: Operations, settings: Settings, guard: AccessGuard | None = None
) -> OpenSession:
    """Look-ups, watches of layouts, consumers, reports of traffic, and lists of topics.

    `guard`: asked of each command; None: of none.
    """

    def before(route: Route, number: int, peer: Peer) -> Route:
        if guard is None:
            return route
        return guarded(route, number, peer, guard, operations.decided)

    topics = operations.topics
    if guard is not None:
        topics.access.runtime.followers.append(guard.rights)
    timeout_s = settings.scalable_topic_consumer_session_timeout_seconds
    told = ClientSettings(
        topic_prefix=settings.topic_prefix,
        bootstrap_servers=settings.bootstrap_servers,
        max_message_bytes=settings.max_message_size,
        session_timeout_ms=round(timeout_s * 1000),
    )
    return open_sessions(
        lookups(operations, *_of_look_ups(guard)),
        on_kafka(layout_watches(topics.watches, told, guard=guard)),
        on_kafka(consumer_sessions(topics.consumers, topics.dead_letters, told, guard)),
        lineages(topics.access, told),
        traffic_reports(topics.access, operations.traffic, guard),
        topic_lists(topics.access, topics.lists, operations.topic_list_limiter, guard=guard),
        before=before,
    )
