"""The layout watch against nodes of the test's making: what it believes, and what it says."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch.access import Tls
from anabranch.client import (
    DeadlineError,
    LayoutWatch,
    NodesUnreachableError,
    RefusedByNodeError,
    TopicNotFoundError,
    TopicSelection,
)
from anabranch.client._topics import watch as layout_watch
from anabranch.client._topics.list_watch import TopicListWatch
from anabranch.client._topics.nodes import Address, NodeAccess, Nodes, parse_url
from anabranch.client._topics.topic_list import ListChange, ToldTopics
from anabranch.core.errors import InvalidInputError
from anabranch.core.topic_lists.selection import Selector, by_pattern
from anabranch.core.topic_lists.topic_list import topics_hash
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.framing import encode_frame
from support.authority import Authority, Issued
from support.lister import Lister
from support.nobody import nobody
from support.topic_node import TopicNode
from support.waiting import WAIT_S, until
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


# --- the watch of a list of topics against nodes of the test's making: what it tells, and when it


_A, _B, _C = (f"topic://public/default/{each}" for each in "abc")


def _bare(*names: str) -> frozenset[str]:
    return frozenset(name.rpartition("://")[2] for name in names)


_SELECTIONS = [TopicSelection("public/default"), TopicSelection("public/default", pattern="[a-z]")]


def test_what_a_pattern_says_of_its_beginning_and_end_is_of_the_name_in_its_namespace() -> None:
    selection = TopicSelection("public/default", pattern="^orders-.*$")
    assert Selector(by_pattern(selection.wire_pattern)).takes("public/default/orders-eu")


def _list_watch(selection: TopicSelection, *ports: int) -> tuple[TopicListWatch, list[ListChange]]:
    url = "pulsar://" + ",".join(f"{HOST}:{port}" for port in ports)
    watch = TopicListWatch(Nodes(url), selection)
    seen: list[ListChange] = []
    watch.listeners.append(seen.append)
    return watch, seen


@pytest.mark.parametrize("selection", _SELECTIONS)
@on_both_loops
async def test_what_changed_while_no_node_was_there_is_told_once(
    selection: TopicSelection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, layout_watch.__name__)
    caplog.clear()  # of the other loop's lines
    node = Lister(_A, _B)
    async with serving(node.session) as server:
        watch, seen = _list_watch(selection, server.port)
        await watch.start()
        node.cut()
        node.change(added=_C, removed=_A)  # nobody hears it
        await until(lambda: watch.topics == _bare(_B, _C))
        change = ListChange(added=("public/default/c",), removed=("public/default/a",))
        assert seen == [change]
        node.cut()
        await until(lambda: len(node.asked) == 3)
        node.change(added=_A)
        await until(lambda: len(watch.topics) == 3)
        assert seen == [change, ListChange(added=("public/default/a",))]
        assert node.asked == ["", topics_hash([_A, _B]), topics_hash([_B, _C])]
        assert caplog.text.count("watch.lost") >= 2
        await watch.close()


@on_both_loops
async def test_a_difference_that_leads_elsewhere_has_the_whole_list_asked_for() -> None:
    node = Lister(_A)
    async with serving(node.session) as server:
        watch, _ = _list_watch(_SELECTIONS[1], server.port)
        await watch.start()
        node.topics.add(_B)  # which it forgets to tell
        node.change(added=_C)
        await until(lambda: watch.topics == _bare(_A, _B, _C))
        assert node.asked == ["", ""]
        await watch.close()


@on_both_loops
async def test_a_refusal_that_is_final_is_told_to_who_starts_the_watch() -> None:
    node = Lister()
    node.error = pb.NotAllowedError
    async with serving(node.session) as server:
        watch, _ = _list_watch(_SELECTIONS[0], server.port)
        with pytest.raises(RefusedByNodeError, match="not for you"):
            await watch.start()


@pytest.mark.parametrize(
    "wrong",
    [
        {"namespace": "public"},
        {"namespace": "public/default", "pattern": 5},
        {"namespace": "public/default", "pattern": "a)|(b"},
        {"namespace": "public/default", "properties": {"a": 1}},
        {"namespace": "public/default", "pattern": "a", "properties": {"a": "b"}},
    ],
)
def test_a_selection_that_means_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        TopicSelection(**wrong)  # type: ignore[arg-type]


def test_differences_and_lists_in_any_order_of_loss_end_in_the_node_s_own_list() -> None:
    names = [f"topic://public/default/t{number}" for number in range(20)]
    for seed in range(60):
        draw = random.Random(seed)
        node: set[str] = set()
        told, topics = ToldTopics(), set[str]()
        told.replace(())
        for _ in range(60):
            added = set(draw.sample(names, 2)) - node
            removed = set(draw.sample(sorted(node), min(len(node), 1)))
            node = (node - removed) | added
            if draw.random() < 0.2:
                continue  # it is lost
            change = told.differ(added, removed, topics_hash(node))
            if change is None:
                change = told.replace(node)
            assert not topics & set(change.added)
            assert set(change.removed) <= topics
            topics = (topics - set(change.removed)) | set(change.added)
            assert topics == told.topics == _bare(*node)


@on_both_loops
async def test_who_waits_in_vain_is_told_what_nodes_said() -> None:
    node = Lister(_A)
    node.error = pb.ServerError.TooManyRequests
    async with serving(node.session) as server:
        watch, _ = _list_watch(TopicSelection("public/default"), server.port)
        with pytest.raises(DeadlineError, match=r"in 1 s: .*refused to tell .*not for you"):
            await watch.start(1.0)


# --- what a client's connections leave behind -----------------------------------------------------


@contextmanager
def silent_node(issued: Issued) -> Iterator[int]:
    """The port of one that welcomes a client by TLS, and neither reads nor says anything more."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    welcome = pb.CommandConnected(server_version="silent", protocol_version=21)
    over = threading.Event()

    def serve() -> None:
        plain, _ = listener.accept()
        with context.wrap_socket(plain, server_side=True) as client:
            client.recv(65_536)
            client.sendall(encode_frame(commands.envelope(welcome).SerializeToString()))
            over.wait(WAIT_S)

    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(WAIT_S)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize("by", ["its user", "the client"])
def test_nothing_is_left_of_a_connection_without_a_goodbye(tmp_path: Path, by: str) -> None:
    authority = Authority(tmp_path)

    async def test(port: int) -> None:
        access = NodeAccess(f"pulsar+ssl://{HOST}:{port}", Tls(ca_file=authority.file))
        made = await access.connect(HOST, port, on_push=lambda _: None, timeout_s=WAIT_S)
        if by == "its user":
            made.close("it is over")
            await access.end()
            assert made.closed.done()
        else:
            await access.end()
            assert await made.closed == "the client was closed"

    with silent_node(authority.issue("node", server=True)) as port:
        asyncio.run(test(port))
        gc.collect()  # what an open socket says then fails the test
