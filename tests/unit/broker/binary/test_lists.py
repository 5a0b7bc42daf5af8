"""Lists of topics by the binary protocol, and watches of them, on real sockets."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.core.strangers import AccountLimits
from anabranch.core.topic_lists.topic_list import topics_hash
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.errors import RefusedError
from support.binary import one_node, reachable
from support.list_follower import EMPTY, HOME, drop, follower_of, full, held, make
from support.memory_cluster import WAIT_S, until
from support.wire import is_refused

# --- lists ------------------------------------------------------------------------------


async def test_a_node_lists_the_open_topics_with_pulsars_hash() -> None:
    async with one_node() as node:
        await make(node, "b", "a", "c")
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
        async with follower_of(node) as client:
            answer = await client.list(topics_pattern="topic://public/default/orders-.*")
    assert sorted(answer.topics) == full("orders-1", "orders-2")
    assert (answer.filtered, answer.topics_hash) == (True, topics_hash(answer.topics))


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
            assert gone.changed
            assert (list(gone.topics), gone.topics_hash) == ([], EMPTY)


@pytest.mark.parametrize(
    ("fields", "code", "word"),
    [
        ({"namespace": "garbage"}, pb.ServerError.InvalidTopicName, "garbage"),
        ({"topics_pattern": "("}, pb.ServerError.NotAllowedError, "'('"),
        ({"topics_pattern": ""}, pb.ServerError.NotAllowedError, "empty"),
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


async def test_a_foreign_client_is_told_that_lists_may_be_watched() -> None:
    async with one_node() as node, follower_of(node) as client:
        flags = client.connection.server.feature_flags
        assert flags.supports_topic_watchers
        assert flags.supports_topic_watcher_reconcile
        assert client.connection.server.max_message_size == 64 << 20


# --- watches ----------------------------------------------------------------------------


async def test_a_watch_tells_the_list_and_then_every_change_with_its_hash() -> None:
    async with one_node() as node:
        await make(node, "a", "orders-1")
        async with follower_of(node) as client:
            await client.watch(1)
            first = await client.watch(2, "public/default/orders-.*")
            assert list(first.topic) == full("orders-1")
            await make(node, "orders-2", "b")
            await drop(node, "a", "orders-1")
            await until(lambda: client.has("list", "b", "orders-2"))
            await until(lambda: client.has("list", "orders-2", number=2))


async def test_a_watch_that_is_opened_again_with_its_hash_is_sent_no_names() -> None:
    async with one_node() as node:
        await make(node, "a")
        async with follower_of(node) as client:
            first = await client.watch()
            again = await client.watch(known=first.topics_hash)
            assert (list(again.topic), again.topics_hash) == ([], first.topics_hash)
            assert node.operations.topics.lists.watch_count == 1
            client.watch_scalable(known=first.topics_hash)
            await until(lambda: ("scalable", 1) in client.lists)
            assert client.lists["scalable", 1] == set()  # a difference without names
            await make(node, "b")
            await until(lambda: client.has("scalable", "b"))
            await until(lambda: client.has("list", "a", "b"))


async def test_a_watch_begins_with_the_hash_of_its_list() -> None:
    async with one_node() as node:
        await make(node, "a")
        hashes = [topics_hash(full(*names)) for names in (("a",), ("a", "b"))]
        async with follower_of(node) as client:
            for known in ("", hashes[0]):
                client.pushed.clear()
                client.connection.send(
                    pb.CommandWatchScalableTopics(watch_id=1, namespace=HOME, current_hash=known)
                )
                await until(lambda: bool(client.pushed))
                told = client.pushed[-1].watchScalableTopicsUpdate
                assert told.topics_hash == hashes[0]
            await make(node, "b")
            await until(lambda: client.has("scalable", "a", "b"))
            change = client.pushed[-1].watchScalableTopicsUpdate
            assert not change.HasField("topics_hash")  # whatever has it is a beginning
            client.connection.send(pb.CommandWatchScalableTopics(watch_id=2, namespace=HOME))
            await until(lambda: client.has("scalable", "a", "b", number=2))
            assert client.pushed[-1].watchScalableTopicsUpdate.topics_hash == hashes[1]


async def test_property_filters_follow_properties_that_change() -> None:
    async with one_node() as node:
        topics = node.operations.topics
        await make(node, "a", team="shop", tier="1")
        await make(node, "b", team="shop")
        await make(node, "c", team="bank")
        async with follower_of(node) as client:
            client.watch_scalable(1, team="shop")
            client.watch_scalable(2, team="shop", tier="1")
            client.watch_scalable(3)
            await until(lambda: client.has("scalable", "a", "b"))
            await until(lambda: client.has("scalable", "a", number=2))
            await until(lambda: client.has("scalable", "a", "b", "c", number=3))
            await topics.change_properties(f"{HOME}/c", lambda _: {"team": "shop", "tier": "1"})
            await topics.change_properties(f"{HOME}/a", lambda _: {})
            await until(lambda: client.has("scalable", "b", "c"))
            await until(lambda: client.has("scalable", "c", number=2))
            assert client.has("scalable", "a", "b", "c", number=3)


async def test_watches_of_either_kind_are_refused_in_their_own_way() -> None:
    async with one_node() as node:
        async with follower_of(node) as client:
            await is_refused(client.watch(1, "["), pb.ServerError.NotAllowedError, r"'\['")
            client.watch_scalable(5, **{f"p{number}": "v" for number in range(65)})
            await until(lambda: 5 in client.errors)
            assert "65 property filters" in client.errors[5].message
            twice = [pb.KeyValue(key="team", value=value) for value in ("a", "b", "a")]
            asked = pb.CommandWatchScalableTopics(watch_id=7, namespace=HOME)
            asked.property_filters.extend(twice)
            client.connection.send(asked)
            await until(lambda: 7 in client.errors)
            assert "'team' is to be 'a' and 'b'" in client.errors[7].message
            client.connection.send(pb.CommandWatchScalableTopics(watch_id=6, namespace="/"))
            await until(lambda: 6 in client.errors)
            assert client.errors[6].error == pb.ServerError.InvalidTopicName
            assert node.operations.topics.lists.watch_count == 0
        assert held(node) == 0


async def test_a_closed_watch_and_a_closed_connection_are_told_nothing_more() -> None:
    async with one_node() as node:
        lists = node.operations.topics.lists
        async with follower_of(node) as client:
            await client.watch(1)
            await client.watch(2)
            client.watch_scalable(1)
            await until(lambda: lists.watch_count == 3)
            closed = await client.connection.request(
                pb.CommandWatchTopicListClose(watcher_id=1), WAIT_S
            )
            assert closed.type == BaseCommand.SUCCESS
            client.connection.send(pb.CommandWatchScalableTopicsClose(watch_id=1))
            await until(lambda: lists.watch_count == 1)
            await make(node, "a")
            await until(lambda: client.has("list", "a", number=2))
            assert client.has("list")
            assert client.lists["scalable", 1] == set()
        await until(lambda: lists.watch_count == 0)
        assert held(node) == 0


async def test_a_watch_too_many_is_refused_and_those_before_go_on() -> None:
    limits = ConnectionLimits(account=AccountLimits(watches=40))

    async with one_node() as node, follower_of(node, limits) as client:
        for number in range(20):
            client.watch_scalable(number)
        await until(lambda: len(client.lists) == 20)
        with pytest.raises(RefusedError, match="40 watches"):
            await client.watch(20)
        client.watch_scalable(3)  # of the same number: it begins anew
        client.watch_scalable(21)
        await until(lambda: 21 in client.errors)
        assert client.errors[21].error == pb.ServerError.TooManyRequests
        await make(node, "a")
        await until(lambda: all(client.has("scalable", "a", number=n) for n in range(20)))


async def test_a_view_that_is_built_anew_tells_its_own_list() -> None:
    async with reachable() as cluster:
        node = cluster.nodes[0]
        await make(node, "a", "b")
        async with follower_of(node) as client:
            client.watch_scalable()
            await until(lambda: client.has("scalable", "a", "b"))
            fresh = type(node.view)()
            for entry in cluster.entries:
                fresh.read_batch([entry])
            fresh.apply([(f"topic:{HOME}/b", None)])
            node.view = fresh
            node.runtime.replaced(fresh)
            await until(lambda: client.has("scalable", "a"))
