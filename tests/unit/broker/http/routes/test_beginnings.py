"""Where subscriptions begin, through HTTP and the binary protocol."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.channel.errors import KafkaUnreachableError
from anabranch.wire import anabranch_pb2 as pb
from support.binary_consumer import client_of
from support.http import HttpNode, with_http
from support.memory_cluster import MemoryCluster, until
from support.scalable import BILLING, billing, created, refused, split_with_records, stats

SERVED = {"brokerServicePort": 7000}


@pytest.mark.parametrize(
    ("params", "backlog", "drained"),
    [
        ({}, {"0": 20, "1": 6, "2": 6}, []),
        ({"position": "earliest"}, {"0": 20, "1": 6, "2": 6}, []),
        ({"timestamp": 4}, {"0": 4, "1": 0, "2": 0}, []),
        ({"position": "latest"}, {"0": 0, "1": 0, "2": 0}, [0]),
        ({"position": "latest", "type": "CHECKPOINT"}, None, [0]),
    ],
)
def test_a_subscription_begins_at_either_end_or_at_a_time(
    params: dict[str, Any], backlog: dict[str, int] | None, drained: list[int]
) -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await split_with_records(nodes[0], cluster)
        for _ in range(2):  # the second time it is there
            answer = await nodes[0].http.put(BILLING, params=params)
            assert answer.status_code == 204, answer.text
        found = await billing(nodes[0])
        assert found["drainedSegments"] == drained
        if backlog is not None:
            assert found["segments"] == backlog
        assert cluster.positions.groups == {}

    with_http(test)


def test_a_subscription_that_cannot_begin_where_it_is_to_is_not_made() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        http = nodes[0].http
        await created(nodes[0])
        both = {"position": "latest", "timestamp": "1"}
        refused(await http.put(BILLING, params=both), 412, "not both")
        queue = {"position": "latest", "type": "QUEUE"}
        cluster.positions.told = False  # SASL guards Kafka
        refused(await http.put(BILLING, params=queue), 412, "where SASL guards Kafka")
        cluster.positions.failure = KafkaUnreachableError("Kafka does not answer")
        refused(await http.put(BILLING, params={"position": "latest"}), 503, "does not answer")
        assert (await stats(nodes[0]))["subscriptions"] == {}

    with_http(test)


def test_a_queue_begins_where_it_is_told_before_anybody_reads_it() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        parts = await split_with_records(nodes[0], cluster)
        params: dict[str, Any] = {"timestamp": 4, "type": "QUEUE"}
        assert (await nodes[0].http.put(BILLING, params=params)).status_code == 204
        found = await billing(nodes[0])
        starts = {
            place: at for place, (at, _) in cluster.positions.queues[found["groupId"]].items()
        }
        sealed = {(parts[0], bucket): 4 for bucket in range(4)}
        assert starts == sealed | {(part, bucket): 3 for part in parts[1:] for bucket in range(2)}
        assert found["segments"] == {"0": 4, "1": 0, "2": 0}

    with_http(test)


def test_a_queue_that_has_begun_is_not_put_back_by_the_next_controller() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await split_with_records(nodes[0], cluster)
        params = {"position": "latest", "type": "QUEUE"}
        assert (await nodes[0].http.put(BILLING, params=params)).status_code == 204
        group = (await billing(nodes[0]))["groupId"]
        begun = cluster.positions.queues[group]
        place = next(iter(begun))
        begun[place] = (begun[place][0] + 1, 0)  # somebody has read on
        read = dict(begun)
        nodes[0].node.operations.topics.consumers.groups._started.clear()
        assert (await nodes[0].http.put(BILLING, params=params)).status_code == 204
        assert cluster.positions.calls.count("begin_queue") == 2
        assert cluster.positions.queues[group] == read

    with_http(test)


def test_nobody_is_let_in_to_a_queue_that_could_not_begin_yet() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await split_with_records(nodes[0], cluster)
        async with client_of(nodes[0].node, "a") as client:
            cluster.positions.begun_failure = KafkaUnreachableError("Kafka does not answer")
            refusal = await client.refused(kind=pb.ScalableConsumerType.QUEUE, start=2)
            assert refusal.code == pb.ServerError.ServiceNotReady
            cluster.positions.begun_failure = None
            await client.subscribe(kind=pb.ScalableConsumerType.QUEUE, start=2)
            begun = cluster.positions.queues[client.assigned[-1].group_id]
            assert {at for at, _ in begun.values()} == {2}

    with_http(test, **SERVED)


def test_a_consumer_says_where_the_subscription_begins_that_it_makes() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await split_with_records(nodes[0], cluster)
        async with client_of(nodes[0].node, "a") as client:
            await client.subscribe(start=2)
            starts = {s.segment_id: list(s.start_offsets) for s in client.assigned[-1].segments}
            assert starts == {0: [2, 2, 2, 2]}
            await client.report(drained={0: [0, 1, 2, 3]})
            await until(lambda: client.held == {1: [0, 1], 2: [0, 1]})
            starts = {s.segment_id: list(s.start_offsets) for s in client.assigned[-1].segments}
            assert starts == {1: [2, 2], 2: [2, 2]}

    with_http(test, **SERVED)
