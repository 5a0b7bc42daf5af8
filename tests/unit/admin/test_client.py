"""`anabranch.admin` at work: on nodes with real HTTP servers, and on what is no node."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from datetime import UTC, datetime

import httpx
import pytest

from anabranch import admin as sdk
from support.answering import Answer, node
from support.http import HttpNode, on_nodes
from support.nobody import nobody

TOPIC = "acme/shop/orders"


def url(node: HttpNode) -> str:
    return str(node.http.base_url)


def saying(body: object) -> Callable[[str, str], Answer]:
    return lambda _verb, _path: (200, {}, body)


async def _administer(admin: sdk.AsyncAdmin) -> None:
    """From an empty cluster to a topic that was split and merged, and back."""
    await admin.tenants.create_tenant("acme", await admin.tenants.get_clusters(), ["ada"])
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
    with pytest.raises(sdk.NotFoundError, match="acme"):
        await admin.namespaces.get_namespaces("acme")


async def _segments(admin: sdk.AsyncAdmin) -> None:
    topics = admin.scalable_topics
    await topics.create_scalable_topic(TOPIC, 2, {"team": "shop"})
    assert await topics.list_scalable_topics("acme/shop", {"team": "shop"}) == [f"topic://{TOPIC}"]
    await topics.split_segment(TOPIC, 0)
    layout = await topics.get_metadata(TOPIC)
    first, second = layout.segments[0].child_ids
    assert layout.segments[first].hash_range.start == 0
    await topics.merge_segments(TOPIC, first, second)
    await topics.rebucket_segment(TOPIC, 1, 4)
    await topics.prepare_segments(TOPIC, 5, 2)
    await topics.prepare_segments(TOPIC, 5)
    assert (await topics.get_metadata(TOPIC)).epoch == 4, "there was nothing left to do"
    with pytest.raises(sdk.PreconditionError):
        await topics.split_segment(TOPIC, 0)  # it is sealed
    with pytest.raises(sdk.ConflictError):
        await topics.create_scalable_topic(TOPIC)
    await topics.update_properties(TOPIC, {"tier": "gold"})
    await topics.remove_property(TOPIC, "team")
    assert await topics.get_properties(TOPIC) == {"tier": "gold"}


async def _positions(admin: sdk.AsyncAdmin) -> None:
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
    assert found == sdk.DeadLetterPolicy(f"topic://{TOPIC}-jobs-DLQ", 3)
    await topics.remove_dead_letter_policy(TOPIC, "jobs")
    await topics.delete_scalable_topic(found.dead_letter_topic)
    stats = await topics.get_stats(TOPIC)
    subscription = stats.subscriptions["billing"]
    assert (subscription.type, subscription.msg_backlog) == ("STREAM", 0)
    active = next(each for each in stats.segments.values() if each.state == "ACTIVE")
    assert await topics.get_segment_backlog(active.name, "billing") == 0
    with pytest.raises(sdk.PreconditionError, match="split, merge or rebucket"):
        await topics.terminate_segment(active.name)
    await topics.delete_subscription(TOPIC, "billing")


async def _bundles(admin: sdk.AsyncAdmin) -> None:
    found = await admin.lookups.lookup_topic(f"topic://{TOPIC}")
    broker = (await admin.brokers.get_active_brokers())[0]
    assert found.http_url == f"http://{broker}"
    bundle = await admin.lookups.get_bundle_range(f"topic://{TOPIC}")
    status = await admin.brokers.get_status()
    owned = await admin.brokers.get_owned_namespaces(status.cluster_name, broker)
    assert f"acme/shop/{bundle}" in owned
    assert (await admin.brokers.get_leader_broker()).broker_id == broker
    assert await admin.brokers.health_check() == "ok"


@on_nodes()
async def test_a_cluster_is_administered_from_python(node: HttpNode) -> None:
    async with sdk.AsyncAdmin(url(node)) as admin:
        await _administer(admin)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, sdk.NotFoundError),
        (418, sdk.InvalidRequestError),
        (503, sdk.UnavailableError),
        (504, sdk.UnknownOutcomeError),
        (507, sdk.RefusedError),
    ],
)
def test_a_refusal_is_an_error_with_the_node_s_reason(status: int, kind: type[Exception]) -> None:
    with (
        node(lambda _verb, _path: (status, {}, {"reason": "it is Monday"})) as asked,
        sdk.Admin(asked) as admin,
        pytest.raises(kind, match=r"^it is Monday$"),
    ):
        admin.tenants.get_tenants()


@pytest.mark.parametrize("given", ["http://127.0.0.1:80", "http://LOCALHOST:21080"])
def test_the_next_node_is_asked_however_the_first_ones_address_is_spelled(given: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host != "second":
            raise httpx.ConnectError("refused", request=request)
        return httpx.Response(200, json=["acme"])

    for nodes in (given, f"{given},http://second:8080"):
        with sdk.Admin(nodes) as admin:
            admin._client.close()
            admin._client = httpx.Client(transport=httpx.MockTransport(answer))
            if nodes == given:
                with pytest.raises(sdk.NoNodeError, match=f"answers at {given} [(]refused[)]$"):
                    admin.tenants.get_tenants()
            else:
                assert admin.tenants.get_tenants() == ["acme"]


def test_a_change_is_not_sent_again_to_another_node_once_one_may_have_it() -> None:
    asked: list[str] = []

    def second(_verb: str, path: str) -> tuple[int, dict[str, str], object]:
        asked.append(path)
        return 204, {}, None

    with nobody() as gone, node(second) as other:
        sent_on = f"http://{gone}/elsewhere"
        with (
            node(lambda _verb, _path: (307, {"Location": sent_on}, None)) as first,
            sdk.Admin(f"{first},{other}") as admin,
            pytest.raises(sdk.UnreachableError, match="in charge of this by the log"),
        ):
            admin.tenants.create_tenant("acme", ["standalone"])
    assert asked == []


def test_what_is_no_node_of_this_version_is_said_to_be_none() -> None:
    answers: list[object] = [{}, ["no", "object"]]
    for answer in answers:
        with (
            node(saying(answer)) as asked,
            sdk.Admin(asked) as admin,
            pytest.raises(sdk.UnreachableError, match="is it a node"),
        ):
            admin.tenants.get_tenant_info("acme")


def test_an_answer_that_may_be_out_of_date_is_told(caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []
    with node(lambda _verb, _path: (200, {"X-Anabranch-Stale": "true"}, [])) as asked:
        with sdk.Admin(asked, on_stale=lambda: said.append("stale")) as admin:
            admin.tenants.get_tenants()
        with caplog.at_level(logging.WARNING, "anabranch.admin"), sdk.Admin(asked) as admin:
            admin.tenants.get_tenants()
    assert said == ["stale"]
    assert "may be out of date" in caplog.text


@pytest.mark.parametrize("wrong", ["pulsar://localhost:6650", "", "http://a:1,,b:2"])
def test_an_address_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(sdk.InvalidInputError, match=r"http://host:port.*webServicePort"):
        sdk.Admin(wrong)


def test_a_node_that_says_nothing_leaves_the_outcome_open() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,  # it takes connections and never reads
        sdk.Admin(f"127.0.0.1:{server.getsockname()[1]}", timeout_s=0.2) as admin,
        pytest.raises(sdk.UnknownOutcomeError, match="may yet be done"),
    ):
        admin.tenants.delete_tenant("acme")
