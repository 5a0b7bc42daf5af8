"""The binary protocol through a proxy: every answer, its addresses, and nodes that go away."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial

import pytest

from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.client import ClientConnection
from anabranch.wire.commands import NO_REQUEST
from anabranch.wire.errors import RefusedError
from anabranch.wire.memory.limiter import LimitType
from support.memory_cluster import WAIT_S, MemoryCluster, until
from support.proxied import RunningProxy, ServedNode, with_proxy
from support.wire import raw

NAME = "public/default/orders"
FULL = f"topic://{NAME}"


async def owner_of(nodes: list[ServedNode], name: str = NAME) -> ServedNode:
    located = await nodes[0].node.operations.topics.access.find_controller(name)
    return next(each for each in nodes if each.node.id == located.broker)


async def create(nodes: list[ServedNode], segments: int) -> None:
    await (await owner_of(nodes)).node.operations.topics.create(NAME, segments, {})


async def lookup(client: ClientConnection, topic: str = FULL) -> pb.CommandLookupTopicResponse:
    return (await client.request(pb.CommandLookupTopic(topic=topic), WAIT_S)).lookupTopicResponse


def subscribe(consumer_id: int = 1) -> pb.CommandScalableTopicSubscribe:
    return pb.CommandScalableTopicSubscribe(
        topic=FULL,
        subscription="billing",
        consumer_name=f"c-{consumer_id}",
        consumer_id=consumer_id,
        consumer_type=pb.ScalableConsumerType.STREAM,
        instance=consumer_id,
    )


def test_a_look_up_names_the_proxy_and_no_node() -> None:
    async def test(proxy: RunningProxy, nodes: list[ServedNode], _: MemoryCluster) -> None:
        async with proxy.client() as client:
            for number in range(20):
                answer = await lookup(client, f"persistent://public/default/t{number}")
                assert answer.response == pb.CommandLookupTopicResponse.Connect
                assert answer.brokerServiceUrl == proxy.service_url

    with_proxy(test)


def test_a_refusal_of_a_node_is_passed_on_as_it_is() -> None:
    async def test(proxy: RunningProxy, nodes: list[ServedNode], _: MemoryCluster) -> None:
        async with proxy.client() as client:
            with pytest.raises(RefusedError) as refused:
                await lookup(client, "persistent://public/nowhere/t")
            assert refused.value.code == pb.ServerError.TopicNotFound
            with pytest.raises(RefusedError) as refused:
                await lookup(client, "not a topic")
            assert refused.value.code == pb.ServerError.InvalidTopicName

    with_proxy(test)


def test_two_clients_with_the_same_ids_get_each_its_own_answers() -> None:
    async def test(proxy: RunningProxy, nodes: list[ServedNode], _: MemoryCluster) -> None:
        async def ask(topics: list[str]) -> None:
            async with raw(proxy.port) as client:
                await client.handshake()
                for number, topic in enumerate(topics):
                    command = pb.CommandLookupTopic(topic=topic, request_id=number)
                    client.send(BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=command))
                found = {}
                for _ in topics:
                    answer = await client.answer()
                    assert answer is not None
                    said = answer.lookupTopicResponse
                    found[said.request_id] = said.message or "found"
                expected = {n: "found" if "good" in t else "" for n, t in enumerate(topics)}
                for number, want in expected.items():
                    assert (found[number] == "found") == bool(want), topics[number]
                    if not want:
                        assert topics[number].split("/")[3] in found[number]

        good, bad = "persistent://public/default/good{}", "persistent://public/none{}/t"
        one = [(good if n % 2 else bad).format(n) for n in range(100)]
        two = [(bad if n % 2 else good).format(n) for n in range(100)]
        await asyncio.gather(ask(one), ask(two))

    with_proxy(test)


def test_a_watch_tells_layouts_with_the_proxy_s_addresses() -> None:
    async def test(proxy: RunningProxy, nodes: list[ServedNode], _: MemoryCluster) -> None:
        await create(nodes, 2)
        pushed: list[BaseCommand] = []
        async with proxy.client(pushed.append) as client:
            client.send(pb.CommandScalableTopicLookup(session_id=7, topic=FULL))
            await until(lambda: bool(pushed))
            update = pushed[0].scalableTopicUpdate
            assert update.session_id == 7
            assert update.dag.controller_broker_url == proxy.service_url
            assert {each.broker_url for each in update.dag.segment_brokers} == {proxy.service_url}
            owner = await owner_of(nodes)
            await owner.node.operations.topics.split(NAME, 0)
            await until(lambda: len(pushed[-1].scalableTopicUpdate.dag.segments) == 4)

    with_proxy(test)


def test_a_watch_goes_on_at_another_node_and_tells_nothing_twice() -> None:
    async def test(proxy: RunningProxy, nodes: list[ServedNode], _: MemoryCluster) -> None:
        await create(nodes, 2)
        pushed: list[BaseCommand] = []
        async with proxy.client(pushed.append) as client:
            client.send(pb.CommandScalableTopicLookup(session_id=7, topic=FULL))
            await until(lambda: bool(pushed))
            told = len(pushed)
            for each in nodes:
                for peer in list(each.wire.peers):
                    peer.abort("the link is cut")
            await until(lambda: proxy.proxy.shared.counts.moved_watches >= 1)
            await lookup(client)
            assert len(pushed) == told  # the same version is no news
            await (await owner_of(nodes)).node.operations.topics.split(NAME, 0)
            await until(lambda: len(pushed[-1].scalableTopicUpdate.dag.segments) == 4)
            versions = [each.scalableTopicUpdate.dag.version for each in pushed]
            assert versions == sorted(set(versions))

    with_proxy(test)


def test_look_ups_that_a_node_leaves_unanswered_are_answered_by_another() -> None:
    async def test(proxy: RunningProxy, nodes: list[ServedNode], _: MemoryCluster) -> None:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(proxy.client()) for _ in range(4)]
            for client in clients:
                await lookup(client)

            answered = dict.fromkeys(clients, 0)
            cuts = 10

            async def ask(client: ClientConnection) -> None:
                while cuts:
                    answer = await lookup(client)
                    assert answer.brokerServiceUrl == proxy.service_url
                    answered[client] += 1

            def all_answered(since: dict[ClientConnection, int]) -> bool:
                return all(count > since[client] for client, count in answered.items())

            async def cut() -> None:
                nonlocal cuts
                for cuts in reversed(range(10)):
                    for peer in list(nodes[cuts % 2].wire.peers):
                        if peer.client_version:  # else no node might be left that can be asked
                            peer.abort("the link is cut")
                    # None is cut so often that it is given up.
                    await until(partial(all_answered, dict(answered)))

            await asyncio.gather(cut(), *(ask(each) for each in clients))

    with_proxy(test)


def test_a_consumer_is_served_by_its_controller_and_leaves_it() -> None:
    async def test(proxy: RunningProxy, nodes: list[ServedNode], _: MemoryCluster) -> None:
        await create(nodes, 2)
        owner = await owner_of(nodes)
        async with proxy.client() as client:
            answer = await client.request(subscribe(), WAIT_S)
            given = answer.scalableTopicSubscribeResponse.assignment
            assert {part.segment_id for part in given.segments} == {0, 1}
            await client.request(pb.CommandScalableConsumerReport(consumer_id=1), WAIT_S)
            consumers = owner.node.operations.topics.consumers
            assert consumers is not None
            await client.request(pb.CommandScalableTopicUnsubscribe(consumer_id=1), WAIT_S)
            with pytest.raises(RefusedError) as refused:
                await client.request(pb.CommandScalableConsumerReport(consumer_id=1), WAIT_S)
            assert refused.value.code == pb.ServerError.ConsumerNotFound

    with_proxy(test)


def test_a_consumer_whose_node_is_gone_is_told_to_subscribe_again() -> None:
    async def test(proxy: RunningProxy, nodes: list[ServedNode], _: MemoryCluster) -> None:
        await create(nodes, 2)
        owner = await owner_of(nodes)
        pushed: list[BaseCommand] = []
        async with proxy.client(pushed.append) as client:
            await client.request(subscribe(), WAIT_S)
            for peer in list(owner.wire.peers):
                peer.abort("the link is cut")
            await until(lambda: bool(pushed))
            assert pushed[0].type == BaseCommand.CLOSE_CONSUMER
            closed = pushed[0].close_consumer
            assert (closed.consumer_id, closed.request_id) == (1, NO_REQUEST)
            assert "subscribe again" in closed.reason
            answer = await client.request(subscribe(), WAIT_S)  # the same one
            assert answer.scalableTopicSubscribeResponse.assignment.segments

    with_proxy(test)


def test_the_end_of_a_client_is_the_end_of_its_links_and_of_nobody_else_s() -> None:
    async def test(proxy: RunningProxy, nodes: list[ServedNode], _: MemoryCluster) -> None:
        def links() -> int:
            return sum(
                peer.client_version == "anabranch" for each in nodes for peer in each.wire.peers
            )

        async with proxy.client() as stays:
            stays.send(pb.CommandScalableTopicLookup(session_id=1, topic=FULL))
            async with proxy.client() as goes:
                goes.send(pb.CommandScalableTopicLookup(session_id=1, topic=FULL))
                await until(lambda: links() == 2)
            await until(lambda: links() == 1)
            await lookup(stays)

    with_proxy(test)


def test_without_a_node_every_command_is_refused_by_name_and_served_again_later() -> None:
    async def test(proxy: RunningProxy, nodes: list[ServedNode], _: MemoryCluster) -> None:
        pushed: list[BaseCommand] = []
        async with proxy.client(pushed.append) as client:
            await lookup(client)
            client.send(pb.CommandScalableTopicLookup(session_id=7, topic=FULL))
            await lookup(client)
            for each in nodes:
                await each.die()
            with pytest.raises(RefusedError) as refused:
                await lookup(client)
            assert refused.value.code == pb.ServerError.ServiceNotReady
            assert "no node answers this proxy" in refused.value.reason
            assert nodes[0].binary in refused.value.reason
            with pytest.raises(RefusedError) as refused:
                await client.request(subscribe(), WAIT_S)
            assert refused.value.code == pb.ServerError.ServiceNotReady
            await until(lambda: proxy.proxy.shared.nodes.answering == 0)
            told = await proxy.http.get("/readyz")
            assert told.status_code == 503

    with_proxy(test)


def test_ten_thousand_ids_of_one_connection_are_answered() -> None:
    async def test(proxy: RunningProxy, nodes: list[ServedNode], _: MemoryCluster) -> None:
        async with raw(proxy.port) as client:
            await client.handshake()
            for number in range(10_000):
                command = pb.CommandLookupTopic(topic=FULL, request_id=number)
                client.send(BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=command))
            found: set[int] = set()
            while len(found) < 10_000:
                answer = await client.answer()
                assert answer is not None
                found.add(answer.lookupTopicResponse.request_id)
        assert found == set(range(10_000))

    with_proxy(test)


def test_garbage_costs_its_own_connection_and_no_other() -> None:
    async def test(proxy: RunningProxy, nodes: list[ServedNode], _: MemoryCluster) -> None:
        async with proxy.client() as good:
            await lookup(good)
            for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x08\x00\x00\x00\x04abcd"):
                async with raw(proxy.port) as bad:
                    await bad.handshake()
                    bad.writer.write(garbage)
                    while await bad.answer() is not None:
                        pass
                await lookup(good)

    with_proxy(test)


def test_a_foreign_client_is_refused_what_a_node_would_refuse_it() -> None:
    async def test(proxy: RunningProxy, nodes: list[ServedNode], _: MemoryCluster) -> None:
        async with raw(proxy.port) as client:
            await client.handshake()  # does not say that it reads Kafka
            asked = pb.CommandScalableTopicLookup(session_id=3, topic=FULL)
            client.send(
                BaseCommand(type=BaseCommand.SCALABLE_TOPIC_LOOKUP, scalableTopicLookup=asked)
            )
            answer = await client.answer()
            assert answer is not None
            assert answer.scalableTopicUpdate.session_id == 3
            assert "does not read Kafka" in answer.scalableTopicUpdate.message

    with_proxy(test)


def test_traffic_reports_reach_the_controller() -> None:
    async def test(proxy: RunningProxy, nodes: list[ServedNode], _: MemoryCluster) -> None:
        await create(nodes, 1)
        topic = nodes[0].node.view.topic(NAME)
        assert topic is not None
        async with proxy.client() as client:
            answer = await client.request(
                pb.CommandScalableTrafficReport(
                    topic=FULL,
                    incarnation=topic.incarnation,
                    client_id=5,
                    since_ms=1_000,
                    segments=[pb.SegmentTraffic(segment_id=0, messages=10, bytes=100)],
                ),
                WAIT_S,
            )
            assert answer.scalableTrafficReportResponse.interval_ms > 0

    with_proxy(test)


def test_lists_and_their_changes_are_those_of_a_node() -> None:
    async def test(proxy: RunningProxy, nodes: list[ServedNode], _: MemoryCluster) -> None:
        await create(nodes, 1)
        pushed: list[BaseCommand] = []
        asked = pb.CommandGetTopicsOfNamespace(
            namespace="public/default", mode=pb.CommandGetTopicsOfNamespace.ALL
        )
        async with proxy.client(pushed.append) as client:
            told = (await client.request(asked, WAIT_S)).getTopicsOfNamespaceResponse
            assert [name.partition("://")[2] for name in told.topics] == [NAME]
            known = pb.CommandGetTopicsOfNamespace()
            known.CopyFrom(asked)
            known.topics_hash = told.topics_hash
            again = (await client.request(known, WAIT_S)).getTopicsOfNamespaceResponse
            assert (again.changed, list(again.topics)) == (False, [])
            client.send(pb.CommandWatchScalableTopics(watch_id=4, namespace="public/default"))
            await until(lambda: bool(pushed))
            first = pushed[0].watchScalableTopicsUpdate
            assert [name.partition("://")[2] for name in first.snapshot.topics] == [NAME]
            other = "public/default/other"
            owner = await owner_of(nodes, other)
            await owner.node.operations.topics.create(other, 1, {})
            await until(lambda: len(pushed) > 1)
            diff = pushed[1].watchScalableTopicsUpdate.diff
            assert [name.partition("://")[2] for name in diff.added] == [other]
        limiter = proxy.proxy.shared.limiter
        await until(lambda: all(limiter.side(each).acquired == 0 for each in LimitType))

    with_proxy(test)
