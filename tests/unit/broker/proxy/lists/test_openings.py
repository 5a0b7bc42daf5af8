"""The lists with which watches of scalable topics begin at a proxy: shared, and of nobody else."""

from __future__ import annotations

from contextlib import AsyncExitStack

from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from support.listing_node import before_another, client_of, held, listed, watch
from support.memory_cluster import until
from support.wire import Raw


async def told(client: Raw) -> pb.CommandWatchScalableTopicsUpdate:
    return (await client.told()).watchScalableTopicsUpdate


async def test_the_answer_to_another_question_under_the_same_id_is_nobody_s() -> None:
    """Else whoever opens a watch twice could have others told a list of his choice."""

    async with listed() as (proxy, node):
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


async def test_a_watch_that_was_closed_is_told_nothing() -> None:
    async with listed() as (proxy, node):
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


async def test_two_proxies_one_before_the_other_tell_what_each_client_asked() -> None:
    async with listed() as (proxy, node):
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
                both = [await client.told() for _ in range(2)]
                watched = next(each for each in both if each.HasField("watchScalableTopicsUpdate"))
                told_list = watched.watchScalableTopicsUpdate
                assert (told_list.watch_id, len(told_list.snapshot.topics)) == (number, 20_000)
                lists = next(each for each in both if each is not watched)
                answered = lists.getTopicsOfNamespaceResponse
                assert (answered.request_id, len(answered.topics)) == (70 + number, 20_000)
        await until(lambda: held(proxy) == (0, 0))


async def test_a_node_that_begins_anew_with_the_list_of_the_beginning_is_believed() -> None:
    """The client has had others since: that it had it once does not count any more."""

    async with listed() as (proxy, node):
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


async def test_filters_that_nobody_serves_are_refused_by_the_proxy_itself() -> None:
    async with listed() as (proxy, node), client_of(proxy) as client:
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


async def test_a_client_s_watches_say_no_more_together_than_a_proxy_keeps() -> None:
    async with listed() as (proxy, _), client_of(proxy) as client:

        async def watched(number: int) -> pb.CommandWatchScalableTopicsUpdate:
            asked = pb.CommandWatchScalableTopics(watch_id=number, namespace="public/1")
            asked.property_filters.extend(
                pb.KeyValue(key=f"p{each}", value="v" * 60_000) for each in range(64)
            )
            client.send(commands.envelope(asked))
            found = await told(client)
            assert found.watch_id == number
            return found

        for number in (1, 2, 3, 4, 1):  # what takes the place of another one counts once
            assert not (await watched(number)).HasField("error")
        found = await watched(5)
        assert (found.error, "32 MiB" in found.message) == (pb.ServerError.TooManyRequests, True)
        client.send(commands.envelope(pb.CommandWatchScalableTopicsClose(watch_id=2)))
        assert not (await watched(5)).HasField("error")
