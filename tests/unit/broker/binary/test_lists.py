"""Lists of topics by the binary protocol, on real sockets."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.broker.binary.sessions import sessions
from anabranch.core.topic_lists.sorted_names import topics_hash
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.errors import RefusedError
from support.list_follower import EMPTY, HOME, drop, follower_of, full, held, make, run
from support.memory_cluster import MemoryCluster, until
from support.wire import raw, serving

# --- lists ------------------------------------------------------------------------------


def test_a_node_lists_the_open_topics_with_pulsars_hash() -> None:
    async def test(cluster: MemoryCluster) -> None:
        await make(cluster.nodes[0], "b", "a", "c")
        await until(lambda: all(node.view.topic(f"{HOME}/c") for node in cluster.nodes))
        for node in cluster.nodes:
            async with follower_of(node) as client:
                answer = await client.list()
                assert sorted(answer.topics) == full("a", "b", "c")
                assert answer.topics_hash == topics_hash(full("a", "b", "c"))
                assert (answer.filtered, answer.changed) == (False, True)
                again = await client.list(topics_hash=answer.topics_hash)
                assert (list(again.topics), again.changed) == ([], False)
                assert again.topics_hash == answer.topics_hash
            assert held(node) == 0

    run(test)


def test_any_node_lists_and_tells_what_another_one_has_made() -> None:
    async def test(cluster: MemoryCluster) -> None:
        access = cluster.nodes[0].operations.topics.access
        located = await access.find_controller(f"{HOME}/a")
        owner = next(node for node in cluster.nodes if node.id == located.broker)
        other = next(node for node in cluster.nodes if node is not owner)
        async with follower_of(other) as client:
            await client.watch()
            await make(owner, "a")
            await until(lambda: client.has("list", "a"))
            assert list((await client.list()).topics) == full("a")

    run(test, 2)


def test_a_list_follows_what_is_made_and_deleted() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        async with follower_of(node) as client:
            assert (await client.list()).topics_hash == EMPTY
            await make(node, "a", "b")
            assert list((await client.list()).topics) == full("a", "b")
            await drop(node, "a")
            assert list((await client.list()).topics) == full("b")

    run(test)


def test_a_topic_that_is_being_made_or_deleted_is_not_listed() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await make(node, "a", "b")
        async with follower_of(node) as client:
            await client.watch()
            cluster.segments.hold.clear()
            creating = asyncio.create_task(make(node, "c"))
            deleting = asyncio.create_task(drop(node, "b"))
            await until(lambda: client.has("list", "a"))
            await until(lambda: node.view.topic(f"{HOME}/c") is not None)
            assert list((await client.list()).topics) == full("a")
            cluster.segments.hold.set()
            await asyncio.gather(creating, deleting)
            await until(lambda: client.has("list", "a", "c"))

    run(test)


def test_a_pattern_selects_whole_names_without_their_domain() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await make(node, "orders-1", "orders-2", "invoices", "my-orders-1")

        async def listed(pattern: str) -> list[str]:
            answer = await client.list(topics_pattern=pattern)
            assert answer.filtered
            assert answer.topics_hash == topics_hash(answer.topics)
            return sorted(name.rpartition("/")[2] for name in answer.topics)

        async with follower_of(node) as client:
            assert await listed("public/default/orders-.*") == ["orders-1", "orders-2"]
            assert await listed("topic://public/default/orders-.*") == ["orders-1", "orders-2"]
            assert await listed("persistent://public/default/orders-1") == ["orders-1"]
            assert await listed("orders-.*") == []
            assert len(await listed(".*")) == 4
            assert await listed(".*/(invoices|orders-2)") == ["invoices", "orders-2"]

    run(test)


def test_there_are_no_non_persistent_topics_and_none_of_a_namespace_that_is_not_there() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await make(node, "a")
        async with follower_of(node) as client:
            mode = pb.CommandGetTopicsOfNamespace.NON_PERSISTENT
            none = await client.list(mode=mode)
            assert (list(none.topics), none.topics_hash, none.changed) == ([], EMPTY, True)
            assert not (await client.list(mode=mode, topics_hash=EMPTY)).changed
            assert len((await client.list(mode=pb.CommandGetTopicsOfNamespace.ALL)).topics) == 1
            gone = await client.list(namespace="public/none")
            assert (list(gone.topics), gone.topics_hash) == ([], EMPTY)

    run(test)


@pytest.mark.parametrize(
    ("fields", "code", "word"),
    [
        ({"namespace": "garbage"}, pb.ServerError.InvalidTopicName, "garbage"),
        ({"namespace": "a/b/c"}, pb.ServerError.InvalidTopicName, "a/b/c"),
        ({"namespace": "../.."}, pb.ServerError.InvalidTopicName, ".."),
        ({"namespace": "x" * 100_000}, pb.ServerError.InvalidTopicName, "tenant/namespace"),
        ({"topics_pattern": "("}, pb.ServerError.NotAllowedError, "'('"),
        ({"topics_pattern": ""}, pb.ServerError.NotAllowedError, "empty"),
        ({"topics_pattern": "(?=a)a"}, pb.ServerError.NotAllowedError, "(?=a)a"),
        ({"topics_pattern": "x" * 1_000_000}, pb.ServerError.NotAllowedError, "1000000 char"),
        ({"topics_pattern": "(.{0,300}x){3}"}, pb.ServerError.NotAllowedError, "{0,300}"),
        ({"topics_pattern": "http://a"}, pb.ServerError.NotAllowedError, "http://a"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name_and_the_connection_goes_on(
    fields: dict[str, str], code: pb.ServerError, word: str
) -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        async with follower_of(node) as client:
            with pytest.raises(RefusedError) as refused:
                await client.list(**fields)
            assert refused.value.code == code
            assert word in refused.value.reason
            assert (await client.list()).topics_hash == EMPTY
        assert held(node) == 0

    run(test)


def test_patterns_that_hang_others_cost_a_moment() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await make(node, "a" * 200 + "-")
        async with follower_of(node) as client:
            for pattern in (
                "(a+)+b",
                "(a|a)*b",
                "(.*a){60}b",
                "((a*)*)*b",
                "public/default/(a?){99}a{99}",
            ):
                answer = await client.list(topics_pattern=pattern)
                assert answer.filtered
                assert list(answer.topics) == []

    run(test)


def test_an_unknown_mode_is_the_default() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await make(node, "a")
        async with (
            serving(sessions(node.operations, node.settings)) as server,
            raw(server.port) as client,
        ):
            await client.handshake()
            asked = pb.CommandGetTopicsOfNamespace(request_id=7, namespace=HOME)
            command = BaseCommand(
                type=BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=asked
            )
            payload = asked.SerializeToString() + b"\x18\x63"  # mode = 99
            data = BaseCommand(type=command.type).SerializeToString()
            client.send(data + b"\x82\x02" + bytes([len(payload)]) + payload)
            answer = await client.answer()
            assert answer is not None
            assert answer.getTopicsOfNamespaceResponse.request_id == 7
            assert list(answer.getTopicsOfNamespaceResponse.topics) == full("a")

    run(test)


def test_a_foreign_client_is_told_that_lists_may_be_watched() -> None:
    async def test(cluster: MemoryCluster) -> None:
        async with follower_of(cluster.nodes[0]) as client:
            flags = client.connection.server.feature_flags
            assert flags.supports_topic_watchers
            assert flags.supports_topic_watcher_reconcile
            assert client.connection.server.max_message_size == 64 << 20

    run(test)
