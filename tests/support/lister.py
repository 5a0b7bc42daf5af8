"""`Lister`: a node of which a test says what it tells of lists of topics."""

from __future__ import annotations

from anabranch.core.topic_lists.topic_list import topics_hash
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.server.server import Peer, Routes


class Lister:
    """A node that tells what it is given, and notes what it was asked."""

    def __init__(self, *topics: str) -> None:
        self.topics = set(topics)
        self.asked: list[str] = []  # the hash that each watch came with
        self.patterns: list[str] = []
        self.error: pb.ServerError | None = None
        self._watchers: list[tuple[Peer, int, bool]] = []

    def cut(self) -> None:
        for peer, *_ in self._watchers:
            peer.close("the test cuts it")
        self._watchers.clear()

    def change(self, added: str = "", removed: str = "", said_hash: str = "") -> None:
        self.topics -= {removed}
        self.topics |= {added} - {""}
        come, gone = [each for each in [added] if each], [each for each in [removed] if each]
        said = said_hash or topics_hash(self.topics)
        for peer, number, by_pattern in self._watchers:
            if by_pattern:
                peer.send(
                    pb.CommandWatchTopicUpdate(
                        watcher_id=number, new_topics=come, deleted_topics=gone, topics_hash=said
                    )
                )
            else:
                diff = pb.ScalableTopicsDiff(added=come, removed=gone)
                peer.send(pb.CommandWatchScalableTopicsUpdate(watch_id=number, diff=diff))

    def session(self, peer: Peer) -> Routes:
        async def by_pattern(command: BaseCommand) -> None:
            said = command.watchTopicList
            self.asked.append(said.topics_hash)
            self.patterns.append(said.topics_pattern)
            known = said.topics_hash == topics_hash(self.topics)
            self._watchers.append((peer, said.watcher_id, True))
            peer.send(
                pb.CommandWatchTopicListSuccess(
                    request_id=said.request_id,
                    watcher_id=said.watcher_id,
                    topic=[] if known else sorted(self.topics),
                    topics_hash=topics_hash(self.topics),
                )
            )

        async def by_properties(command: BaseCommand) -> None:
            said = command.watchScalableTopics
            self.asked.append(said.current_hash)
            answer = pb.CommandWatchScalableTopicsUpdate(watch_id=said.watch_id)
            if self.error is not None:
                answer.error, answer.message = self.error, "not for you"
            elif said.current_hash == topics_hash(self.topics):
                answer.diff.SetInParent()
            else:
                answer.snapshot.topics.extend(sorted(self.topics))
            self._watchers.append((peer, said.watch_id, False))
            peer.send(answer)

        return {
            BaseCommand.WATCH_TOPIC_LIST: by_pattern,
            BaseCommand.WATCH_SCALABLE_TOPICS: by_properties,
        }
