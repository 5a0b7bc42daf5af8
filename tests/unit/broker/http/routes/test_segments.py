"""Operations on topics when Kafka or the cluster is in trouble, and single segments, over HTTP."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import KafkaError, KafkaException

from anabranch.channel.errors import KafkaAccessError, ReplicasMissingError
from support.http import HttpNode, on_nodes
from support.memory_cluster import MemoryCluster, until
from support.scalable import TOPIC, created, layout, ranges, refused

NAME = "public/default/orders"
REFUSED = ReplicasMissingError("kafka:9092", "to create topic x", "only 1 broker(s)")


@on_nodes()
async def test_a_topic_that_kafka_refuses_is_undone_and_can_be_made_later(node: HttpNode) -> None:
    node.cluster.segments.failure = REFUSED
    first = asyncio.create_task(node.http.put(TOPIC))
    await until(lambda: "delete" in node.cluster.segments.calls)
    node.cluster.segments.failure = None
    refused(await first, 500, "set replicationFactor")
    assert node.node.view.topic(NAME) is None
    await created(node)


DENIED = KafkaAccessError("k:1", "to seal topic x", "Broker: Topic authorization failed")
UNKNOWN = KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))


@pytest.mark.parametrize(
    ("error", "reasons"),
    [
        (DENIED, ("refused to seal topic x: ", "Give this node's principal")),
        (UNKNOWN, (f"the segments of topic://{NAME}", "Unknown partition")),
    ],
)
@on_nodes(operationTimeoutMillis=1_000)
async def test_a_seal_that_fails_is_told_and_tried_again_and_does_not_end_the_node(
    error: Exception, reasons: tuple[str, str], node: HttpNode, cluster: MemoryCluster
) -> None:
    http = node.http
    await created(node)
    cluster.segments.denied_seal = error
    answer = await http.post(f"{TOPIC}/split/0")
    again = "It is tried again by itself; look before you ask again"
    for said in (f"topic://{NAME}", "split of 0 was not done", *reasons, again):
        refused(answer, 504, said)
    assert not node.node.runtime.ended.done()
    stats = (await http.get(f"{TOPIC}/stats")).json()
    assert stats["operation"] == "SPLIT"
    assert all(reason in stats["lastFailure"] for reason in reasons)
    refused(await http.post(f"{TOPIC}/split/0"), 409, "SPLIT of segment 0")
    cluster.segments.denied_seal = None
    await until(lambda: len(node.node.operations.topics.topic(NAME).segments) == 3)
    assert (await http.get(f"{TOPIC}/stats")).json()["lastFailure"] == ""


@on_nodes()
async def test_single_segments_are_not_changed_behind_the_logs_back(node: HttpNode) -> None:
    http = node.http
    await created(node)
    await http.put(f"{TOPIC}/subscriptions/billing")
    await http.post(f"{TOPIC}/split/0")
    path = "/admin/v2/segments/public/default/orders"
    active, sealed = f"{path}/0000-7fff-1", f"{path}/0000-ffff-0"
    unknown, wrong = f"{path}/0000-7fff-7", f"{path}/7fff-0000-x"
    refused(await http.put(active), 412, "split, merge")
    refused(await http.put(wrong), 412, "hexStart-hexEnd-id")
    refused(await http.post(f"{active}/terminate"), 412, "when others take over")
    for verb, end in (("PUT", ""), ("DELETE", ""), ("POST", "/seek"), ("POST", "/skip-all")):
        answer = await http.request(
            verb, f"{active}/subscription/billing{end}", params={"timestamp": 1}
        )
        refused(answer, 412, "one for all segments of its topic")
    for answer in (await http.put(unknown), await http.post(f"{unknown}/terminate")):
        refused(answer, 404, "Segment topic not found")
        known = "; the active segments are 0000-7fff-1, 8000-ffff-2"
        assert answer.json()["reason"].endswith(known)
    refused(await http.delete(active), 412, "is active")
    refused(await http.delete(sealed), 412, "still to be read by subscription billing")
    assert (await http.delete(unknown)).status_code == 204
    await http.delete(f"{TOPIC}/subscriptions/billing")
    assert (await http.delete(sealed)).status_code == 204
    body = await layout(node)
    assert (set(body["segments"]), body["segments"]["1"]["parentIds"]) == ({"1", "2"}, [])
    await until(lambda: len(node.cluster.segments.partitions) == 2)
    assert (await http.post(f"{TOPIC}/split/1")).status_code == 204


@on_nodes()
async def test_an_operation_goes_on_when_its_bundle_was_given_up_to_nobody(
    nodes: list[HttpNode], cluster: MemoryCluster
) -> None:
    node = nodes[0].node
    await created(nodes[0])
    cluster.segments.hold.clear()
    split = asyncio.create_task(nodes[0].http.post(f"{TOPIC}/split/0"))
    await until(lambda: cluster.segments.calls.count("create") == 2)
    unit = next(name for name, _ in node.operations.owned(node.id))
    unload = asyncio.create_task(node.operations.unload(unit))
    cluster.segments.hold.set()
    await unload
    await until(lambda: not list(node.view.restless_topics()))
    assert len(ranges(await layout(nodes[0]))) == 2
    assert (await split).status_code == 204


# The interval is so long that the topic is looked at for no other reason.
@on_nodes(scalableTopicRetentionSeconds=3_600, scalableTopicAutoScaleIntervalSeconds=3_600)
async def test_retention_is_measured_on_the_logs_clock(node: HttpNode) -> None:
    await created(node)
    assert (await node.http.post(f"{TOPIC}/split/0")).status_code == 204
    assert len(ranges(await layout(node), "SEALED")) == 1
    node.cluster.ahead_s += 7_200  # of the nodes' clocks
    assert (await node.http.put(f"{TOPIC}x")).status_code == 204
    # A topic at rest has no controller: it is looked at when its time has come.
    await until(lambda: len(node.cluster.segments.partitions) == 3)
    assert ranges(await layout(node), "SEALED") == {}


@on_nodes(scalableTopicRetentionSeconds=0)
async def test_a_sealed_segment_stays_as_long_as_producers_may_be_in_doubt_of_it(
    nodes: list[HttpNode], cluster: MemoryCluster
) -> None:
    await created(nodes[0])
    assert (await nodes[0].http.post(f"{TOPIC}/split/0")).status_code == 204
    assert len(ranges(await layout(nodes[0]), "SEALED")) == 1
    node = nodes[0].node
    for seconds, sealed in ((120, 1), (11, 0)):
        cluster.ahead_s += seconds
        assert (await nodes[0].http.put(f"{TOPIC}{seconds}")).status_code == 204
        node.operations.topics.access.service.reconcile("public/default/orders")
        await nodes[0].http.put(f"{TOPIC}{seconds}x")  # by then that is on the log
        assert len(ranges(await layout(nodes[0]), "SEALED")) == sealed
