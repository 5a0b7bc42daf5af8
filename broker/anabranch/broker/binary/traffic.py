"""What clients write and read, told to the controller of each topic (1001)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from anabranch.broker.errors import NotFoundError, PreconditionError
from anabranch.broker.load.traffic import ReportedTraffic, TrafficReport, TrafficReports
from anabranch.broker.topics.access import TopicAccess
from anabranch.core.names import full_name, parse_scalable_topic
from anabranch.core.topics.topic import ScalableTopic
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandScalableTrafficReportResponse,
    SegmentTraffic,
)
from anabranch.wire.server import OpenSession, Peer, Routes

_FEW: Final = 10_000


def traffic_reports(access: TopicAccess, reports: TrafficReports) -> OpenSession:
    """The part that takes reports of traffic, of topics that this node controls."""

    def open_session(peer: Peer) -> Routes:
        async def report(command: BaseCommand) -> None:
            said = command.scalableTrafficReport
            topic = parse_scalable_topic(said.topic)
            access.must_control(topic)
            found = access.topic(topic)
            if found.incarnation != said.incarnation:
                raise NotFoundError(f"{said.topic} was deleted, or made again")
            _check_count(len(said.segments), access, topic, found)
            reports.take(
                TrafficReport(
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


def _check_count(count: int, access: TopicAccess, name: str, topic: ScalableTopic) -> None:
    """Raises PreconditionError for more entries than a client can have something to say of."""
    if count <= _FEW:  # of what was pruned meanwhile there may be some
        return
    subscriptions = sum(1 for _ in access.runtime.view.subscriptions(name))
    most = max(_FEW, len(topic.segments) * (1 + subscriptions))
    if count > most:
        raise PreconditionError(
            f"the report on {full_name(name)} has {count} entries; at most {most} are looked at"
        )


def _places(access: TopicAccess, name: str, topic: ScalableTopic) -> Callable[[int, str], bool]:
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
) -> Iterator[ReportedTraffic]:
    """What is said of places that there are; a client may invent some, or know them for longer."""
    for each in segments:
        if is_known(each.segment_id, each.subscription):
            yield ReportedTraffic(
                each.segment_id,
                each.subscription,
                each.messages,
                each.bytes,
                each.told_messages,
                each.told_bytes,
            )
