"""Passes clients' reports of their traffic to the controller of each topic (1001)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from anabranch.broker.errors import NotFoundError
from anabranch.broker.load.traffic import ReportedTraffic, TrafficReport, TrafficReports
from anabranch.broker.requester import requester
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.topics.controllers.access import TopicAccess
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.names import parse_scalable_topic
from anabranch.core.security.actions import CONSUMING, PRODUCING
from anabranch.core.security.resources import topic_resource
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandScalableTrafficReportResponse,
    SegmentTraffic,
)
from anabranch.wire.server.server import OpenSession, Peer, Routes


def traffic_reports(
    access: TopicAccess, reports: TrafficReports, guard: AccessGuard | None = None
) -> OpenSession:
    """Returns the part that takes reports of traffic, of topics that this node controls.

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
