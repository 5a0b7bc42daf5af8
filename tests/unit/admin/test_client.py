"""`anabranch.admin` at work: on nodes with real HTTP servers, and on what is no node."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from anabranch.admin import (
    Admin,
    AsyncAdmin,
    ConflictError,
    DeadLetterPolicy,
    InvalidInputError,
    InvalidRequestError,
    NodeFailedError,
    NoNodeError,
    NotFoundError,
    PreconditionError,
    RefusedError,
    UnavailableError,
    UnknownOutcomeError,
    UnreachableError,
)
from support.answering import Answer, node
from support.http import HttpNode, with_http
from support.memory_cluster import MemoryCluster
from support.nobody import nobody

TOPIC = "acme/shop/orders"


def url(node: HttpNode) -> str:
    return str(node.http.base_url)


def saying(body: object) -> Callable[[str, str], Answer]:
    return lambda _verb, _path: (200, {}, body)


async def _administer(admin: AsyncAdmin) -> None:
    """From an empty cluster to a topic that was split and merged, and back."""
    await admin.tenants.create_tenant("acme", await admin.tenants.get_clusters(), ["ada"])
    assert await admin.tenants.get_tenants() == ["acme", "public"]
    assert (await admin.tenants.get_tenant_info("acme")).admin_roles == ["ada"]
    await admin.tenants.update_tenant("acme", ["standalone"], [])
    await admin.namespaces.create_namespace("acme/shop", 2)
    policies = await admin.namespaces.get_policies("acme/shop")
    assert (policies.bundles.num_bundles, policies.replication_clusters) == (2, ["standalone"])
    assert policies.scalable_topic_auto_scale_policy == {}
    await _segments(admin)
    await _positions(admin)
    await _bundles(admin)
    await admin.scalable_topics.delete_scalable_topic(TOPIC)
    await admin.namespaces.delete_namespace("acme/shop")
    await admin.tenants.delete_tenant("acme")
    with pytest.raises(NotFoundError, match="acme"):
        await admin.namespaces.get_namespaces("acme")


async def _segments(admin: AsyncAdmin) -> None:
    topics = admin.scalable_topics
    await topics.create_scalable_topic(TOPIC, 2, {"team": "shop"})
    assert await topics.list_scalable_topics("acme/shop", {"team": "shop"}) == [f"topic://{TOPIC}"]
    assert await topics.list_scalable_topics("acme/shop", {"team": "other"}) == []
    await topics.split_segment(TOPIC, 0)
    layout = await topics.get_metadata(TOPIC)
    first, second = layout.segments[0].child_ids
    assert layout.segments[first].hash_range.start == 0
    await topics.merge_segments(TOPIC, first, second)
    await topics.rebucket_segment(TOPIC, 1, 4)
    with pytest.raises(PreconditionError, match="Kafka has one broker, 1"):
        await topics.relocate_segment(TOPIC, 2, (1,))
    with pytest.raises(PreconditionError):
        await topics.split_segment(TOPIC, 0)  # it is sealed
    with pytest.raises(ConflictError):
        await topics.create_scalable_topic(TOPIC)
    await topics.update_properties(TOPIC, {"tier": "gold"})
    await topics.remove_property(TOPIC, "team")
    assert await topics.get_properties(TOPIC) == {"tier": "gold"}
    await topics.set_auto_scale_policy(TOPIC, {"maxSegments": 16})
    assert await topics.get_auto_scale_policy(TOPIC) == {"maxSegments": 16}
    policy = (await topics.get_stats(TOPIC)).auto_scale.policy["maxSegments"]
    assert (policy.value, policy.level) == (16, "topic")
    await topics.remove_auto_scale_policy(TOPIC)
    assert await topics.get_auto_scale_policy(TOPIC) == {}


async def _positions(admin: AsyncAdmin) -> None:
    topics = admin.scalable_topics
    await topics.create_subscription(TOPIC, "billing")
    await topics.seek_subscription(TOPIC, "billing", datetime(2026, 1, 31, tzinfo=UTC))
    await topics.seek_subscription(TOPIC, "billing", "earliest")
    await topics.skip_all(TOPIC, "billing")
    await topics.create_subscription(TOPIC, "jobs", "QUEUE")
    assert await topics.get_dead_letter_policy(TOPIC, "jobs") is None
    await topics.set_dead_letter_policy(TOPIC, "jobs", max_deliveries=3)
    found = await topics.get_dead_letter_policy(TOPIC, "jobs")
    assert found is not None
    assert found == DeadLetterPolicy(f"topic://{TOPIC}-jobs-DLQ", 3)
    await topics.remove_dead_letter_policy(TOPIC, "jobs")
    await topics.delete_scalable_topic(found.dead_letter_topic)
    stats = await topics.get_stats(TOPIC)
    subscription = stats.subscriptions["billing"]
    assert (subscription.type, subscription.msg_backlog) == ("STREAM", 0)
    active = next(each for each in stats.segments.values() if each.state == "ACTIVE")
    await topics.create_segment(active.name, ["billing"])
    assert await topics.get_segment_backlog(active.name, "billing") == 0
    with pytest.raises(PreconditionError, match="split, merge or rebucket"):
        await topics.terminate_segment(active.name)
    await topics.delete_subscription(TOPIC, "billing")


async def _bundles(admin: AsyncAdmin) -> None:
    found = await admin.lookups.lookup_topic(f"topic://{TOPIC}")
    broker = (await admin.brokers.get_active_brokers())[0]
    assert found.http_url == f"http://{broker}"
    bundle = await admin.lookups.get_bundle_range(f"topic://{TOPIC}")
    status = await admin.brokers.get_status()
    owned = await admin.brokers.get_owned_namespaces(status.cluster_name, broker)
    assert f"acme/shop/{bundle}" in owned
    await admin.bundles.split_bundle("acme/shop", bundle)
    assert (await admin.bundles.get_bundles("acme/shop")).num_bundles == 3
    ownership = await admin.bundles.get_ownership("acme/shop")
    part = next(each for each in ownership.bundles if each.state == "OWNED").bundle
    await admin.bundles.unload_bundle("acme/shop", part)
    assert (await admin.brokers.get_leader_broker()).broker_id == broker
    assert await admin.brokers.health_check() == "ok"
    await admin.namespaces.set_scalable_topic_auto_scale_policy("acme/shop", {"enabled": False})
    policy = await admin.namespaces.get_scalable_topic_auto_scale_policy("acme/shop")
    assert policy == {"enabled": False}


def test_a_cluster_is_administered_from_python() -> None:
    async def body(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        async with AsyncAdmin(url(nodes[0])) as admin:
            await _administer(admin)

    with_http(body)


def test_the_form_that_waits_does_the_same() -> None:
    def work(address: str) -> None:
        with Admin(address) as admin:
            admin.tenants.create_tenant("acme", ["standalone"])
            admin.namespaces.create_namespace("acme/shop")
            admin.scalable_topics.create_scalable_topic(TOPIC, 3)
            layout = admin.scalable_topics.get_metadata(TOPIC)
            assert [each.hash_range.end for each in layout.segments.values()][-1] == 0xFFFF
            assert admin.answered_by == address.rstrip("/")
            with pytest.raises(NotFoundError) as refused:
                admin.scalable_topics.get_stats("acme/shop/nothing")
            assert (refused.value.status, "nothing" in refused.value.reason) == (404, True)

    async def body(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await asyncio.to_thread(work, url(nodes[0]))

    with_http(body)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequestError),
        (404, NotFoundError),
        (409, ConflictError),
        (412, PreconditionError),
        (413, InvalidRequestError),
        (418, InvalidRequestError),
        (500, NodeFailedError),
        (503, UnavailableError),
        (504, UnknownOutcomeError),
        (507, RefusedError),
    ],
)
def test_a_refusal_is_an_error_of_its_kind_with_the_node_s_reason(
    status: int, kind: type[Exception]
) -> None:
    with (
        node(lambda _verb, _path: (status, {}, {"reason": "it is Monday"})) as asked,
        Admin(asked) as admin,
        pytest.raises(kind, match=r"^it is Monday$"),
    ):
        admin.tenants.get_tenants()


def test_of_several_nodes_the_first_that_is_there_is_asked() -> None:
    with nobody() as gone, node(lambda _verb, _path: (200, {}, ["acme"])) as there:
        with Admin(f"http://{gone},{there}") as admin:
            assert admin.tenants.get_tenants() == ["acme"]
        with Admin(gone) as alone, pytest.raises(NoNodeError, match=gone):
            alone.tenants.get_tenants()


def test_a_change_is_not_sent_again_to_another_node_once_one_may_have_it() -> None:
    asked: list[str] = []

    def second(_verb: str, path: str) -> tuple[int, dict[str, str], object]:
        asked.append(path)
        return 204, {}, None

    with nobody() as gone, node(second) as other:
        sent_on = f"http://{gone}/elsewhere"
        with (
            node(lambda _verb, _path: (307, {"Location": sent_on}, None)) as first,
            Admin(f"{first},{other}") as admin,
            pytest.raises(UnreachableError, match="in charge of this by the log"),
        ):
            admin.tenants.create_tenant("acme", ["standalone"])
    assert asked == []


def test_what_is_no_node_of_this_version_is_said_to_be_none() -> None:
    answers: list[object] = [{"adminRoles": 7}, {}, ["no", "object"]]
    for answer in answers:
        with (
            node(saying(answer)) as asked,
            Admin(asked) as admin,
            pytest.raises(UnreachableError, match="is it a node"),
        ):
            admin.tenants.get_tenant_info("acme")


def test_an_answer_that_may_be_out_of_date_is_told(caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []
    with node(lambda _verb, _path: (200, {"X-Anabranch-Stale": "true"}, [])) as asked:
        with Admin(asked, on_stale=lambda: said.append("stale")) as admin:
            admin.tenants.get_tenants()
        with caplog.at_level(logging.WARNING, "anabranch.admin"), Admin(asked) as admin:
            admin.tenants.get_tenants()
    assert said == ["stale"]
    assert "may be out of date" in caplog.text


@pytest.mark.parametrize("wrong", ["pulsar://localhost:6650", "", "http://", "http://a:1,,b:2"])
def test_an_address_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidInputError, match=r"http://host:port.*webServicePort"):
        Admin(wrong)


def test_a_node_that_says_nothing_leaves_the_outcome_open() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,  # it takes connections and never reads
        Admin(f"127.0.0.1:{server.getsockname()[1]}", timeout_s=0.2) as admin,
        pytest.raises(UnknownOutcomeError, match="may yet be done"),
    ):
        admin.tenants.delete_tenant("acme")
