"""The layout watch against nodes of the test's making: what it believes, and what it says."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.client import LayoutWatch, NodesUnreachableError, TopicNotFoundError
from anabranch.client._topics import watch as layout_watch
from anabranch.client._topics.nodes import Address, Nodes, parse_url
from anabranch.core.errors import InvalidInputError
from anabranch.wire import anabranch_pb2 as pb
from support.nobody import nobody
from support.topic_node import TopicNode
from support.waiting import until
from support.wire import HOST, on_both_loops, serving

_TOPIC = "topic://public/default/orders"


def _watch(*ports: int) -> LayoutWatch:
    return LayoutWatch(Nodes("pulsar://" + ",".join(f"{HOST}:{port}" for port in ports)), _TOPIC)


def test_urls_name_one_node_or_several() -> None:
    assert parse_url("anabranch://one:1,two") == (Address("one", 1), Address("two", 6650))
    assert [str(each) for each in parse_url("pulsar://[::1]:7")] == ["[::1]:7"]
    for wrong in ("http://one:1", "one:1", "pulsar://", "pulsar://one:70000", "pulsar://a b:1"):
        with pytest.raises(InvalidInputError):
            parse_url(wrong)


@on_both_loops
async def test_a_key_is_placed_by_both_halves_of_its_hash() -> None:
    node = TopicNode(epoch=3)
    async with serving(node.session) as server:
        watch = _watch(server.port)
        layout = await watch.start()
        segment, bucket = layout.place("key")  # hash e29c6a44
        assert (segment.segment_id, bucket, segment.info.buckets) == (0, 1, 4)
        assert node.asked == [_TOPIC]
        await watch.close()


@on_both_loops
async def test_newer_layouts_are_passed_on_and_older_ones_ignored() -> None:
    node = TopicNode(epoch=3)
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


@on_both_loops
async def test_a_watch_goes_on_at_another_node_and_takes_nothing_back() -> None:
    ahead, behind = TopicNode(epoch=5), TopicNode(epoch=4)
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


@on_both_loops
async def test_a_topic_made_anew_counts_as_newer_whatever_its_epoch() -> None:
    node = TopicNode(epoch=9)
    async with serving(node.session) as server:
        watch = _watch(server.port)
        await watch.start()
        node.incarnation = 2
        node.push(0)
        await until(lambda: watch.layout.incarnation == 2)
        await watch.close()


@on_both_loops
async def test_a_deletion_is_passed_on_but_not_one_of_a_former_topic() -> None:
    node, behind = TopicNode(epoch=2, incarnation=7), TopicNode(epoch=9, incarnation=3)
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


@on_both_loops
async def test_an_unknown_topic_is_named() -> None:
    node = TopicNode(epoch=0)
    node.error = pb.TopicNotFound
    async with serving(node.session) as server:
        with pytest.raises(TopicNotFoundError, match=_TOPIC):
            await _watch(server.port).start()


@on_both_loops
async def test_a_node_that_is_behind_does_not_hide_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_watch, "_UNKNOWN_S_MAX", 60.0)  # however slow the test is

    node = TopicNode(epoch=0)
    node.error = pb.TopicNotFound
    async with serving(node.session) as server:
        watch = _watch(server.port)
        starting = asyncio.create_task(watch.start())
        await until(lambda: bool(node.asked))
        node.error = None
        assert (await starting).epoch == 0
        await watch.close()


@on_both_loops
async def test_addresses_that_do_not_answer_are_passed_over_or_named() -> None:
    node = TopicNode(epoch=1)
    with nobody() as closed:
        port = int(closed.rpartition(":")[2])
        async with serving(node.session) as server:
            watch = _watch(port, server.port)
            assert (await watch.start()).epoch == 1
            await watch.close()
        with pytest.raises(NodesUnreachableError, match=closed):
            await _watch(port).start()


@on_both_loops
async def test_what_is_no_node_is_told_from_one_that_is_down() -> None:
    def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    other = await asyncio.start_server(hang_up, HOST, 0)
    port = other.sockets[0].getsockname()[1]
    with pytest.raises(NodesUnreachableError, match="does not speak the binary protocol"):
        await _watch(port).start()
    other.close()
    await other.wait_closed()
