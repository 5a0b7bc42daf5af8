"""How many things tenants may have: refused over HTTP and by the binary port, and changed."""

from __future__ import annotations

import asyncio
import re

import pytest

from anabranch.core.entities.subscription import SubscriptionKind
from anabranch.wire import anabranch_pb2 as pb
from support.binary import reachable
from support.binary_consumer import client_of
from support.commands import ran
from support.http import HttpNode, on_nodes
from support.scalable import BILLING, HOME, TOPIC, created, refused

NAMESPACES = "/admin/v2/namespaces"
FIRST = f"{NAMESPACES}/public/default"
CONFIGURATION = "/admin/v2/brokers/configuration"
TOPICS, SUBSCRIPTIONS = "maxTopicsPerNamespace", "maxSubscriptionsPerTopic"
CONSUMERS, TENANTS_OWN = "maxConsumersPerSubscription", "maxNamespacesPerTenant"


@on_nodes(1, **{TENANTS_OWN: 2, TOPICS: 1, SUBSCRIPTIONS: 1})
async def test_one_more_than_a_limit_is_refused_with_its_value_and_the_remedy_and_not_logged(
    node: HttpNode,
) -> None:
    http = node.http
    await created(node)
    assert (await http.put(BILLING)).status_code == 204
    assert (await http.put(f"{NAMESPACES}/public/x")).status_code == 204
    for path, whose, setting, value in (
        (f"{NAMESPACES}/public/y", "tenant public", TENANTS_OWN, 2),
        (f"{HOME}/bills", "namespace public/default", TOPICS, 1),
        (f"{TOPIC}/subscriptions/audit", "topic://public/default/orders", SUBSCRIPTIONS, 1),
    ):
        answer = await http.put(path)
        refused(answer, 412, f"{whose} has as many ")
        refused(answer, 412, f"as {setting} lets it have, {value}: delete one, or let a superuser")
        refused(answer, 412, f"anabranch config set {setting} N")
    assert (await http.put(BILLING)).status_code == 204  # it is there
    refused_keys = rb"namespace:public/y|topic:.*/bills|subscription:.*/audit"
    assert not any(re.fullmatch(refused_keys, each.key or b"") for each in node.cluster.entries)


@on_nodes(1, **{TENANTS_OWN: 2})
async def test_of_two_requests_for_the_last_room_the_log_refuses_one(node: HttpNode) -> None:
    asked = (node.http.put(f"{NAMESPACES}/public/{name}") for name in "xy")
    made, left = sorted(await asyncio.gather(*asked), key=lambda each: each.status_code)
    assert made.status_code == 204
    refused(left, 412, f"as {TENANTS_OWN} lets it have, 2: delete one, or let a superuser")
    proposed = [each.key for each in node.cluster.entries if each.key is not None]
    assert {b"namespace:public/x", b"namespace:public/y"} <= set(proposed)


@on_nodes()
async def test_the_cluster_changes_its_limits_while_nodes_run(node: HttpNode) -> None:
    await created(node)
    assert (await node.http.post(f"{CONFIGURATION}/{TOPICS}/1")).status_code == 204
    refused(await node.http.put(f"{HOME}/bills"), 412, f"{TOPICS} lets it have, 1")
    assert (await node.http.post(f"{CONFIGURATION}/{TOPICS}/2")).status_code == 204
    assert (await node.http.put(f"{HOME}/bills")).status_code == 204


@on_nodes(1, **{TOPICS: 1})
async def test_what_a_namespace_says_itself_is_set_shown_counts_and_is_taken_away(
    node: HttpNode,
) -> None:
    http, own = node.http, f"{FIRST}/{TOPICS}"
    await created(node)
    assert (await http.get(own)).json() is None
    assert (await http.post(own, json=2)).status_code == 204
    # What is changed besides leaves it as it is.
    assert (await http.post(f"{FIRST}/antiAffinity", json="apart")).status_code == 204
    policy = {"enabled": False}
    scale = f"{FIRST}/scalableTopicAutoScalePolicy"
    assert (await http.post(scale, json=policy)).status_code == 204
    assert (await http.get(own)).json() == 2
    policies = (await http.get(FIRST)).json()
    assert policies["max_topics_per_namespace"] == 2
    assert "max_subscriptions_per_topic" not in policies
    assert (await http.put(f"{HOME}/bills")).status_code == 204
    for number, least in ((0, 204), (1, 412)):
        assert (await http.post(own, json=number)).status_code == 204
        assert (await http.put(f"{HOME}/t{number}")).status_code == least
    before = len(node.cluster.entries)
    assert (await http.post(own, json=1)).status_code == 204
    assert len(node.cluster.entries) == before  # it says so already
    assert (await http.delete(own)).status_code == 204
    assert (await http.get(own)).json() is None
    refused(await http.post(own, json=-1), 412, f"{TOPICS} must be 0, for any number, or more")
    refused(await http.post(own, json="many"), 400, "")
    assert (await http.post(f"{NAMESPACES}/public/none/{TOPICS}", json=1)).status_code == 404


@pytest.mark.parametrize("setting", [TOPICS, SUBSCRIPTIONS, CONSUMERS])
@on_nodes()
async def test_a_command_sets_and_takes_away_what_a_namespace_says_itself(
    node: HttpNode, setting: str
) -> None:
    url, change = str(node.http.base_url), f"namespaces limit public/default {setting}"
    show = "namespaces show public/default"
    for number, said in ((3, "3"), (0, "any number")):
        done = await ran(url, f"{change} {number}", show)
        assert done[0].output == f"{setting} of public/default is {said}\n"
        assert f"{setting}: {said}\n" in done[1].output
    (done_away,) = await ran(url, f"{change} --remove")
    assert done_away.exit_code == 0
    assert (await node.http.get(f"{FIRST}/{setting}")).json() is None
    both, neither = await ran(url, f"{change} 3 --remove", change)
    assert (both.exit_code, neither.exit_code) == (2, 2)
    assert "give either a NUMBER or --remove" in both.errors


@pytest.mark.parametrize("kind", list(SubscriptionKind))
async def test_a_consumer_that_finds_no_place_is_told_that_it_is_busy_and_may_come_later(
    kind: SubscriptionKind,
) -> None:
    wanted = pb.ScalableConsumerType.Value(kind.name)
    async with reachable(**{SUBSCRIPTIONS: 1, CONSUMERS: 1}) as cluster:
        node = await cluster.create()
        async with client_of(node, "a") as first, client_of(node, "b", 2) as second:
            await first.subscribe(kind=wanted)
            answer = await second.refused(kind=wanted)
            assert answer.code == pb.ServerError.ConsumerBusy
            assert f"consumers as {CONSUMERS} lets it have, 1: close one" in answer.reason
            answer = await second.refused(kind=wanted, subscription="audit")
            assert answer.code == pb.ServerError.NotAllowedError
            assert f"{SUBSCRIPTIONS} lets it have, 1: delete one" in answer.reason
            await first.leave()
            await second.subscribe(kind=wanted)
