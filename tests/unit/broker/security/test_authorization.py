"""What the table of rights leaves to requests: what is told of what is hidden, noted and made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from structlog.testing import capture_logs

from anabranch.admin import Layout
from anabranch.broker.http import lookups as reads
from anabranch.broker.http.routes.topic_stats import layout_of
from anabranch.broker.load.traffic import TrafficGrowth
from anabranch.broker.settings import Settings
from anabranch.core.entities.topic import ScalableTopic
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from support.acme import ADMIN, BOSS, STRANGER, TOPIC, furnished_node, settings
from support.binary import subscribe
from support.secured import ROOT, SecuredNode, answer_to, bearer, secured_node
from support.tokens import token


async def answer_by_wire(node: SecuredNode, role: str, command: object) -> BaseCommand:
    async with node.connect("token", token(role).encode()) as client:
        await client.welcomed()
        return await answer_to(client, command)


async def test_what_a_role_may_not_see_is_answered_like_what_is_not_there(tmp_path: Path) -> None:
    async with furnished_node(tmp_path) as node:
        for method, there, missing in (
            ("GET", TOPIC, f"{ADMIN}/scalable/acme/shop/nothing"),
            ("GET", f"{TOPIC}/stats", f"{ADMIN}/scalable/acme/shop/nothing/stats"),
            ("GET", f"{ADMIN}/tenants/acme", f"{ADMIN}/tenants/nothing"),
            ("DELETE", f"{ADMIN}/namespaces/acme/shop", f"{ADMIN}/namespaces/acme/nothing"),
            ("GET", f"{LOOKUP}/acme/shop/orders", f"{LOOKUP}/acme/nothing/orders"),
        ):
            answers = [await node.ask(method, path, bearer(STRANGER)) for path in (there, missing)]
            assert [each.status_code for each in answers] == [404, 404]
            told = [re.sub(r"acme[/\w]*|nothing", "X", each.text) for each in answers]
            assert told[0] == told[1]


async def test_for_who_may_not_see_a_topic_nothing_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time would tell that the topic is there, and a look-up counts as its bundle's load."""
    made: list[object] = []

    def counted(topic: ScalableTopic) -> Layout:
        made.append(topic)
        return layout_of(topic)

    async with furnished_node(tmp_path) as node:
        monkeypatch.setattr(reads, "layout_of", counted)
        known = node.node.metrics.fast_lookups
        asked = pb.CommandLookupTopic(topic="topic://acme/shop/orders", request_id=1)
        for role, status, layouts, lookups in ((STRANGER, 404, 0, 0), (BOSS, 200, 1, 2)):
            for path in (TOPIC, "/lookup/v2/topic/topic/acme/shop/orders"):
                assert (await node.ask("GET", path, bearer(role))).status_code == status
            said = (await answer_by_wire(node, role, asked)).lookupTopicResponse
            is_told = said.response == pb.CommandLookupTopicResponse.Connect
            assert is_told == (role == BOSS)
            assert (len(made), node.node.metrics.fast_lookups) == (layouts, known + lookups)


async def test_refused_attempts_are_counted_and_logged_with_who_and_what(tmp_path: Path) -> None:
    async with furnished_node(tmp_path) as node:
        with capture_logs() as logged:
            await node.ask("POST", f"{TOPIC}/split/0", bearer("viewer"))
            await node.ask("GET", TOPIC, bearer(STRANGER))
            listed = pb.CommandGetTopicsOfNamespace(namespace="acme/shop", request_id=1)
            await answer_by_wire(node, "producer", listed)
        lines = [line for line in logged if line["event"] == "authorization.refused"]
        assert [(line["principal"], line["reason"], line["request"]) for line in lines] == [
            (
                "viewer",
                "denied",
                f"POST {ADMIN}/scalable/{{tenant}}/{{namespace}}/{{topic}}/split/{{segmentId}}",
            ),
            (STRANGER, "hidden", f"GET {ADMIN}/scalable/{{tenant}}/{{namespace}}/{{topic}}"),
            ("producer", "hidden", "GET_TOPICS_OF_NAMESPACE"),
        ]
        assert {line["peer"] for line in lines} == {"127.0.0.1"}
        assert (lines[0]["resource"], lines[0]["method"]) == ("acme/shop/orders", "token")
        assert lines[0]["why"] == "viewer needs scale"
        assert node.security.guard.refused == {"denied": 1, "hidden": 2}


async def test_metrics_are_for_everybody_unless_the_settings_say_otherwise(tmp_path: Path) -> None:
    async with secured_node(**settings(tmp_path) | {"authenticateMetricsEndpoint": False}) as node:
        for shown in ("", bearer(STRANGER), bearer(ROOT)):
            answer = await node.ask("GET", "/metrics", shown)
            assert answer.status_code == 200
            assert "# HELP" in answer.text
        assert (await node.ask("GET", "/metrics", "Bearer wrong")).status_code == 401
        assert (await node.ask("GET", f"{ADMIN}/tenants")).status_code == 401
    assert not Settings.of({}).authenticate_metrics_endpoint


LOOKUP: Final = "/lookup/v2/topic/persistent"
DEAD: Final = "acme/shop/orders-jobs-DLQ"


async def test_who_may_only_consume_has_no_topic_for_dead_letters(tmp_path: Path) -> None:
    """By either port; who may produce to it may use it, and an administrator have it made."""

    async with furnished_node(tmp_path) as node:
        view = node.node.view
        path = f"{TOPIC}/subscriptions/jobs"

        asked = subscribe(
            "acme/shop/orders",
            subscription="jobs",
            consumer_type=pb.ScalableConsumerType.QUEUE,
            dead_letter=pb.DeadLetterPolicy(topic="", deliveries_max=3),
        )

        async def subscribed() -> pb.CommandScalableTopicSubscribeResponse:
            answer = await answer_by_wire(node, "consumer", asked)
            return answer.scalableTopicSubscribeResponse

        async def put(role: str) -> int:
            body = {"maxDeliveries": 3}
            return (
                await node.ask("PUT", f"{path}/deadLetterPolicy", bearer(role), body)
            ).status_code

        assert (await subscribed()).error == ServerError.AuthorizationError
        assert view.subscription("acme/shop/orders", "jobs") is None, "nothing is made"
        assert (await node.ask("PUT", f"{path}?type=QUEUE", bearer("consumer"))).status_code == 204
        assert await put("consumer") == 403
        grant = f"{ADMIN}/namespaces/acme/shop/permissions/consumer"
        both = ["consume", "produce"]
        assert (await node.ask("POST", grant, bearer(BOSS), both)).status_code == 204
        assert await put("consumer") == 403, "it may produce, but not create topics"
        assert view.topic(DEAD) is None
        assert await put(BOSS) == 204
        assert view.topic(DEAD) is not None
        assert (await node.ask("DELETE", f"{path}/deadLetterPolicy", bearer(BOSS))).is_success
        assert await put("consumer") == 204, "it is there, and may be produced to"
        assert (await node.ask("POST", grant, bearer(BOSS), ["consume"])).status_code == 204
        assert not (await subscribed()).HasField("error"), "what is so already is not asked for"
        elsewhere = {"deadLetterTopic": "other/secret/topic", "maxDeliveries": 3}
        answer = await node.ask("PUT", f"{path}/deadLetterPolicy", bearer("consumer"), elsewhere)
        assert (answer.status_code, "not for consumer" in answer.text) == (404, True)
        assert node.security.guard.refused["denied"] == 3
        assert node.security.guard.refused["hidden"] == 1


async def test_what_a_node_worries_about_is_told_to_superusers_alone(tmp_path: Path) -> None:
    """It names roles, topics and archives; the rest of the status is everybody's."""
    worry = "Kafka's ACLs are not what was granted: User:ada READ TOPIC ...segment.acme.shop."

    async with furnished_node(tmp_path) as node:
        node.node.runtime.worries.append(lambda: [worry])
        for role in (ROOT, BOSS, "viewer", STRANGER):
            told = await node.ask("GET", f"{ADMIN}/brokers/status", bearer(role))
            assert told.status_code == 200
            assert told.json()["concerns"] == ([worry] if role == ROOT else [])
            assert told.json()["mode"] == "serving"


async def test_which_broker_gets_a_bundle_is_for_superusers_to_say(tmp_path: Path) -> None:
    async with furnished_node(tmp_path) as node:
        path = f"{ADMIN}/scalable/acme/shop/orders/unload"
        to = f"{path}?destinationBroker={node.node.settings.broker_id}"
        assert (await node.ask("PUT", path, bearer(BOSS))).status_code == 204
        refused = await node.ask("PUT", to, bearer(BOSS))
        assert refused.status_code == 403
        assert "a superuser" in refused.json()["reason"]
        assert (await node.ask("PUT", to, bearer(ROOT))).status_code == 204


async def test_a_client_is_believed_only_the_traffic_that_it_may_have(tmp_path: Path) -> None:
    async with furnished_node(tmp_path) as node:
        made = await node.ask("PUT", f"{TOPIC}/subscriptions/billing", bearer("consumer"))
        assert made.status_code == 204
        found = node.node.operations.topics.topic("acme/shop/orders")
        believed: dict[str, list[str]] = {}
        for number, role in enumerate((BOSS, "consumer", "producer")):
            grown: list[TrafficGrowth] = []
            node.node.operations.traffic.listener = grown.append
            report = pb.CommandScalableTrafficReport(
                request_id=1,
                topic="topic://acme/shop/orders",
                incarnation=found.incarnation,
                client_id=number,
                since_ms=1_000,
                segments=[
                    pb.SegmentTraffic(segment_id=0, subscription=each, messages=9, bytes=9)
                    for each in ("", "billing")
                ],
            )
            answer = await answer_by_wire(node, role, report)
            assert answer.type == BaseCommand.SCALABLE_TRAFFIC_REPORT_RESPONSE
            believed[role] = [each.subscription for each in grown]
        assert believed == {BOSS: ["", "billing"], "consumer": ["billing"], "producer": [""]}
