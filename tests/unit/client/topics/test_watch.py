"""The layout watch against nodes of the test's making: what it believes, and what it says."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.client import LayoutWatch, NodesUnreachableError, TopicNotFoundError
from anabranch.client._topics import watch as layout_watch
from anabranch.client._topics.nodes import Address, Nodes, parse_url
from anabranch.core.errors import InvalidInputError
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.server.server import Peer, Routes
from support.nobody import nobody
from support.waiting import until
from support.wire import HOST, run, serving

_TOPIC = "topic://public/default/orders"


class Node:
    """Answers watches with a layout of the epoch it is told, or with an error."""

    def __init__(self, epoch: int, incarnation: int = 1) -> None:
        self.epoch = epoch
        self.incarnation = incarnation
        self.error: pb.ServerError | None = None
        self.asked: list[str] = []
        self._watchers: list[tuple[Peer, int]] = []

    def session(self, peer: Peer) -> Routes:
        async def lookup(command: BaseCommand) -> None:
            asked = command.scalableTopicLookup
            self.asked.append(asked.topic)
            self._watchers.append((peer, asked.session_id))
            self._tell(peer, asked.session_id)

        async def close(_command: BaseCommand) -> None:
            pass

        return {BaseCommand.SCALABLE_TOPIC_LOOKUP: lookup, BaseCommand.SCALABLE_TOPIC_CLOSE: close}

    def _tell(self, peer: Peer, session_id: int) -> None:
        if self.error is not None:
            peer.send(pb.CommandScalableTopicUpdate(session_id=session_id, error=self.error))
            return
        segment = pb.SegmentInfoProto(
            segment_id=0,
            hash_start=0,
            hash_end=0xFFFF,
            state=pb.ACTIVE,
            created_at_epoch=0,
            created_at_ms=0,
            entry_bucket_splits=[0x4000, 0x8000, 0xC000],
            kafka_topic="k",
        )
        dag = pb.ScalableTopicDAG(
            epoch=self.epoch, incarnation=self.incarnation, segments=[segment]
        )
        peer.send(pb.CommandScalableTopicUpdate(session_id=session_id, dag=dag))

    def delete(self) -> None:
        dag = pb.ScalableTopicDAG(epoch=0, deleted=True)
        gone = pb.TopicNotFound
        for peer, session_id in self._watchers:
            peer.send(pb.CommandScalableTopicUpdate(session_id=session_id, dag=dag, error=gone))

    def push(self, epoch: int) -> None:
        self.epoch = epoch
        for peer, session_id in self._watchers:
            self._tell(peer, session_id)


def _watch(*ports: int) -> LayoutWatch:
    return LayoutWatch(Nodes("pulsar://" + ",".join(f"{HOST}:{port}" for port in ports)), _TOPIC)


def test_urls_name_one_node_or_several() -> None:
    assert parse_url("anabranch://one:1,two") == (Address("one", 1), Address("two", 6650))
    assert [str(each) for each in parse_url("pulsar://[::1]:7")] == ["[::1]:7"]
    for wrong in ("http://one:1", "one:1", "pulsar://", "pulsar://one:70000", "pulsar://a b:1"):
        with pytest.raises(InvalidInputError):
            parse_url(wrong)


def test_a_key_is_placed_by_both_halves_of_its_hash() -> None:
    async def test() -> None:
        node = Node(epoch=3)
        async with serving(node.session) as server:
            watch = _watch(server.port)
            layout = await watch.start()
            segment, bucket = layout.place("key")  # hash e29c6a44
            assert (segment.segment_id, bucket, segment.info.buckets) == (0, 1, 4)
            assert node.asked == [_TOPIC]
            await watch.close()

    run(test)


def test_newer_layouts_are_passed_on_and_older_ones_ignored() -> None:
    async def test() -> None:
        node = Node(epoch=3)
        async with serving(node.session) as server:
            watch = _watch(server.port)
            seen: list[int] = []
            await watch.start()
            watch.listeners.append(lambda layout: seen.append(layout.epoch))
            for epoch in (4, 3, 4, 2, 6, 5, 7):
                node.push(epoch)
            await until(lambda: watch.layout.epoch == 7)
            assert seen == [4, 6, 7]
            await watch.close()

    run(test)


def test_a_watch_goes_on_at_another_node_and_takes_nothing_back() -> None:
    async def test() -> None:
        ahead, behind = Node(epoch=5), Node(epoch=4)
        async with serving(behind.session) as second:
            async with serving(ahead.session) as first:
                watch = _watch(first.port)
                await watch.start()
                watch._nodes = Nodes(f"pulsar://{HOST}:{first.port},{HOST}:{second.port}")
            await until(lambda: bool(behind.asked))
            assert watch.layout.epoch == 5
            behind.push(6)
            await until(lambda: watch.layout.epoch == 6)
            await watch.close()

    run(test)


def test_a_topic_made_anew_counts_as_newer_whatever_its_epoch() -> None:
    async def test() -> None:
        node = Node(epoch=9)
        async with serving(node.session) as server:
            watch = _watch(server.port)
            await watch.start()
            node.incarnation = 2
            node.push(0)
            await until(lambda: watch.layout.incarnation == 2)
            await watch.close()

    run(test)


def test_a_deletion_is_passed_on_but_not_one_of_a_former_topic() -> None:
    async def test() -> None:
        node, behind = Node(epoch=2, incarnation=7), Node(epoch=9, incarnation=3)
        async with serving(behind.session) as second:
            async with serving(node.session) as first:
                watch = _watch(first.port)
                await watch.start()
                watch._nodes = Nodes(f"pulsar://{HOST}:{first.port},{HOST}:{second.port}")
            await until(lambda: bool(behind.asked))
            behind.delete()
            await until(lambda: len(behind.asked) > 1)
            assert not watch.layout.deleted
            behind.incarnation = 7
            behind.push(2)
            behind.delete()
            await until(lambda: watch.layout.deleted)
            await watch.close()

    run(test)


def test_an_unknown_topic_is_named() -> None:
    async def test() -> None:
        node = Node(epoch=0)
        node.error = pb.TopicNotFound
        async with serving(node.session) as server:
            with pytest.raises(TopicNotFoundError, match=_TOPIC):
                await _watch(server.port).start()

    run(test)


def test_a_node_that_is_behind_does_not_hide_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_watch, "_UNKNOWN_S_MAX", 60.0)  # however slow the test is

    async def test() -> None:
        node = Node(epoch=0)
        node.error = pb.TopicNotFound
        async with serving(node.session) as server:
            watch = _watch(server.port)
            starting = asyncio.create_task(watch.start())
            await until(lambda: bool(node.asked))
            node.error = None
            assert (await starting).epoch == 0
            await watch.close()

    run(test)


def test_addresses_that_do_not_answer_are_passed_over_or_named() -> None:
    async def test() -> None:
        node = Node(epoch=1)
        with nobody() as closed:
            port = int(closed.rpartition(":")[2])
            async with serving(node.session) as server:
                watch = _watch(port, server.port)
                assert (await watch.start()).epoch == 1
                await watch.close()
            with pytest.raises(NodesUnreachableError, match=closed):
                await _watch(port).start()

    run(test)


def test_what_is_no_node_is_told_from_one_that_is_down() -> None:
    async def test() -> None:
        def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        other = await asyncio.start_server(hang_up, HOST, 0)
        port = other.sockets[0].getsockname()[1]
        with pytest.raises(NodesUnreachableError, match="does not speak the binary protocol"):
            await _watch(port).start()
        other.close()
        await other.wait_closed()

    run(test)
