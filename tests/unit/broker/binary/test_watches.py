"""Watches of layouts by the binary protocol: the first state, every change, the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from anabranch.broker.binary.sessions import sessions
from anabranch.core.strangers import AccountLimits
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.client import ClientConnection
from anabranch.wire.commands import envelope
from anabranch.wire.connection import ConnectionLimits
from support import steady
from support.http import PATIENT
from support.memory_cluster import WAIT_S, MemoryCluster, MemoryNode, memory_cluster, until
from support.wire import connected, serving

NAME = "public/default/orders"
FULL = f"topic://{NAME}"


class Client:
    """A connection that keeps what it is pushed."""

    def __init__(self) -> None:
        self.pushed: list[BaseCommand] = []
        self.connection: ClientConnection

    @property
    def updates(self) -> list[pb.CommandScalableTopicUpdate]:
        return [each.scalableTopicUpdate for each in self.pushed]

    def send(self, message: object) -> None:
        self.connection.send(message)  # type: ignore[arg-type]

    def watch(self, topic: str = FULL, session: int = 1) -> None:
        self.send(pb.CommandScalableTopicLookup(session_id=session, topic=topic))

    async def got(self, count: int) -> pb.CommandScalableTopicUpdate:
        await until(lambda: len(self.pushed) >= count)
        return self.updates[count - 1]


@asynccontextmanager
async def client_of(
    node: MemoryNode, limits: ConnectionLimits | None = None
) -> AsyncIterator[Client]:
    client = Client()
    routes = sessions(node.operations, node.settings)
    async with (
        serving(routes, limits) as server,
        connected(server, client.pushed.append) as connection,
    ):
        client.connection = connection
        yield client


def run(test: Callable[[MemoryCluster], Awaitable[None]], count: int = 1) -> None:
    async def body() -> None:
        settings = {**PATIENT, "brokerServicePort": 7000}
        async with memory_cluster(count, **settings) as cluster:
            await test(cluster)

    steady.run(body())


async def controller(cluster: MemoryCluster, name: str = NAME) -> MemoryNode:
    located = await cluster.nodes[0].operations.topics.access.find_controller(name)
    return next(node for node in cluster.nodes if node.id == located.broker)


def test_a_watch_tells_the_layout_and_where_its_data_is() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await node.operations.topics.create(NAME, 2, {})
        async with client_of(node) as client:
            client.watch()
            first = await client.got(1)
        topic = node.view.topic(NAME)
        assert topic is not None
        dag = first.dag
        assert (first.session_id, first.resolved_topic_name) == (1, FULL)
        assert not first.HasField("error")
        assert (dag.epoch, dag.incarnation, dag.sealing) == (0, topic.incarnation, False)
        assert dag.controller_broker_url == "pulsar://b1:7000"
        assert dag.bootstrap_servers == "localhost:9092"
        assert dag.max_message_bytes == 1_048_588
        assert [(s.hash_start, s.hash_end) for s in dag.segments] == [(0, 32767), (32768, 65535)]
        assert [list(s.entry_bucket_splits) for s in dag.segments] == [[32768], [32768]]
        assert {s.kafka_topic for s in dag.segments} == set(cluster.segments.partitions)
        brokers = [(each.segment_id, each.broker_url) for each in dag.segment_brokers]
        assert brokers == [(0, "pulsar://b1:7000"), (1, "pulsar://b1:7000")]

    run(test)


def test_every_step_of_a_split_is_told_on_every_node() -> None:
    async def test(cluster: MemoryCluster) -> None:
        owner = await controller(cluster)
        other = next(node for node in cluster.nodes if node is not owner)
        await owner.operations.topics.create(NAME, 1, {})
        async with client_of(other) as client:
            client.watch()
            await client.got(1)
            await owner.operations.topics.split(NAME, 0)
            await until(lambda: len(client.updates[-1].dag.segments) == 3)
        versions = [update.dag.version for update in client.updates]
        assert versions == sorted(set(versions))
        epochs = [update.dag.epoch for update in client.updates]
        assert epochs == [0] * (len(epochs) - 1) + [1]  # the layout has changed once
        begun = [update.dag for update in client.updates if update.dag.children]
        assert begun
        assert list(begun[0].parents_under_way) == [0]
        assert {child.kafka_topic for child in begun[0].children} < set(cluster.segments.partitions)
        last = client.updates[-1].dag
        assert [part.state for part in last.segments] == [1, 0, 0]
        assert [each.segment_id for each in last.segment_brokers] == [1, 2]
        assert list(last.segments[0].end_offsets) == [0, 0, 0, 0]
        assert not last.children

    run(test, 2)


def test_a_new_controller_is_told() -> None:
    async def test(cluster: MemoryCluster) -> None:
        owner = await controller(cluster)
        other = next(node for node in cluster.nodes if node is not owner)
        await owner.operations.topics.create(NAME, 1, {})
        async with client_of(owner) as client:
            client.watch()
            first = await client.got(1)
            assert first.dag.controller_broker_url == owner.settings.service_url
            unit, _ = next(
                (name, unit) for name, unit in owner.operations.owned(owner.id) if "0x" in name
            )
            await owner.operations.unload(unit, other.id)
            await until(
                lambda: client.updates[-1].dag.controller_broker_url == other.settings.service_url
            )

    run(test, 2)


def test_a_deleted_topic_and_one_that_never_was_end_the_watch() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        async with client_of(node) as client:
            client.watch()
            never = await client.got(1)
            assert never.error == pb.ServerError.TopicNotFound
            assert FULL in never.message
            await node.operations.topics.create(NAME, 1, {})
            client.watch(session=2)
            assert not (await client.got(2)).HasField("error")
            await node.operations.topics.delete(NAME)
            gone = await client.got(3)
            assert (gone.session_id, gone.error) == (2, pb.ServerError.TopicNotFound)
            assert gone.dag.deleted
            assert node.operations.topics.watches.count == 0

    run(test)


def test_bad_names_are_refused_and_the_connection_goes_on() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await node.operations.topics.create(NAME, 1, {})
        async with client_of(node) as client:
            client.watch("persistent://public/default/orders")
            client.watch("topic://public/none/orders", session=2)
            codes = [(await client.got(number)).error for number in (1, 2)]
            assert codes == [pb.ServerError.InvalidTopicName, pb.ServerError.TopicNotFound]
            client.watch()
            assert (await client.got(3)).dag.segments

    run(test)


def test_a_closed_watch_and_a_closed_connection_are_told_nothing_more() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        watches = node.operations.topics.watches
        await node.operations.topics.create(NAME, 1, {})
        async with client_of(node) as client:
            client.watch(session=1)
            client.watch(session=2)
            await client.got(2)
            assert watches.count == 2
            client.send(pb.CommandScalableTopicClose(session_id=1))
            await until(lambda: watches.count == 1)
            await node.operations.topics.split(NAME, 0)
            await until(lambda: len(client.updates[-1].dag.segments) == 3)
            assert {update.session_id for update in client.updates[2:]} == {2}
        await until(lambda: watches.count == 0)

    run(test)


def test_a_client_that_does_not_read_gets_the_newest_when_it_does() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        topics = node.operations.topics
        await topics.create(NAME, 10_000, {})  # a megabyte each time
        async with client_of(node, ConnectionLimits(unread_s_max=600.0)) as client:
            client.watch()
            await client.got(1)
            client.connection.hold()
            for segment in range(20):
                await topics.split(NAME, segment)
            client.connection.go_on()
            newest = node.view.topic(NAME)
            assert newest is not None
            await until(lambda: client.updates[-1].dag.epoch == newest.epoch == 20)
            assert len(client.pushed) < newest.epoch

    run(test)


def test_a_watch_that_is_closed_while_it_waits_for_its_topic_is_not_opened() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        watches = node.operations.topics.watches
        async with client_of(node) as client:
            node.is_behind = True
            cluster.append_raw(b"x", b"what it is to read before it knows")
            client.watch()
            client.watch("topic://public/none/orders", session=4)
            await until(lambda: node.asked_ends == 1)
            client.send(pb.CommandScalableTopicClose(session_id=1))
            client.send(pb.CommandScalableTopicClose(session_id=4))
            client.watch("persistent://public/default/orders", session=2)
            await client.got(1)  # so the node has read the closes
            node.is_behind = False
            await node.operations.topics.create(NAME, 1, {})
            client.watch(session=3)
            assert [(await client.got(each)).session_id for each in (1, 2)] == [2, 3]
            assert watches.count == 1

    run(test)


def test_a_fault_in_a_push_ends_the_connection_and_not_the_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        watches = node.operations.topics.watches
        await node.operations.topics.create(NAME, 1, {})
        async with client_of(node) as client:
            client.watch()
            await client.got(1)
            with monkeypatch.context() as patch:
                patch.setattr(watches, "look", lambda _topic: 1 / 0)
                await node.operations.topics.split(NAME, 0)
                await asyncio.wait_for(asyncio.shield(client.connection.closed), WAIT_S)
        async with client_of(node) as client:
            client.watch()
            assert len((await client.got(1)).dag.segments) == 3

    run(test)


def test_the_envelope_of_an_update_has_its_number() -> None:
    assert envelope(pb.CommandScalableTopicUpdate(session_id=1)).type == 71


def test_a_watch_of_a_wide_layout_sees_the_newest_and_never_goes_back() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        topics = node.operations.topics
        await topics.create(NAME, 600, {})
        async with client_of(node) as client:
            client.watch()
            client.watch(session=2)
            client.send(pb.CommandScalableTopicClose(session_id=2))
            await topics.split(NAME, 0)
            await topics.split(NAME, 1)
            await until(lambda: bool(client.pushed) and len(client.updates[-1].dag.segments) == 604)
            versions = [each.dag.version for each in client.updates if each.session_id == 1]
            assert versions == sorted(versions)
            ends = client.updates[-1].dag
            assert sum(part.state == pb.SegmentState.SEALED for part in ends.segments) == 2

    run(test)


def test_one_watch_too_many_is_refused_by_the_settings_name_and_the_others_go_on() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await node.operations.topics.create(NAME, 1, {})
        limits = ConnectionLimits(account=AccountLimits(watches_per_connection=2))
        async with client_of(node, limits) as client:
            for number in range(10):  # what is refused for another reason takes no place
                client.watch("topic://public/default/gone", number)
                await client.got(number + 1)
            for session in (1, 2, 3):
                client.watch(session=session)
            await client.got(13)
            (refused,) = [each for each in client.updates[10:] if each.HasField("error")]
            assert refused.session_id == 3
            assert refused.error == pb.TooManyRequests
            assert "2 watches and consumers, which is brokerMaxWatchesPer" in refused.message
            client.send(pb.CommandScalableTopicClose(session_id=1))
            client.watch(session=3)
            assert (await client.got(14)).dag.segments
            await node.operations.topics.split(NAME, 0)
            await until(
                lambda: (
                    {each.session_id for each in client.updates if len(each.dag.segments) == 3}
                    == {2, 3}
                )
            )

    run(test)
