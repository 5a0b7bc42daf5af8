"""Consumers' sessions by the binary protocol: assignments, hand-over, fail-over, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from anabranch.core.topics.guards import controller_of
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.errors import RefusedError
from support import steady
from support.binary_consumer import client_of
from support.http import PATIENT
from support.memory_cluster import MemoryCluster, MemoryNode, memory_cluster, until
from support.wire import WAIT_S

NAME = "public/default/orders"


def run(
    test: Callable[[MemoryCluster], Awaitable[None]], count: int = 1, **settings: object
) -> None:
    async def body() -> None:
        named = {**PATIENT, "brokerServicePort": 7000, **settings}
        async with memory_cluster(count, **named) as cluster:
            await test(cluster)

    steady.run(body())


async def created(cluster: MemoryCluster, segments: int = 1) -> MemoryNode:
    """The topic's controller."""
    located = await cluster.nodes[0].operations.topics.access.find_controller(NAME)
    node = next(node for node in cluster.nodes if node.id == located.broker)
    await node.operations.topics.create(NAME, segments, {})
    return node


def consumers(node: MemoryNode) -> tuple[str, ...]:
    known = node.view.subscription(NAME, "billing")
    return () if known is None else known.consumers


def test_the_first_consumer_gets_everything_with_all_it_needs() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = await created(cluster, 2)
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

    run(test)


def test_every_assignment_of_a_wide_topic_is_told_and_none_of_these_is_left_out() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = await created(cluster, 501)
        topics = node.operations.topics
        async with client_of(node, "a") as client:
            subscribing = asyncio.create_task(client.subscribe())
            for segment_id in range(18):  # all consumers are told of each
                await topics.split(NAME, segment_id)
            first = (await subscribing).assignment.sequence
            last = topics.topic(NAME).epoch
            await until(lambda: max(each.layout_epoch for each in client.assigned) == last)
            # What is pushed may be noted before the answer, though it came after it.
            pushed = [each.sequence for each in client.assigned if each.sequence != first]
            assert [first, *pushed] == list(range(1, len(client.assigned) + 1))
            newest = max(client.assigned, key=lambda each: each.sequence)
            assert len(newest.segments) == 501
            assert client.closed == []
            await client.report()

    run(test)


def test_a_bucket_changes_hands_when_its_holder_has_released_it() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = await created(cluster, 2)
        async with client_of(node, "a") as first, client_of(node, "b") as second:
            await first.subscribe()
            await second.subscribe()
            await until(lambda: len(first.assigned) == 2)
            assert (first.held, second.held) == ({0: [0, 1]}, {})
            await first.report(released={1: [0, 1]})
            await until(lambda: second.held == {1: [0, 1]})
            assert [each.sequence for each in second.assigned] == [1, 2]

    run(test)


def test_who_leaves_gives_its_share_away_at_once() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = await created(cluster, 2)
        async with client_of(node, "b") as second:
            async with client_of(node, "a") as first:
                await first.subscribe()
                await second.subscribe()
                await first.leave()
                await until(lambda: second.held == {0: [0, 1], 1: [0, 1]})
                with pytest.raises(RefusedError) as refused:
                    await first.report()
                assert refused.value.code == pb.ServerError.ConsumerNotFound
            assert consumers(node) == ("b",)

    run(test)


def test_what_no_message_holds_is_refused_or_ends_the_session_but_never_the_node() -> None:
    half_only = ConnectionLimits(frame_bytes_max=1_500)

    async def test(cluster: MemoryCluster) -> None:
        node = await created(cluster, 16)
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

    run(test)


def test_a_consumer_that_comes_back_in_time_finds_its_share_and_nobody_is_disturbed() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = await created(cluster, 2)
        async with client_of(node, "b") as second:
            async with client_of(node, "a") as first:
                await first.subscribe()
                await second.subscribe()
                await until(lambda: len(first.assigned) == 2)
                await first.report(released={1: [0, 1]})
                await until(lambda: second.held == {1: [0, 1]})
                first.cut()
            before = len(second.assigned)
            async with client_of(node, "a") as again:
                await again.subscribe({0: [0, 1]}, group=first.assigned[-1].group_id)
                assert again.held == {0: [0, 1]}
            assert len(second.assigned) == before
            assert consumers(node) == ("a", "b")

    run(test)


def test_a_consumer_that_stays_away_loses_its_share_when_its_grace_is_over() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = await created(cluster, 2)
        async with client_of(node, "b") as second:
            async with client_of(node, "a") as first:
                await first.subscribe()
                await first.report()
                await second.subscribe()
            await second.reports_until({0: [0, 1], 1: [0, 1]})
            assert consumers(node) == ("b",)

    run(
        test,
        scalableTopicConsumerSessionGracePeriodSeconds=2.7,
        scalableTopicConsumerSessionTimeoutSeconds=2,
    )


def test_a_silent_consumer_must_subscribe_again() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = await created(cluster)
        async with client_of(node, "a") as client:
            await client.subscribe()
            service = node.operations.topics.access.service
            await until(lambda: not service.consumers)
            with pytest.raises(RefusedError) as refused:
                await client.report()
            assert refused.value.code == pb.ServerError.ConsumerNotFound
            await client.subscribe()
            assert client.held == {0: [0, 1, 2, 3]}

    run(test, scalableTopicConsumerSessionTimeoutSeconds=2)


def test_a_node_that_loses_the_bundle_tells_the_consumers_at_once() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = await created(cluster)
        other = next(each for each in cluster.nodes if each is not node)
        async with client_of(node, "a") as client, client_of(other, "a") as again:
            first = await client.subscribe()
            unit, _ = controller_of(node.view, NAME)
            await node.operations.unload(unit, other.id)
            await until(lambda: bool(client.closed))
            assert client.closed == [
                f"{node.id} does not serve bundle {unit} any more: subscribe again"
            ]
            with pytest.raises(RefusedError) as refused:
                await client.report()
            assert refused.value.code == pb.ServerError.ConsumerNotFound
            group = first.assignment.group_id
            await again.subscribe(holdings={0: [0, 1, 2, 3]}, group=group)
            assert again.held == {0: [0, 1, 2, 3]}
            assert not again.closed

    run(test, 2)


def test_children_are_given_out_when_the_parent_is_drained() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = await created(cluster)
        async with client_of(node, "a") as client:
            await client.subscribe()
            (parent,) = cluster.segments.ends
            cluster.segments.ends[parent] = [1, 0, 2, 0]
            await node.operations.topics.split(NAME, 0)
            await until(lambda: bool(client.assigned[-1].segments[0].end_offsets))
            assert client.held == {0: [0, 1, 2, 3]}
            assert list(client.assigned[-1].segments[0].end_offsets) == [1, 0, 2, 0]
            await client.report(drained={0: [0, 1, 3]})
            await client.report(drained={0: [2]})
            await until(lambda: client.held == {1: [0, 1], 2: [0, 1]})
            known = node.view.subscription(NAME, "billing")
            assert known is not None
            assert known.drained == (0,)

    run(test)


def test_a_name_that_is_connected_is_busy_and_one_that_is_not_is_taken_over() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = await created(cluster)
        async with client_of(node, "a", instance=2) as second:
            async with client_of(node, "a", instance=1) as first:
                await first.subscribe()
                answer = await second.refused()
                assert answer.code == pb.ServerError.ConsumerBusy
                assert "another name" in answer.reason
                await first.report()
            service = node.operations.topics.access.service
            await until(lambda: not service.consumers)
            answer = await second.refused()
            assert answer.code == pb.ServerError.ServiceNotReady
            assert "may be serving yet" in answer.reason
            controller = service.controller(NAME)
            assert controller is not None
            await until(lambda: not controller.coordinators["billing"].is_lapsing("a", 2))
            await second.subscribe()
            await second.reports_until({0: [0, 1, 2, 3]})

    run(test, scalableTopicConsumerSessionTimeoutSeconds=2)


def test_queue_consumers_all_get_everything_and_are_not_registered() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = await created(cluster)
        kind = pb.ScalableConsumerType.QUEUE
        async with client_of(node, "a") as first, client_of(node, "b") as second:
            await first.subscribe(kind=kind)
            await second.subscribe(kind=kind)
            await node.operations.topics.split(NAME, 0)
            for client in (first, second):
                await until(lambda client=client: sorted(client.held) == [0, 1, 2])  # type: ignore[misc]
            assert consumers(node) == ()
            assert cluster.segments.share_groups == {first.assigned[0].group_id}
            for client in (first, second):
                await client.report(drained={0: [0, 1, 2, 3]})
            await until(lambda: sorted(first.held) == [1, 2])
            await first.leave()

    run(test)


def test_a_queues_consumer_that_leaves_with_nothing_keeps_no_segment_from_being_drained() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = await created(cluster)
        kind = pb.ScalableConsumerType.QUEUE
        async with client_of(node, "a") as first, client_of(node, "b") as second:
            await first.subscribe(kind=kind)
            await second.subscribe(kind=kind)
            await node.operations.topics.split(NAME, 0)
            await until(lambda: sorted(first.held) == [0, 1, 2])
            await until(lambda: sorted(second.held) == [0, 1, 2])
            await second.report(drained={0: [0, 1, 2, 3]})
            await second.leave()
            await first.report(drained={0: [0, 1, 2, 3]})
            await until(lambda: sorted(first.held) == [1, 2])

    run(test)


def test_every_bad_subscribe_has_its_own_code() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        async with client_of(node, "a") as client:
            assert (await client.refused()).code == pb.ServerError.TopicNotFound
            await created(cluster)
            await client.subscribe(kind=pb.ScalableConsumerType.QUEUE)
            wrong = await client.refused(kind=pb.ScalableConsumerType.CHECKPOINT)
            assert wrong.code == pb.ServerError.NotAllowedError
            assert "of type QUEUE" in wrong.reason
        async with client_of(node, "a b") as client:
            assert (await client.refused()).code == pb.ServerError.InvalidTopicName

    run(test)


def test_a_node_that_is_not_the_controller_says_who_is() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = await created(cluster)
        other = next(each for each in cluster.nodes if each is not node)
        async with client_of(other, "a") as client:
            answer = await client.refused()
            assert answer.code == pb.ServerError.ServiceNotReady
            assert node.settings.service_url in answer.reason

    run(test, 2)


def test_a_new_controller_takes_over_with_what_consumers_say_that_they_hold() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = await created(cluster, 2)
        other = next(each for each in cluster.nodes if each is not node)
        async with client_of(node, "a") as first, client_of(node, "b", 2) as second:
            await first.subscribe()
            await second.subscribe()
            await until(lambda: len(first.assigned) == 2)
            await first.report(released={1: [0, 1]})
            await until(lambda: second.held == {1: [0, 1]})
            unit = next(name for name, _ in node.operations.owned(node.id) if "0x" in name)
            await node.operations.unload(unit, other.id)
            with pytest.raises(RefusedError) as refused:
                await first.report()
            assert refused.value.code == pb.ServerError.ConsumerNotFound
            async with client_of(other, "a") as moved, client_of(other, "b", 2) as also:
                await moved.subscribe({0: [0, 1]}, group=first.assigned[-1].group_id)
                assert moved.held == {0: [0, 1]}
                await also.subscribe({1: [0, 1]}, group=second.assigned[-1].group_id)
                assert also.held == {1: [0, 1]}

    run(test, 2)


def test_an_idle_topic_has_no_controller() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = await created(cluster)
        service = node.operations.topics.access.service
        await until(lambda: not service.controllers())
        async with client_of(node, "a") as client:
            await client.subscribe()
            assert len(service.controllers()) == 1
            await client.leave()
            await until(lambda: not service.controllers())

    run(test)


def test_many_consumers_register_at_once() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = await created(cluster, 4)
        async with client_of(node, "c0") as client, asyncio.TaskGroup() as group:
            await client.subscribe()

            async def join(number: int) -> None:
                async with client_of(node, f"c{number}", number) as another:
                    await another.subscribe()

            for number in range(1, 30):
                group.create_task(join(number))
        assert len(consumers(node)) == 30

    run(test)


def test_a_bundle_that_was_away_between_two_entries_of_a_batch_takes_its_controllers_along() -> (
    None
):
    async def test(cluster: MemoryCluster) -> None:
        node = await created(cluster)
        service = node.operations.topics.access.service
        async with client_of(node, "a") as client:
            await client.subscribe()
            before = service.controller(NAME)
            name, _ = controller_of(node.view, NAME)
            unit = node.view.unit(name)
            assert unit is not None
            elsewhere = msgspec.structs.replace(unit, broker="b9:8080", version=unit.version + 1)
            service.folded([(name, elsewhere), (name, unit)])
            assert service.controller(NAME) is not before
            with pytest.raises(RefusedError) as refused:
                await client.report()
            assert refused.value.code == pb.ServerError.ConsumerNotFound
            await client.subscribe(holdings={0: [0, 1]})
            assert client.held == {0: [0, 1, 2, 3]}

    run(test)
