"""What no request may do to a node: too wide, too many, not storable, or starving others."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.broker.binary.forms import ClientSettings, Dags
from anabranch.broker.errors import PreconditionError
from anabranch.broker.topics.policies import check_layout, layout_bytes_max
from anabranch.broker.topics.watches import WatchedTopic
from anabranch.core.entities.layout import initial_segments
from anabranch.proxy.addresses import ProxyAddresses
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.framing import FRAME_BYTES_MAX
from support.binary_consumer import client_of
from support.http import PATIENT, http_nodes
from support.kept_topic import NAME, kept_topic
from support.memory_cluster import memory_cluster, until
from support.open_topic import topic_of
from support.scalable import TOPIC, refused


@pytest.mark.parametrize("count", [1, 300])
async def test_no_layout_is_larger_than_its_bound(count: int) -> None:
    async with memory_cluster(1, **PATIENT) as cluster:
        node = cluster.nodes[0]
        await node.operations.topics.create(NAME, count, {})
        for each in range(min(count, 4)):
            await node.operations.topics.split(NAME, each)
        topic = node.operations.topics.topic(NAME)
        dag = Dags(ClientSettings("anabranch.", "", 1, 1)).of(NAME, topic, WatchedTopic(topic))
        assert dag.ByteSize() <= layout_bytes_max("anabranch.", NAME, topic.segments) + 100


def test_a_layout_beyond_one_message_is_refused_by_its_size() -> None:
    long_name = f"public/default/{'x' * 200}"
    check_layout("anabranch.", NAME, initial_segments(22_000))
    with pytest.raises(PreconditionError, match=r"clients take 5\d{6}: let it have fewer"):
        check_layout("anabranch.", long_name, initial_segments(22_000))


async def test_a_topic_that_clients_could_not_be_told_of_is_not_made() -> None:
    async with http_nodes() as (nodes, cluster):
        answer = await nodes[0].http.put(
            f"/admin/v2/scalable/public/default/{'x' * 200}", params={"numInitialSegments": 65_536}
        )
        refused(answer, 412, "fewer segments")
        assert cluster.segments.calls == []


async def test_half_a_character_is_refused_wherever_it_is_sent() -> None:
    async with http_nodes() as (nodes, _):
        json = {"Content-Type": "application/json"}
        for body in (b'{"a":"\\ud800"}', b'{"\\ud800":"a"}'):
            answer = await nodes[0].http.put(TOPIC, content=body, headers=json)
            refused(answer, 400, "the body is not JSON")


async def test_an_instance_beyond_what_the_log_can_hold_is_refused_by_name() -> None:
    async with kept_topic() as kept:
        async with client_of(kept.node, "a", instance=2**63) as client:
            refusal = await client.refused()
            assert refusal.code == pb.ServerError.NotAllowedError
            assert f"instance is {2**63}" in refusal.reason
        async with client_of(kept.node, "a", instance=2**63 - 1) as client:
            await client.subscribe()


async def test_a_topic_that_another_request_deletes_while_it_is_made_is_a_conflict() -> None:
    async with http_nodes() as (nodes, cluster):
        http = nodes[0].http
        cluster.segments.hold.clear()
        making = asyncio.create_task(http.put(TOPIC))
        await until(lambda: "create" in cluster.segments.calls)
        deleting = asyncio.create_task(http.delete(TOPIC))
        topic = nodes[0].node.view.topic
        await until(lambda: (t := topic(NAME)) is not None and t.state.name == "DELETING")
        cluster.segments.hold.set()
        refused(await making, 409, "was deleted before it was ready")
        assert (await deleting).status_code == 204


def test_addresses_of_segments_are_left_out_only_where_no_message_has_room_for_them() -> None:
    parts = initial_segments(23_000)  # about as many as a topic may have
    topic = topic_of(1, parts)
    dags = Dags(ClientSettings("anabranch.", "", 1, 1))
    usual = dags.of(NAME, topic, WatchedTopic(topic, "pulsar://node-1.example.com:6650"))
    assert len(usual.segment_brokers) == len(parts)
    host = "x" * 63
    long = WatchedTopic(topic, f"pulsar://{host}:6650", f"pulsar+ssl://{host}:6651")
    bare = dags.of(NAME, topic, long)
    assert (len(bare.segments), len(bare.segment_brokers)) == (len(parts), 0)
    ProxyAddresses("http://p", f"pulsar://{host}.{host}:6650").in_layout(usual)
    assert len(usual.segment_brokers) == 0
    assert max(bare.ByteSize(), usual.ByteSize()) < FRAME_BYTES_MAX


# --- scalableTopicEnabled=false: nothing of scalable topics is served or done on that node --------


ORDERS = "public/default/orders"


async def test_a_node_where_topics_are_switched_off_neither_serves_nor_scales_them() -> None:
    async with memory_cluster(1, **PATIENT, brokerServicePort=7000) as cluster:
        node = await cluster.create()
        off = cluster.node(9, **PATIENT, brokerServicePort=7000, scalableTopicEnabled=False)
        await cluster.start(off)
        disabled = "Scalable topics are disabled on this broker"
        async with client_of(off, "a") as client:
            answer = await client.refused()
            assert (answer.code, answer.reason) == (pb.ServerError.NotAllowedError, disabled)
        watches = off.operations.topics.watches
        with pytest.raises(PreconditionError, match=disabled):
            await watches.appears(ORDERS)
        await node.operations.topics.policies.set_topic(ORDERS, {"enabled": True})
        await until(lambda: off.view.next_offset == len(cluster.entries))
        here = off.operations.topics.policies.effective(ORDERS)
        assert (here.policy.enabled, here.origins["enabled"].value) == (False, "broker")
        assert node.operations.topics.policies.effective(ORDERS).policy.enabled
