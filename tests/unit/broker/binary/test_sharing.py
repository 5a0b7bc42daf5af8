"""Consumers share segments by entry buckets, get more of them when there are too few."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from prometheus_client import generate_latest

from anabranch.core.entities.topic import TopicMove
from anabranch.core.log.records import topic_key
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import clock
from support.binary import one_node
from support.binary_consumer import client_of
from support.memory_cluster import MemoryNode, until
from support.there import there

NAME = "public/default/orders"
SHARE = f'{{segment="0",subscription="billing",topic="{NAME}"}}'
ROLLOVERS = f'pulsar_scalable_topic_rebucket_rollovers_total{{topic="{NAME}"}}'


@asynccontextmanager
async def shared(**settings: object) -> AsyncIterator[MemoryNode]:
    async with one_node(**settings) as node:
        await node.operations.topics.access.find_controller(NAME)
        await node.operations.topics.create(NAME, 1, {})
        yield node


def ranges(assigned: pb.ScalableConsumerAssignment) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in assigned.segments[0].bucket_ranges]


def figures(node: MemoryNode) -> set[str]:
    return set(generate_latest(node.metrics.registry).decode().splitlines())


async def test_a_shared_segment_is_told_and_measured_as_buckets_change_hands() -> None:
    async with shared() as node, client_of(node, "a") as first, client_of(node, "b") as second:
        await first.subscribe()
        assert ranges(first.assigned[-1]) == [], "one consumer has all of it"
        await second.subscribe()
        await until(lambda: len(first.assigned) == 2)
        found = figures(node)
        name = "pulsar_scalable_topic_"
        assert f'{name}segment_entry_buckets{{segment="0",topic="{NAME}"}} 4.0' in found
        assert f"{name}segment_consumers{SHARE} 2.0" in found
        assert f"{name}buckets_withheld{SHARE} 2.0" in found
        assert f"{name}drain_mode_active{SHARE} 0.0" in found
        await first.report(released={0: [2, 3]})
        await until(lambda: second.held == {0: [2, 3]})
        quarters = [(0, 16383), (16384, 32767), (32768, 49151), (49152, 65535)]
        assert ranges(first.assigned[-1]) == ranges(second.assigned[-1]) == quarters
        found = figures(node)
        assert f"{name}buckets_withheld{SHARE} 0.0" in found
        assert f"{name}bucket_reassignments_total{SHARE} 2.0" in found


async def test_a_bucket_unserved_for_too_long_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    async with shared() as node, client_of(node, "a") as client:
        await client.subscribe()
        service = node.operations.topics.access.service
        unserved = there(service.controller(NAME)).coordinators["billing"].target.unserved
        unserved.nobody()
        unserved.look([(0, 1), (0, 3)], set(), clock.now() - 1_000)
        service.reconcile(NAME)
        service.reconcile(NAME)
        metric = f"pulsar_scalable_topic_buckets_unserved{SHARE}"
        assert f"{metric} 2.0" in figures(node)
        await client.report()
        assert f"{metric} 2.0" not in figures(node)
    said = capsys.readouterr().out
    assert said.count("subscription.buckets_unserved") == 1
    assert "buckets=0/1,0/3" in said


async def test_a_rollover_counts_once_whatever_becomes_of_subscriptions_and_properties() -> None:
    async with shared() as node:
        await node.operations.topics.rebucket(NAME, 0, 8)
        assert f"{ROLLOVERS} 1.0" in figures(node)
        async with client_of(node, "a") as first, client_of(node, "b") as second:
            await first.subscribe()
            await second.subscribe()
            await until(lambda: len(second.assigned) > 0)
            assert f"{ROLLOVERS} 1.0" in figures(node)
            rolled = node.operations.topics.topic(NAME)
            assert rolled.move is TopicMove.COMMIT
            key, updated = topic_key(NAME), msgspec.structs.replace(rolled, move=TopicMove.UPDATE)
            node.operations.topics.access.service.folded([(key, rolled), (key, updated)])
            assert f"{ROLLOVERS} 2.0" in figures(node)
