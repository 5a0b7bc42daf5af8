"""What clients write and read, told to the controller of each topic (1001)."""

from __future__ import annotations

from anabranch.broker.load.traffic import Report, Said, TrafficReports
from anabranch.broker.topics.access import Access, parse
from anabranch.wire.anabranch_pb2 import BaseCommand, CommandScalableTrafficReportResponse
from anabranch.wire.server import OpenSession, Peer, Routes


def traffic_reports(access: Access, reports: TrafficReports) -> OpenSession:
    """The part that takes reports of traffic, of topics that this node controls."""

    def open_session(peer: Peer) -> Routes:
        async def report(command: BaseCommand) -> None:
            said = command.scalableTrafficReport
            topic = parse(said.topic)
            access.must_control(topic)
            reports.take(
                Report(
                    topic,
                    said.incarnation,
                    said.client_id,
                    said.since_ms / 1000,
                    tuple(
                        Said(
                            each.segment_id,
                            each.subscription,
                            each.messages,
                            each.bytes,
                            each.told_messages,
                            each.told_bytes,
                        )
                        for each in said.segments
                    ),
                )
            )
            peer.send(
                CommandScalableTrafficReportResponse(
                    request_id=said.request_id, interval_ms=round(reports.interval_s * 1000)
                )
            )

        return {BaseCommand.SCALABLE_TRAFFIC_REPORT: report}

    return open_session
