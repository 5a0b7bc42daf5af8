"""A segment's ancestors and descendants, for clients that read the past (1003)."""

from __future__ import annotations

from anabranch.broker.binary.forms import ClientSettings, segment_form
from anabranch.broker.topics.controllers.access import TopicAccess
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.names import parse_scalable_topic
from anabranch.wire.anabranch_pb2 import BaseCommand, CommandScalableTopicLineageResponse
from anabranch.wire.server.server import OpenSession, Peer, Routes


def lineages(access: TopicAccess, settings: ClientSettings) -> OpenSession:
    """The part that tells them; any node does, by the newest layout that it has read."""

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
