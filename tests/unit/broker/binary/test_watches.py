"""Watches of layouts by the binary protocol: the first state, every change, the end, the pace."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.broker.binary.forms import ClientSettings
from anabranch.broker.binary.watching import layout_watches
from anabranch.core.strangers import AccountLimits
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.commands import envelope
from anabranch.wire.connection import ConnectionLimits
from support.binary import one_node, reachable
from support.list_follower import follower_of
from support.memory_cluster import WAIT_S, until

NAME = "public/default/orders"
FULL = f"topic://{NAME}"


async def test_a_watch_tells_the_layout_and_where_its_data_is() -> None:
    async with one_node() as node:
        await node.operations.topics.create(NAME, 2, {})
        async with follower_of(node) as client:
            client.watch_layout(FULL)
            first = await client.got(1)
        topic = node.operations.topics.topic(NAME)
        dag = first.dag
        assert (first.session_id, first.resolved_topic_name) == (1, FULL)
        assert not first.HasField("error")
        assert (dag.epoch, dag.incarnation, dag.sealing) == (0, topic.incarnation, False)
        assert dag.controller_broker_url == "pulsar://b1:7000"
        assert (dag.bootstrap_servers, dag.max_message_bytes) == ("localhost:9092", 1_048_588)
        assert [(s.hash_start, s.hash_end) for s in dag.segments] == [(0, 32767), (32768, 65535)]
        assert [list(s.entry_bucket_splits) for s in dag.segments] == [[32768], [32768]]
        assert {s.kafka_topic for s in dag.segments} == set(node.cluster.segments.partitions)
        brokers = [(each.segment_id, each.broker_url) for each in dag.segment_brokers]
        assert brokers == [(0, "pulsar://b1:7000"), (1, "pulsar://b1:7000")]


async def test_every_step_of_a_split_is_told_on_every_node() -> None:
    async with reachable(2) as cluster:
        owner = await cluster.controller()
        other = next(node for node in cluster.nodes if node is not owner)
        await owner.operations.topics.create(NAME, 1, {})
        async with follower_of(other) as client:
            client.watch_layout(FULL)
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


async def test_a_new_controller_is_told() -> None:
    async with reachable(2) as cluster:
        owner = await cluster.controller()
        other = next(node for node in cluster.nodes if node is not owner)
        await owner.operations.topics.create(NAME, 1, {})
        async with follower_of(owner) as client:
            client.watch_layout(FULL)
            first = await client.got(1)
            assert first.dag.controller_broker_url == owner.settings.service_url
            unit, _ = next(
                (name, unit) for name, unit in owner.operations.owned(owner.id) if "0x" in name
            )
            await owner.operations.unload(unit, other.id)
            await until(
                lambda: client.updates[-1].dag.controller_broker_url == other.settings.service_url
            )


async def test_a_deleted_topic_one_that_never_was_and_a_bad_name_end_the_watch_alone() -> None:
    async with one_node() as node, follower_of(node) as client:
        client.watch_layout(FULL)
        never = await client.got(1)
        assert never.error == pb.ServerError.TopicNotFound
        assert FULL in never.message
        client.watch_layout("persistent://public/default/orders", session=3)
        assert (await client.got(2)).error == pb.ServerError.InvalidTopicName
        await node.operations.topics.create(NAME, 1, {})
        client.watch_layout(FULL, session=2)
        assert not (await client.got(3)).HasField("error")
        await node.operations.topics.delete(NAME)
        gone = await client.got(4)
        assert (gone.session_id, gone.error) == (2, pb.ServerError.TopicNotFound)
        assert gone.dag.deleted
        assert node.operations.topics.watches.count == 0


async def test_a_client_that_does_not_read_gets_the_newest_when_it_does() -> None:
    async with one_node() as node:
        topics = node.operations.topics
        await topics.create(NAME, 4, {})
        async with follower_of(node, ConnectionLimits(unread_s_max=600.0)) as client:
            client.watch_layout(FULL)
            await client.got(1)
            (peer,) = client.server.peers
            peer._drained.clear()  # as of one whose socket is full
            for segment in range(4):
                await topics.split(NAME, segment)
            told = len(client.pushed)
            peer._drained.set()
            newest = node.operations.topics.topic(NAME)
            await until(lambda: client.updates[-1].dag.epoch == newest.epoch == 4)
            assert len(client.pushed) == told + 1


async def test_a_watch_that_is_closed_while_it_waits_for_its_topic_is_not_opened() -> None:
    async with reachable() as cluster:
        node = cluster.nodes[0]
        watches = node.operations.topics.watches
        async with follower_of(node) as client:
            node.is_behind = True
            cluster.append_raw(b"x", b"what it is to read before it knows")
            client.watch_layout(FULL)
            client.watch_layout("topic://public/none/orders", session=4)
            await until(lambda: node.asked_ends == 1)
            client.connection.send(pb.CommandScalableTopicClose(session_id=1))
            client.connection.send(pb.CommandScalableTopicClose(session_id=4))
            client.watch_layout("persistent://public/default/orders", session=2)
            await client.got(1)  # so the node has read the closes
            node.is_behind = False
            await node.operations.topics.create(NAME, 1, {})
            client.watch_layout(FULL, session=3)
            assert [(await client.got(each)).session_id for each in (1, 2)] == [2, 3]
            assert watches.count == 1


async def test_a_fault_in_a_push_ends_the_connection_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with one_node() as node:
        watches = node.operations.topics.watches
        await node.operations.topics.create(NAME, 1, {})
        async with follower_of(node) as client:
            client.watch_layout(FULL)
            await client.got(1)
            with monkeypatch.context() as patch:
                patch.setattr(watches, "look", lambda _topic: 1 / 0)
                await node.operations.topics.split(NAME, 0)
                await asyncio.wait_for(asyncio.shield(client.connection.closed), WAIT_S)
        async with follower_of(node) as client:
            client.watch_layout(FULL)
            assert len((await client.got(1)).dag.segments) == 3


async def test_a_watch_of_a_wide_layout_sees_the_newest_and_never_goes_back() -> None:
    async with one_node() as node:
        topics = node.operations.topics
        await topics.create(NAME, 600, {})
        async with follower_of(node) as client:
            client.watch_layout(FULL)
            client.watch_layout(FULL, session=2)
            client.connection.send(pb.CommandScalableTopicClose(session_id=2))
            await topics.split(NAME, 0)
            await topics.split(NAME, 1)
            await until(lambda: bool(client.pushed) and len(client.updates[-1].dag.segments) == 604)
            versions = [each.dag.version for each in client.updates if each.session_id == 1]
            assert versions == sorted(versions)
            ends = client.updates[-1].dag
            assert sum(part.state == pb.SegmentState.SEALED for part in ends.segments) == 2


async def test_one_watch_too_many_is_refused_and_the_others_go_on() -> None:
    async with one_node() as node:
        await node.operations.topics.create(NAME, 1, {})
        limits = ConnectionLimits(account=AccountLimits(watches=4))
        async with follower_of(node, limits) as client:
            for number in range(10):  # what is refused for another reason takes no place
                client.watch_layout("topic://public/default/gone", number)
                await client.got(number + 1)
            for session in (1, 2, 3):
                client.watch_layout(FULL, session=session)
            await client.got(13)
            (refused,) = [each for each in client.updates[10:] if each.HasField("error")]
            assert (refused.session_id, refused.error) == (3, pb.TooManyRequests)
            assert "half of them of your address" in refused.message
            client.connection.send(pb.CommandScalableTopicClose(session_id=1))
            client.watch_layout(FULL, session=3)
            assert (await client.got(14)).dag.segments
            await node.operations.topics.split(NAME, 0)
            await until(
                lambda: (
                    {each.session_id for each in client.updates if len(each.dag.segments) == 3}
                    == {2, 3}
                )
            )
        await until(lambda: not node.operations.topics.watches.count)


# --- watches by the thousand ------------------------------------------------------------

CLIENTS, WATCHES = 20, 100


class Ticking:
    """A clock on which each look takes a millisecond."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


class Reader:
    """A client that takes all that it is sent."""

    is_drained = True

    def __init__(self) -> None:
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.told = 0

    async def drained(self) -> None:
        """At once."""

    def open_watch(self) -> None:
        """As many as it likes."""

    def close_watch(self) -> None:
        """As often as it likes."""

    def send(self, _: object) -> None:
        self.told += 1


async def test_a_change_that_thousands_of_watches_hear_of_is_told_in_slices() -> None:
    """All clients together, between two turns of the event loop: else none would be had."""

    async with one_node() as node:
        await node.operations.topics.create(NAME, 1, {})
        told = ClientSettings("anabranch.", "", 1, 1)
        part = layout_watches(node.operations.topics.watches, told, Ticking())
        readers = [Reader() for _ in range(CLIENTS)]
        for reader in readers:
            routes = part(reader)  # type: ignore[arg-type]  # what of a peer is used
            for number in range(WATCHES):
                asked = pb.CommandScalableTopicLookup(session_id=number, topic=FULL)
                await routes[BaseCommand.SCALABLE_TOPIC_LOOKUP](envelope(asked))

        def count() -> int:
            return sum(reader.told for reader in readers)

        await until(lambda: count() == CLIENTS * WATCHES)
        split = asyncio.create_task(node.operations.topics.split(NAME, 0))
        most, before = 0, count()
        while count() < 2 * CLIENTS * WATCHES or not split.done():
            await asyncio.sleep(0)  # one turn
            most, before = max(most, count() - before), count()
        assert 1 <= most <= 6  # of 4,000
        for reader in readers:
            reader.closed.set_result("the test is over")
