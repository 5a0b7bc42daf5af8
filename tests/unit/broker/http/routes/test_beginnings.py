"""Where subscriptions begin, through HTTP and the binary protocol."""

from __future__ import annotations

from typing import Any

from anabranch.channel.errors import KafkaUnreachableError
from anabranch.wire import anabranch_pb2 as pb
from support.binary_consumer import client_of
from support.http import HttpNode, on_nodes
from support.memory_cluster import MemoryCluster, until
from support.scalable import BILLING, billing, created, refused, split_with_records, stats

SERVED = {"brokerServicePort": 7000}


@on_nodes()
async def test_a_subscription_begins_at_either_end_or_at_a_time(node: HttpNode) -> None:
    await split_with_records(node)
    all_of_it, late = {"0": 20, "1": 6, "2": 6}, {"0": 4, "1": 0, "2": 0}
    nothing = dict.fromkeys(all_of_it, 0)
    unsaved: dict[str, Any] = {"position": "latest", "type": "CHECKPOINT"}
    cases: tuple[tuple[dict[str, Any], dict[str, int] | None, list[int]], ...] = (
        ({}, all_of_it, []),
        ({"position": "earliest"}, all_of_it, []),
        ({"timestamp": 4}, late, []),
        ({"position": "latest"}, nothing, [0]),
        (unsaved, None, [0]),
    )
    for params, backlog, drained in cases:
        for _ in range(2):  # the second time it is there
            assert (await node.http.put(BILLING, params=params)).status_code == 204
        found = await billing(node)
        assert found["drainedSegments"] == drained
        assert backlog in (None, found["segments"])
        assert node.cluster.positions.groups == {}
        assert (await node.http.delete(BILLING)).status_code == 204


@on_nodes()
async def test_a_subscription_that_cannot_begin_where_it_is_to_is_not_made(node: HttpNode) -> None:
    http = node.http
    await created(node)
    both = {"position": "latest", "timestamp": "1"}
    refused(await http.put(BILLING, params=both), 412, "in one way")
    queue = {"position": "latest", "type": "QUEUE"}
    node.cluster.positions.told = False  # SASL guards Kafka
    refused(await http.put(BILLING, params=queue), 412, "if SASL guards Kafka")
    node.cluster.positions.failure = KafkaUnreachableError("Kafka does not answer")
    refused(await http.put(BILLING, params={"position": "latest"}), 503, "does not answer")
    assert (await stats(node))["subscriptions"] == {}


@on_nodes()
async def test_a_queue_that_has_begun_is_not_put_back_by_the_next_controller(
    node: HttpNode, cluster: MemoryCluster
) -> None:
    await split_with_records(node)
    params = {"position": "latest", "type": "QUEUE"}
    assert (await node.http.put(BILLING, params=params)).status_code == 204
    group = (await billing(node))["groupId"]
    begun = cluster.positions.queues[group]
    place = next(iter(begun))
    begun[place] = (begun[place][0] + 1, 0)  # somebody has read on
    read = dict(begun)
    node.node.operations.topics.subscriptions.groups._started.clear()
    assert (await node.http.put(BILLING, params=params)).status_code == 204
    assert cluster.positions.calls.count("begin_queue") == 2
    assert cluster.positions.queues[group] == read


@on_nodes(**SERVED)
async def test_nobody_is_let_in_to_a_queue_that_could_not_begin_yet(node: HttpNode) -> None:
    await split_with_records(node)
    async with client_of(node.node, "a") as client:
        node.cluster.positions.begun_failure = KafkaUnreachableError("Kafka does not answer")
        refusal = await client.refused(kind=pb.ScalableConsumerType.QUEUE, start=2)
        assert refusal.code == pb.ServerError.ServiceNotReady
        node.cluster.positions.begun_failure = None
        await client.subscribe(kind=pb.ScalableConsumerType.QUEUE, start=2)
        begun = node.cluster.positions.queues[client.assigned[-1].group_id]
        assert {at for at, _ in begun.values()} == {2}


@on_nodes(**SERVED)
async def test_what_is_removed_after_a_subscription_was_made_was_its_own_to_read(
    node: HttpNode,
) -> None:
    """So it is told where the earliest message was then; a queue's group finds it by itself."""
    parts = await split_with_records(node)
    positions = node.cluster.positions
    positions.begins = {(parts[0], 1): 3, (parts[1], 0): 2}
    async with client_of(node.node, "a") as client:
        await client.subscribe()
        starts = {s.segment_id: list(s.start_offsets) for s in client.assigned[-1].segments}
        assert starts == {0: [0, 3, 0, 0]}
        await client.leave()
    assert (await node.http.delete(BILLING)).status_code == 204
    positions.begins |= {(parts[0], bucket): 5 for bucket in range(4)}  # all that it holds
    positions.told = False
    for kind, drained in (("STREAM", [0]), ("QUEUE", [])):
        assert (await node.http.put(BILLING, params={"type": kind})).status_code == 204
        assert (await billing(node))["drainedSegments"] == drained
        assert (await node.http.delete(BILLING)).status_code == 204


@on_nodes(**SERVED)
async def test_a_consumer_says_where_the_subscription_begins_that_it_makes(node: HttpNode) -> None:
    await split_with_records(node)
    async with client_of(node.node, "a") as client:
        await client.subscribe(start=2)
        starts = {s.segment_id: list(s.start_offsets) for s in client.assigned[-1].segments}
        assert starts == {0: [2, 2, 2, 2]}
        await client.report(drained={0: [0, 1, 2, 3]})
        await until(lambda: client.held == {1: [0, 1], 2: [0, 1]})
        starts = {s.segment_id: list(s.start_offsets) for s in client.assigned[-1].segments}
        assert starts == {1: [2, 2], 2: [2, 2]}
