"""All that a node serves on its binary port, and the parts of it that are small."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from anabranch.broker.binary.consuming import consumer_sessions
from anabranch.broker.binary.forms import ClientSettings, segment_form
from anabranch.broker.binary.guarding import guarded
from anabranch.broker.binary.handlers import (
    lookups,
    on_kafka,
    open_sessions,
)
from anabranch.broker.binary.listing import topic_lists
from anabranch.broker.binary.watching import layout_watches
from anabranch.broker.errors import NotFoundError
from anabranch.broker.load.traffic import ReportedTraffic, TrafficReport, TrafficReports
from anabranch.broker.operations import Operations
from anabranch.broker.requester import requester
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.settings import Settings
from anabranch.broker.topics.controllers.access import TopicAccess
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.names import parse_scalable_topic
from anabranch.core.security.actions import CONSUMING, PRODUCING
from anabranch.core.security.resources import topic_resource
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandScalableTopicLineageResponse,
    CommandScalableTrafficReportResponse,
    SegmentTraffic,
)
from anabranch.wire.server.server import OpenSession, Peer, Route, Routes


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
        lookups(operations, guard),
        on_kafka(layout_watches(topics.watches, told, guard=guard)),
        on_kafka(consumer_sessions(topics.consumers, topics.dead_letters, told, guard)),
        lineages(topics.access, told),
        traffic_reports(topics.access, operations.traffic, guard),
        topic_lists(topics.access, topics.lists, operations.topic_list_limiter, guard=guard),
        before=before,
    )


def lineages(access: TopicAccess, settings: ClientSettings) -> OpenSession:
    """The part that tells a segment's ancestors and descendants, for who reads the past (1003).

    Any node does, by the newest layout that it has read.
    """

    def open_session(peer: Peer) -> Routes:
        async def tell(command: BaseCommand) -> None:
            asked = command.scalableTopicLineage
            name = parse_scalable_topic(asked.topic)

            async def look() -> tuple[ScalableTopic, tuple[SegmentInfo, ...]]:
                return access.lineage(name, asked.segment_id)

            topic, parts = await access.proposals.decided(look)
            peer.send(
                CommandScalableTopicLineageResponse(
                    request_id=asked.request_id,
                    epoch=topic.epoch,
                    incarnation=topic.incarnation,
                    segments=[segment_form(settings, name, topic, part) for part in parts],
                )
            )

        return {BaseCommand.SCALABLE_TOPIC_LINEAGE: tell}

    return open_session


def traffic_reports(
    access: TopicAccess, reports: TrafficReports, guard: AccessGuard | None = None
) -> OpenSession:
    """The part that takes clients' reports of traffic (1001), of topics that this node controls.

    `guard`: checks the right to report writes, and reads; None: there is no check.
    """

    def open_session(peer: Peer) -> Routes:
        async def report(command: BaseCommand) -> None:
            said = command.scalableTrafficReport
            topic = parse_scalable_topic(said.topic)
            access.must_control(topic)
            found = access.topic(topic)
            if found.incarnation != said.incarnation:
                raise NotFoundError(f"{said.topic} was deleted, or made again")
            believed = _believed(said.segments, topic, guard)
            taken = tuple(_known(believed, access, topic, found))
            reports.take(
                TrafficReport(topic, said.incarnation, said.client_id, said.since_ms / 1000, taken)
            )
            peer.send(
                CommandScalableTrafficReportResponse(
                    request_id=said.request_id, interval_ms=round(reports.interval_s * 1000)
                )
            )

        return {BaseCommand.SCALABLE_TRAFFIC_REPORT: report}

    return open_session


def _believed(
    said: Iterable[SegmentTraffic], topic: str, guard: AccessGuard | None
) -> list[SegmentTraffic]:
    """Returns the reports of writes where the client may produce, and of reads where it may
    consume.

    Otherwise a client that may only read could have the topic split.
    """
    if guard is None:
        return list(said)
    who, on = requester(), topic_resource(topic)
    writes, reads = guard.may(who, PRODUCING, on), guard.may(who, CONSUMING, on)
    return [each for each in said if (reads if each.subscription else writes)]


def _known(
    said: Collection[SegmentTraffic], access: TopicAccess, name: str, topic: ScalableTopic
) -> Iterator[ReportedTraffic]:
    """Yields reports on places that exist; a client may invent some, or know them for longer."""
    segments = {part.segment_id for part in topic.segments}
    named = {each.subscription for each in said}  # "": the client writes
    view = access.runtime.view
    readers = {each for each in named if not each or view.subscription(name, each) is not None}
    for each in said:
        if each.segment_id in segments and each.subscription in readers:
            yield ReportedTraffic(
                each.segment_id,
                each.subscription,
                each.messages,
                each.bytes,
                each.told_messages,
                each.told_bytes,
            )
