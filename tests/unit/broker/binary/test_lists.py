"""Lists of topics by the binary protocol, on real sockets."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.core.topic_lists.sorted_names import topics_hash
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.errors import RefusedError
from support.binary import one_node, reachable
from support.list_follower import EMPTY, HOME, drop, follower_of, full, held, make
from support.memory_cluster import until

# --- lists ------------------------------------------------------------------------------


async def test_a_node_lists_the_open_topics_with_pulsars_hash() -> None:
    async with reachable() as cluster:
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


async def test_a_topic_that_is_being_made_or_deleted_is_not_listed() -> None:
    async with reachable() as cluster:
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


async def test_a_pattern_selects_whole_names_without_their_domain() -> None:
    async with one_node() as node:
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


async def test_no_topic_is_non_persistent_and_none_of_a_missing_namespace() -> None:
    async with one_node() as node:
        await make(node, "a")
        async with follower_of(node) as client:
            mode = pb.CommandGetTopicsOfNamespace.NON_PERSISTENT
            none = await client.list(mode=mode)
            assert (list(none.topics), none.topics_hash, none.changed) == ([], EMPTY, True)
            assert not (await client.list(mode=mode, topics_hash=EMPTY)).changed
            assert len((await client.list(mode=pb.CommandGetTopicsOfNamespace.ALL)).topics) == 1
            gone = await client.list(namespace="public/none")
            assert (list(gone.topics), gone.topics_hash) == ([], EMPTY)


@pytest.mark.parametrize(
    ("fields", "code", "word"),
    [
        ({"namespace": "garbage"}, pb.ServerError.InvalidTopicName, "garbage"),
        ({"namespace": "../.."}, pb.ServerError.InvalidTopicName, ".."),
        ({"topics_pattern": "("}, pb.ServerError.NotAllowedError, "'('"),
        ({"topics_pattern": ""}, pb.ServerError.NotAllowedError, "empty"),
        ({"topics_pattern": "(?=a)a"}, pb.ServerError.NotAllowedError, "(?=a)a"),
        ({"topics_pattern": "x" * 50_000}, pb.ServerError.NotAllowedError, "50000 char"),
        ({"topics_pattern": "(.{0,300}x){3}"}, pb.ServerError.NotAllowedError, "{0,300}"),
    ],
)
async def test_what_cannot_be_meant_is_refused_by_name_and_the_connection_goes_on(
    fields: dict[str, str], code: pb.ServerError, word: str
) -> None:
    async with one_node() as node:
        async with follower_of(node) as client:
            with pytest.raises(RefusedError) as refused:
                await client.list(**fields)
            assert refused.value.code == code
            assert word in refused.value.reason
            assert (await client.list()).topics_hash == EMPTY
        assert held(node) == 0


async def test_patterns_that_hang_others_cost_a_moment() -> None:
    async with one_node() as node:
        await make(node, "a" * 200 + "-")
        async with follower_of(node) as client:
            for pattern in ("(a+)+b", "(.*a){60}b", "public/default/(a?){99}a{99}"):
                answer = await client.list(topics_pattern=pattern)
                assert answer.filtered
                assert list(answer.topics) == []


async def test_a_foreign_client_is_told_that_lists_may_be_watched() -> None:
    async with reachable() as cluster, follower_of(cluster.nodes[0]) as client:
        flags = client.connection.server.feature_flags
        assert flags.supports_topic_watchers
        assert flags.supports_topic_watcher_reconcile
        assert client.connection.server.max_message_size == 64 << 20
