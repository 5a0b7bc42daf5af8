"""`TopicNode`: a node and the controller of a topic, which does what a test wants it to."""

from __future__ import annotations

from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.server.server import Peer, Routes


class TopicNode:
    """Tells who watches the topic its layout, takes its consumers, and notes what it hears."""

    def __init__(self, epoch: int = 1, incarnation: int = 1) -> None:
        self.epoch = epoch
        self.incarnation = incarnation
        self.url = ""  # of the controller that it names
        self.kafka = ""
        self.error: pb.ServerError | None = None  # instead of a layout
        self.tells = True  # the layout
        self.takes = True  # consumers
        self.lets_go = True  # of them
        self.asked: list[str] = []  # for the layouts of these
        self.heard: list[str] = []
        self._watchers: list[tuple[Peer, int]] = []
        self._consumers: list[Peer] = []

    def push(self, epoch: int | None = None, topic: str = "") -> None:
        """The layout, to all who watch, or to those of one topic."""
        self.epoch = self.epoch if epoch is None else epoch
        for (peer, session_id), of in zip(self._watchers, self.asked, strict=True):
            if topic in ("", of):
                self._tell(peer, session_id)

    def name(self, url: str) -> None:
        """That one is the controller from now on, by a layout of the same epoch."""
        self.url = url
        self.push()

    def delete(self) -> None:
        dag = pb.ScalableTopicDAG(epoch=0, deleted=True)
        gone = pb.TopicNotFound
        for peer, session_id in self._watchers:
            peer.send(pb.CommandScalableTopicUpdate(session_id=session_id, dag=dag, error=gone))

    def cut(self) -> None:
        """Ends the connections of all consumers."""
        for peer in self._consumers:
            peer.close("the test cuts it")
        self._consumers.clear()

    def session(self, peer: Peer) -> Routes:
        async def watch(command: BaseCommand) -> None:
            said = command.scalableTopicLookup
            self.asked.append(said.topic)
            self.heard.append("watch")
            self._watchers.append((peer, said.session_id))
            self._tell(peer, said.session_id)

        async def unwatch(_command: BaseCommand) -> None:
            pass

        async def subscribe(command: BaseCommand) -> None:
            self.heard.append("subscribe")
            self._consumers.append(peer)
            if self.takes:
                number = command.scalableTopicSubscribe.request_id
                given = pb.ScalableConsumerAssignment(
                    layout_epoch=1,
                    incarnation=1,
                    group_id="g",
                    session_timeout_ms=10_000,
                    sequence=1,
                )
                peer.send(
                    pb.CommandScalableTopicSubscribeResponse(request_id=number, assignment=given)
                )

        async def unsubscribe(command: BaseCommand) -> None:
            self.heard.append("unsubscribe")
            if self.lets_go:
                peer.send(pb.CommandSuccess(request_id=command.scalableTopicUnsubscribe.request_id))

        async def look_up(command: BaseCommand) -> None:
            self.heard.append("look-up")
            peer.send(
                pb.CommandLookupTopicResponse(
                    request_id=command.lookupTopic.request_id,
                    brokerServiceUrl=self.url,
                    response=pb.CommandLookupTopicResponse.Connect,
                )
            )

        return {
            BaseCommand.SCALABLE_TOPIC_LOOKUP: watch,
            BaseCommand.SCALABLE_TOPIC_CLOSE: unwatch,
            BaseCommand.SCALABLE_TOPIC_SUBSCRIBE: subscribe,
            BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE: unsubscribe,
            BaseCommand.LOOKUP: look_up,
        }

    def _tell(self, peer: Peer, session_id: int) -> None:
        if self.error is not None:
            peer.send(pb.CommandScalableTopicUpdate(session_id=session_id, error=self.error))
        elif self.tells:
            dag = pb.ScalableTopicDAG(
                epoch=self.epoch,
                incarnation=self.incarnation,
                segments=[_SEGMENT],
                controller_broker_url=self.url,
                bootstrap_servers=self.kafka,
            )
            peer.send(pb.CommandScalableTopicUpdate(session_id=session_id, dag=dag))


_SEGMENT = pb.SegmentInfoProto(
    segment_id=0,
    hash_start=0,
    hash_end=0xFFFF,
    state=pb.ACTIVE,
    created_at_epoch=0,
    created_at_ms=0,
    entry_bucket_splits=[0x4000, 0x8000, 0xC000],
    kafka_topic="k",
)
