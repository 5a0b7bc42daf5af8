"""Consumers' sessions by the binary protocol: assignments, hand-over, fail-over, refusals."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from anabranch.broker.binary.sessions import sessions
from anabranch.core.bundles.guards import controller_of
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import entries
from anabranch.wire.connection import ConnectionLimits
from support.binary import one_node, reachable, subscribe
from support.binary_consumer import client_of
from support.memory_cluster import MemoryNode, until
from support.there import there
from support.wire import WAIT_S, connected, is_refused, serving

NAME = "public/default/orders"


def consumers(node: MemoryNode) -> tuple[str, ...]:
    known = node.view.subscription(NAME, "billing")
    return () if known is None else known.consumers


async def test_the_first_consumer_gets_everything_with_all_it_needs() -> None:
    async with reachable() as cluster:
        node = await cluster.create(2)
        async with client_of(node, "a") as client:
            answer = await client.subscribe()
            form = answer.assignment
            assert client.held == {0: [0, 1], 1: [0, 1]}
            assert {s.kafka_topic for s in form.segments} == set(cluster.segments.partitions)
            assert form.segments[0].segment_topic == f"segment://{NAME}/0000-7fff-0"
            assert (form.sequence, form.layout_epoch, form.session_timeout_ms) == (1, 0, 10_000)
            assert form.group_id.startswith("anabranch.subscription.public.default.orders.billing.")
            assert form.bootstrap_servers == "localhost:9092"
            assert consumers(node) == ("a",)
            await client.report()


async def test_every_assignment_of_a_wide_topic_is_told_and_none_of_these_is_left_out() -> None:
    async with reachable() as cluster:
        node = await cluster.create(501)
        topics = node.operations.topics
        async with client_of(node, "a") as client:
            subscribing = asyncio.create_task(client.subscribe())
            for segment_id in range(6):  # all consumers are told of each
                await topics.split(NAME, segment_id)
            first = (await subscribing).assignment.sequence
            last = topics.topic(NAME).epoch
            await until(lambda: max(each.layout_epoch for each in client.assigned) == last)
            # What is pushed may be noted before the answer, though it came after it.
            pushed = [each.sequence for each in client.assigned if each.sequence != first]
            assert [first, *pushed] == list(range(1, len(client.assigned) + 1))
            newest = max(client.assigned, key=lambda each: each.sequence)
            assert (len(newest.segments), client.closed) == (501, [])
            await client.report()


async def test_what_no_message_holds_is_refused_or_ends_the_session_but_never_the_node() -> None:
    half_only = ConnectionLimits(frame_bytes_max=1_500)

    async with reachable() as cluster:
        node = await cluster.create(16)
        attached = node.operations.topics.access.service.consumers
        async with (
            client_of(node, "a", limits=half_only) as first,
            client_of(node, "b", limits=half_only) as second,
        ):
            refusal = await first.refused()
            assert refusal.code == pb.ServerError.NotAllowedError
            assert "the 16 segments of topic://public/default/orders for this" in refusal.reason
            assert attached == {}
            await second.subscribe()
            await first.subscribe()
            async with asyncio.timeout(WAIT_S):
                while not len(first.held) == len(second.held) == 8:
                    await second.report()
                    await asyncio.sleep(0.02)
            await second.leave()
            await until(lambda: first.closed != [])
            assert "let more consumers share them" in first.closed[0]
            assert attached == {}
            assert not node.runtime.ended.done()
            assert (await first.refused()).code == pb.ServerError.NotAllowedError


async def test_more_buckets_than_there_can_be_are_refused_and_the_next_report_is_taken() -> None:
    async with reachable() as cluster, client_of(await cluster.create(2), "a") as client:
        await client.subscribe()
        released = {0: list(range(5_001)), 1: list(range(5_000))}
        said = "more than 10000 buckets are named"
        await is_refused(client.report(released), pb.ServerError.NotAllowedError, said)
        await client.report()


async def test_a_consumer_is_granted_no_more_segments_than_its_reports_may_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entries, "_BUCKETS", entries.Most(2, 1_000))
    async with reachable() as cluster, client_of(await cluster.create(3), "a") as client:
        said = "let more consumers share them"
        await is_refused(client.subscribe(), pb.ServerError.NotAllowedError, said)


async def test_every_bad_subscribe_has_its_own_code() -> None:
    async with reachable() as cluster:
        node = cluster.nodes[0]
        async with client_of(node, "a") as client:
            assert (await client.refused()).code == pb.ServerError.TopicNotFound
            await cluster.create()
            await client.subscribe(kind=pb.ScalableConsumerType.QUEUE)
            wrong = await client.refused(kind=pb.ScalableConsumerType.CHECKPOINT)
            assert wrong.code == pb.ServerError.NotAllowedError
            assert "of type QUEUE" in wrong.reason
        async with client_of(node, "a b") as client:
            assert (await client.refused()).code == pb.ServerError.InvalidTopicName


async def test_a_new_controller_takes_over_with_what_consumers_say_that_they_hold() -> None:
    async with reachable(2) as cluster:
        node = await cluster.create(2)
        other = next(each for each in cluster.nodes if each is not node)
        async with client_of(node, "a") as first, client_of(node, "b", 2) as second:
            async with client_of(other, "a") as astray:
                answer = await astray.refused()
                assert answer.code == pb.ServerError.ServiceNotReady
                assert node.settings.service_url in answer.reason
            await first.subscribe()
            await second.subscribe()
            await until(lambda: len(first.assigned) == 2)
            await first.report(released={1: [0, 1]})
            await until(lambda: second.held == {1: [0, 1]})
            unit = next(name for name, _ in node.operations.owned(node.id) if "0x" in name)
            await node.operations.unload(unit, other.id)
            await until(lambda: bool(first.closed))
            assert "does not serve bundle" in first.closed[0]
            assert "subscribe again" in first.closed[0]
            assert (await first.report_refused()).code == pb.ServerError.ConsumerNotFound
            async with client_of(other, "a") as moved, client_of(other, "b", 2) as also:
                await moved.subscribe({0: [0, 1]}, begun_at=first.assigned[-1].begun_at)
                assert moved.held == {0: [0, 1]}
                await also.subscribe({1: [0, 1]}, begun_at=second.assigned[-1].begun_at)
                assert also.held == {1: [0, 1]}


async def test_an_idle_topic_has_no_controller() -> None:
    async with reachable() as cluster:
        node = await cluster.create()
        service = node.operations.topics.access.service
        async with client_of(node, "a") as client:
            await client.subscribe()
            assert len(service.controllers()) == 1
            await client.leave()
            await until(lambda: not service.controllers())


async def test_many_consumers_register_at_once() -> None:
    async with reachable() as cluster:
        node = await cluster.create(4)
        async with client_of(node, "c0") as client, asyncio.TaskGroup() as group:
            await client.subscribe()

            async def join(number: int) -> None:
                async with client_of(node, f"c{number}", number) as another:
                    await another.subscribe()

            for number in range(1, 12):
                group.create_task(join(number))
        assert len(consumers(node)) == 12


async def test_a_bundle_that_was_away_within_a_batch_takes_its_controllers_along() -> None:
    async with reachable() as cluster:
        node = await cluster.create()
        service = node.operations.topics.access.service
        async with client_of(node, "a") as client:
            await client.subscribe()
            before = service.controller(NAME)
            name, _ = controller_of(node.view, NAME)
            unit = there(node.view.unit(name))
            elsewhere = msgspec.structs.replace(unit, broker="b9:8080", version=unit.version + 1)
            service.folded([(name, elsewhere), (name, unit)])
            assert service.controller(NAME) is not before
            assert (await client.report_refused()).code == pb.ServerError.ConsumerNotFound
            await client.subscribe(holdings={0: [0, 1]})
            assert client.held == {0: [0, 1, 2, 3]}


async def test_a_report_keeps_the_consumers_that_it_names_and_says_whom() -> None:
    """Those of its own connection, and of nobody else."""
    names = (NAME, "public/default/bills")
    async with one_node(scalableTopicConsumerSessionTimeoutSeconds=2) as node:
        for name in names:
            await node.operations.topics.access.find_controller(name)
            await node.operations.topics.create(name, 1, {})
        routes = sessions(node.operations, node.settings)
        async with serving(routes) as server, connected(server) as connection:
            for number, name in enumerate(names, 1):
                await connection.request(subscribe(name, number), WAIT_S)
            known = node.operations.topics.access.service.consumers
            for _ in range(25):  # longer than a silent consumer is kept
                report = pb.CommandScalableConsumerReport(consumer_id=1, also_kept=[2, 9])
                answer = await connection.request(report, WAIT_S)
                assert list(answer.success.kept) == [2]
                await asyncio.sleep(0.1)
            waiting = pb.CommandScalableConsumerReport(consumer_id=2, dead_letters_waiting=3)
            await connection.request(waiting, WAIT_S)
            shown = node.operations.topics.consumers.dead_letters_waiting
            assert shown() == {(names[1], "billing"): 3}
            await connection.request(pb.CommandScalableConsumerReport(consumer_id=2), WAIT_S)
            assert shown() == {}
            assert len(known) == len(names)
            await until(lambda: not known)  # nobody reports any more
