"""What clients write and read, told to the controller of each topic (1001)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from anabranch.broker.errors import NotFoundError
from anabranch.broker.load.traffic import Report, Said, TrafficReports
from anabranch.broker.topics.access import Access, parse
from anabranch.core.topics import ScalableTopic
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandScalableTrafficReportResponse,
    SegmentTraffic,
)
from anabranch.wire.server import OpenSession, Peer, Routes


def traffic_reports(access: Access, reports: TrafficReports) -> OpenSession:
    """The part that takes reports of traffic, of topics that this node controls."""

    def open_session(peer: Peer) -> Routes:
        async def report(command: BaseCommand) -> None:
            said = command.scalableTrafficReport
            topic = parse(said.topic)
            access.must_control(topic)
            found = access.topic(topic)
            if found.incarnation != said.incarnation:
                raise NotFoundError(f"{said.topic} was deleted, or made again")
            reports.take(
                Report(
                    topic,
                    said.incarnation,
                    said.client_id,
                    said.since_ms / 1000,
                    tuple(_known(said.segments, _places(access, topic, found))),
                )
            )
            peer.send(
                CommandScalableTrafficReportResponse(
                    request_id=said.request_id, interval_ms=round(reports.interval_s * 1000)
                )
            )

        return {BaseCommand.SCALABLE_TRAFFIC_REPORT: report}

    return open_session


def _places(access: Access, name: str, topic: ScalableTopic) -> Callable[[int, str], bool]:
    """Whether there are such a segment and subscription, "" being what is written."""
    segments = {part.segment_id for part in topic.segments}
    subscriptions = {"": True}

    def known(segment_id: int, subscription: str) -> bool:
        if segment_id not in segments:
            return False
        found = subscriptions.get(subscription)
        if found is None:
            found = access.runtime.view.subscription(name, subscription) is not None
            subscriptions[subscription] = found
        return found

    return known


def _known(
    segments: Iterable[SegmentTraffic], is_known: Callable[[int, str], bool]
) -> Iterator[Said]:
    """What is said of places that there are; a client may invent some, or know them for longer."""
    for each in segments:
        if is_known(each.segment_id, each.subscription):
            yield Said(
                each.segment_id,
                each.subscription,
                each.messages,
                each.bytes,
                each.told_messages,
                each.told_bytes,
            )
