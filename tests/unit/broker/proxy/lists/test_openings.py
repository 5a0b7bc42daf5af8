"""The lists with which watches of scalable topics begin at a proxy: shared, and of nobody else."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from support.listing_node import (
    ListingNode,
    answer,
    before_another,
    client_of,
    deaf,
    held,
    run,
    watch,
)
from support.memory_cluster import until
from support.proxied import RunningProxy
from support.wire import Raw

LONG = 150_000
SMALL = {"maxTopicListInFlightHeapMemSizeMB": 12, "maxTopicListInFlightDirectMemSizeMB": 12}


async def told(client: Raw) -> pb.CommandWatchScalableTopicsUpdate:
    return (await answer(client)).watchScalableTopicsUpdate


def test_a_list_that_many_watch_takes_the_memory_of_one() -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with AsyncExitStack() as stack:
            for number, each in enumerate(await deaf(stack, proxy, 6), 1):
                watch(each, LONG, number)
            await until(lambda: min(held(proxy)) > 6 << 20 and node.asked == 6)
            most, told_before = held(proxy), node.told
            async with client_of(proxy) as eager:
                for number in (77, 78):
                    watch(eager, LONG, number)
                    found = await told(eager)
                    assert found.watch_id == number
                    assert list(found.snapshot.topics) == node.names(LONG)
                assert node.told == told_before  # the node was asked whether it is still that list
                known = pb.CommandWatchScalableTopics(
                    watch_id=79, namespace=f"public/{LONG}", current_hash="abc"
                )
                eager.send(commands.envelope(known))
                found = await told(eager)
                assert (found.watch_id, found.WhichOneof("event")) == (79, "diff")
            assert all(now <= then for now, then in zip(held(proxy), most, strict=True))
        await until(lambda: held(proxy) == (0, 0))
        assert not len(proxy.proxy.shared.lists)

    run(test, **SMALL)  # two of these lists have no room side by side


def test_who_watches_after_a_list_has_changed_is_told_the_new_one() -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with AsyncExitStack() as stack:
            (lazy,) = await deaf(stack, proxy, 1)
            watch(lazy, LONG)
            await until(lambda: min(held(proxy)) > 6 << 20)
            node.hash = "def"
            async with client_of(proxy) as eager:
                watch(eager, LONG)
                found = await told(eager)
                assert (found.topics_hash, len(found.snapshot.topics)) == ("def", LONG)
        await until(lambda: held(proxy) == (0, 0))

    run(test)


@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.003, 0.01, 0.03])
def test_who_goes_while_he_reads_a_list_for_others_takes_it_from_nobody(delay_s: float) -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(client_of(proxy)) for _ in range(4)]
            for each in clients:
                watch(each, 100_000)
            await asyncio.sleep(delay_s)
            clients[0].writer.transport.abort()
            for each in clients[1:]:
                assert len((await told(each)).snapshot.topics) == 100_000
        await until(lambda: held(proxy) == (0, 0))
        assert not len(proxy.proxy.shared.lists)

    run(test)


def test_the_answer_to_another_question_under_the_same_id_is_nobody_s() -> None:
    """Else whoever opens a watch twice could have others told a list of his choice."""

    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with client_of(proxy) as restless, client_of(proxy) as other:
            node.waits.clear()
            watch(restless, 9, 5)
            watch(restless, 7, 5)
            watch(restless, 3, 6)  # when the node has this one, the proxy has had both before it
            watch(other, 7, 5)
            await until(lambda: node.asked == 3)  # under one id it answers one after the other
            node.waits.set()
            found = await told(other)
            assert (found.watch_id, list(found.snapshot.topics)) == (5, node.names(7))
            lists = [await told(restless) for _ in range(2)]
            assert {each.watch_id: list(each.snapshot.topics) for each in lists} == {
                5: node.names(7),
                6: node.names(3),
            }
        await until(lambda: held(proxy) == (0, 0))

    run(test)


def test_a_watch_that_was_closed_is_told_nothing() -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with client_of(proxy) as client:
            node.waits.clear()
            watch(client, 9, 5)
            await until(lambda: node.asked == 1)
            client.send(commands.envelope(pb.CommandWatchScalableTopicsClose(watch_id=5)))
            watch(client, 3, 6)
            await until(lambda: node.asked == 2)
            node.waits.set()
            found = await told(client)
            assert (found.watch_id, list(found.snapshot.topics)) == (6, node.names(3))
        await until(lambda: held(proxy) == (0, 0))

    run(test)


def test_two_proxies_one_before_the_other_tell_what_each_client_asked() -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with before_another(proxy) as outer, AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(client_of(outer)) for _ in range(3)]
            node.waits.clear()
            for number, client in enumerate(clients, 1):
                watch(client, 20_000, number)
                asked = pb.CommandGetTopicsOfNamespace(
                    request_id=70 + number, namespace="public/20000"
                )
                client.send(commands.envelope(asked))
            await until(lambda: node.asked >= 3)
            node.waits.set()
            for number, client in enumerate(clients, 1):
                both = [await answer(client) for _ in range(2)]
                watched = next(each for each in both if each.HasField("watchScalableTopicsUpdate"))
                told_list = watched.watchScalableTopicsUpdate
                assert (told_list.watch_id, len(told_list.snapshot.topics)) == (number, 20_000)
                listed = next(each for each in both if each is not watched)
                answered = listed.getTopicsOfNamespaceResponse
                assert (answered.request_id, len(answered.topics)) == (70 + number, 20_000)
        await until(lambda: held(proxy) == (0, 0))

    run(test)


def test_a_node_that_begins_anew_with_the_list_of_the_beginning_is_believed() -> None:
    """The client has had others since: that it had it once does not count any more."""

    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with client_of(proxy) as client:
            asked = pb.CommandWatchScalableTopics(
                watch_id=5, namespace="public/3", current_hash="abc"
            )
            client.send(commands.envelope(asked))
            assert (await told(client)).WhichOneof("event") == "diff"
            peer, opening = node.peers[-1], node.opened[5]
            gone = pb.ScalableTopicsDiff(removed=node.names(1))
            node.send(peer, pb.CommandWatchScalableTopicsUpdate(watch_id=5, diff=gone))
            assert list((await told(client)).diff.removed) == node.names(1)
            anew = pb.CommandWatchScalableTopicsUpdate(
                watch_id=5, topics_hash="abc", opening=opening
            )
            node.send_names(peer, anew, node.names(3))
            assert list((await told(client)).snapshot.topics) == node.names(3)
        await until(lambda: held(proxy) == (0, 0))

    run(test)


def test_filters_that_nobody_serves_are_refused_by_the_proxy_itself() -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with client_of(proxy) as client:
            for number, filters in (
                (1, [pb.KeyValue(key=f"p{each}", value="v") for each in range(65)]),
                (2, [pb.KeyValue(key="team", value=each) for each in ("a", "b")]),
            ):
                asked = pb.CommandWatchScalableTopics(watch_id=number, namespace="public/1")
                asked.property_filters.extend(filters)
                client.send(commands.envelope(asked))
                found = await told(client)
                assert (found.watch_id, found.error) == (number, pb.ServerError.InvalidTopicName)
            (peer,) = proxy.proxy.wire.peers
            assert not proxy.proxy.wire.gate.account.watches_of(peer)
            assert not node.asked

    run(test)


def test_a_client_s_watches_say_no_more_together_than_a_proxy_keeps() -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with client_of(proxy) as client:

            async def watched(number: int) -> pb.CommandWatchScalableTopicsUpdate:
                asked = pb.CommandWatchScalableTopics(watch_id=number, namespace="public/1")
                asked.property_filters.extend(
                    pb.KeyValue(key=f"p{each}", value="v" * 60_000) for each in range(64)
                )
                client.send(commands.envelope(asked))
                found = await told(client)
                assert found.watch_id == number
                return found

            for number in (1, 2, 1):  # what takes the place of another one counts once
                assert not (await watched(number)).HasField("error")
            found = await watched(3)
            assert (found.error, "8 MiB" in found.message) == (pb.ServerError.TooManyRequests, True)
            close = pb.CommandWatchScalableTopicsClose(watch_id=2)
            client.send(commands.envelope(close))
            assert not (await watched(3)).HasField("error")

    run(test)
