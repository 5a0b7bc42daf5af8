"""What each role may ask of a node, by either port, is what the table says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from anabranch.broker.binary.guarding import resource_of_command
from anabranch.broker.http.models.topics import layout_body
from anabranch.broker.http.routes import reads
from anabranch.broker.load.traffic import TrafficGrowth
from anabranch.broker.settings import Settings
from anabranch.core.security.actions import Action, Right
from anabranch.core.security.resources import ResourceLevel
from anabranch.core.security.table import REST, WIRE, AccessRule
from anabranch.core.topics.topic import ScalableTopic
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from support.acme import (
    ADMIN,
    BOSS,
    ON_NAMESPACE,
    ON_TOPIC,
    ROLES,
    STRANGER,
    TOPIC,
    furnished,
    settings,
)
from support.memory_cluster import MemoryCluster
from support.secured import ROOT, SecuredNode, answer_to, bearer, with_secured
from support.tokens import token

VALUES: Final = {
    "domain": "persistent",
    "tenant": "acme",
    "namespace": "shop",
    "topic": "orders",
    "cluster": "standalone",
    "broker": "b1:8080",
    "subscription": "billing",
    "descriptor": "0000-ffff-0",
    "bundle": "0x00000000_0xffffffff",
    "setting": "logLevel",
    "value": "info",
    "role": "nobody",
    "group": "racks",
    "policy": "none",
    "brokerId": "1",
    "segmentId": "9",
    "segmentId1": "9",
    "segmentId2": "8",
}


def wanted(rule: AccessRule, role: str) -> str:
    """What the table says: `yes`, `who` must say so first, `no`, or `hidden`."""
    need = rule.need
    if need.right is Right.PUBLIC:
        return "yes"
    if not role:
        return "who"
    if role == ROOT or need.right is Right.ANYONE:
        return "yes"
    if rule.level is ResourceLevel.CLUSTER:
        return "no"
    if role == BOSS:
        return "no" if need.right is Right.SUPERUSER else "yes"
    held = {} if rule.level is ResourceLevel.TENANT else dict(ON_NAMESPACE)
    held |= ON_TOPIC if rule.level is ResourceLevel.TOPIC else {}
    actions = {Action(each) for each in held.get(role, ())}
    if not actions:
        return "hidden"
    return "yes" if need.any_of & actions else "no"


def judged(status: int, reason: str) -> str:
    if status == 401:
        return "who"
    if status == 403:
        return "no"
    return "hidden" if status == 404 and "not for " in reason else "yes"


def test_each_route_is_served_to_whom_the_table_says(tmp_path: Path) -> None:
    """Those that change something come last, in the order of the table's: deleting after all."""

    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        await furnished(node)
        routes = sorted(REST.items(), key=lambda each: (*_rank(each[0]), each[0]))
        for request, rule in routes:
            method, path = request.split(" ")
            place = re.sub(r"{(\w+)}", lambda found: VALUES[found[1]], path)
            for role in reversed(ROLES):  # who may not comes first, and changes nothing
                shown = bearer(role) if role else ""
                before = len(node.node.view.entities)
                answer = await node.ask(method, place, shown)
                reason = answer.text if answer.status_code >= 400 else ""
                found = judged(answer.status_code, reason)
                assert found == wanted(rule, role), (request, role, answer.text)
                if found != "yes":
                    assert len(node.node.view.entities) == before
                else:
                    break  # whoever else may would only find it done

    with_secured(test, **settings(tmp_path))


def _rank(request: str) -> tuple[int, int]:
    method, path = request.split(" ")
    return ("GET", "POST", "PUT", "DELETE").index(method), -path.count("/")


NAMED: Final[dict[str, Any]] = {
    "LOOKUP": pb.CommandLookupTopic(topic="persistent://acme/shop/orders", request_id=1),
    "GET_TOPICS_OF_NAMESPACE": pb.CommandGetTopicsOfNamespace(namespace="acme/shop", request_id=1),
    "WATCH_TOPIC_LIST": pb.CommandWatchTopicList(
        namespace="acme/shop", topics_pattern=".*", request_id=1, watcher_id=1
    ),
    "WATCH_TOPIC_LIST_CLOSE": pb.CommandWatchTopicListClose(request_id=1, watcher_id=9),
    "SCALABLE_TOPIC_LOOKUP": pb.CommandScalableTopicLookup(
        topic="topic://acme/shop/orders", session_id=1
    ),
    "WATCH_SCALABLE_TOPICS": pb.CommandWatchScalableTopics(namespace="acme/shop", watch_id=1),
    "SCALABLE_TOPIC_SUBSCRIBE": pb.CommandScalableTopicSubscribe(
        request_id=1,
        topic="topic://acme/shop/orders",
        subscription="billing",
        consumer_name="one",
        consumer_id=1,
        consumer_type=pb.ScalableConsumerType.STREAM,
    ),
    "SCALABLE_TOPIC_UNSUBSCRIBE": pb.CommandScalableTopicUnsubscribe(request_id=1, consumer_id=9),
    "SCALABLE_CONSUMER_REPORT": pb.CommandScalableConsumerReport(request_id=1, consumer_id=9),
    "SCALABLE_TRAFFIC_REPORT": pb.CommandScalableTrafficReport(
        request_id=1, topic="acme/shop/orders", incarnation=1, client_id=1, since_ms=1
    ),
}
REFUSALS: Final[dict[int, str]] = {
    ServerError.AuthorizationError: "no",
    ServerError.TopicNotFound: "hidden",
}
UNANSWERED: Final = {"SCALABLE_TOPIC_CLOSE", "WATCH_SCALABLE_TOPICS_CLOSE"}


def _code(command: BaseCommand | None) -> int:
    """The error that it tells, -1 for none."""
    payload = commands.payload_of(command) if command is not None else None
    if payload is None or "error" not in payload.DESCRIPTOR.fields_by_name:
        return -1
    return int(payload.error) if payload.HasField("error") else -1


@pytest.mark.parametrize("name", NAMED)
def test_each_command_is_served_to_whom_the_table_says(name: str, tmp_path: Path) -> None:
    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        await furnished(node)
        for role in ROLES:
            if not role:
                continue
            async with node.connect("token", token(role).encode()) as client:
                await client.answer()
                answer = await answer_to(client, NAMED[name])
            found = REFUSALS.get(_code(answer), "yes")
            expected = wanted(WIRE[name], role)
            if name == "SCALABLE_TRAFFIC_REPORT" and expected == "yes":
                expected = "hidden"  # of another incarnation, which is not there
            assert found == expected, (role, answer)

    with_secured(test, **settings(tmp_path))


def test_all_commands_are_tried_or_have_no_answer() -> None:
    assert NAMED.keys() | UNANSWERED == WIRE.keys()
    for name, message in NAMED.items():
        assert resource_of_command(commands.envelope(message)).level is WIRE[name].level


def test_what_a_role_may_not_see_is_answered_like_what_is_not_there(tmp_path: Path) -> None:
    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        await furnished(node)
        for method, there, missing in (
            ("GET", TOPIC, f"{ADMIN}/scalable/acme/shop/nothing"),
            ("GET", f"{TOPIC}/stats", f"{ADMIN}/scalable/acme/shop/nothing/stats"),
            ("GET", f"{ADMIN}/tenants/acme", f"{ADMIN}/tenants/nothing"),
            ("DELETE", f"{ADMIN}/namespaces/acme/shop", f"{ADMIN}/namespaces/acme/nothing"),
            *(
                (
                    "GET",
                    f"/lookup/v2/topic/persistent/{each}",
                    f"/lookup/v2/topic/persistent/{other}",
                )
                for each, other in (("acme/shop/orders", "acme/nothing/orders"),)
            ),
        ):
            answers = [await node.ask(method, path, bearer(STRANGER)) for path in (there, missing)]
            assert [each.status_code for each in answers] == [404, 404]
            told = [re.sub(r"acme[/\w]*|nothing", "X", each.text) for each in answers]
            assert told[0] == told[1]

    with_secured(test, **settings(tmp_path))


def test_for_who_may_not_see_a_topic_nothing_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long that takes would tell that it is there, and it costs the node something."""
    made: list[object] = []

    def counted(topic: ScalableTopic) -> dict[str, Any]:
        made.append(topic)
        return layout_body(topic)

    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        await furnished(node)
        monkeypatch.setattr(reads, "layout_body", counted)
        known = node.node.metrics.fast_lookups
        for path in (TOPIC, "/lookup/v2/topic/topic/acme/shop/orders"):
            assert (await node.ask("GET", path, bearer(STRANGER))).status_code == 404
        assert (made, node.node.metrics.fast_lookups) == ([], known)
        for path in (TOPIC, "/lookup/v2/topic/topic/acme/shop/orders"):
            assert (await node.ask("GET", path, bearer(BOSS))).status_code == 200
        assert (len(made), node.node.metrics.fast_lookups) == (1, known + 1)

    with_secured(test, **settings(tmp_path))


def test_a_look_up_by_command_that_is_refused_is_no_load_of_its_bundle(tmp_path: Path) -> None:
    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        await furnished(node)
        counts = node.node.metrics
        asked = pb.CommandLookupTopic(topic="topic://acme/shop/orders", request_id=1)
        for role, counted in ((STRANGER, 0), (BOSS, 1)):
            known = counts.fast_lookups
            async with node.connect("token", token(role).encode()) as client:
                await client.answer()
                answer = await answer_to(client, asked)
            assert answer is not None
            said = answer.lookupTopicResponse
            assert (said.response == pb.CommandLookupTopicResponse.Connect) == bool(counted)
            assert counts.fast_lookups == known + counted

    with_secured(test, **settings(tmp_path))


def test_what_is_granted_or_revoked_counts_from_the_next_request_on(tmp_path: Path) -> None:
    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        await furnished(node)
        path = f"{TOPIC}/permissions/{STRANGER}"
        assert (await node.ask("GET", TOPIC, bearer(STRANGER))).status_code == 404
        assert (await node.ask("POST", path, bearer(BOSS), ["view"])).status_code == 204
        assert (await node.ask("GET", TOPIC, bearer(STRANGER))).status_code == 200
        assert (await node.ask("POST", f"{TOPIC}/split/0", bearer(STRANGER))).status_code == 403
        assert (await node.ask("DELETE", path, bearer(BOSS))).status_code == 204
        assert (await node.ask("GET", TOPIC, bearer(STRANGER))).status_code == 404

    with_secured(test, **settings(tmp_path))


def test_refused_attempts_are_counted_and_logged_with_who_what_and_from_where(
    tmp_path: Path,
) -> None:
    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        await furnished(node)
        with capture_logs() as logged:
            await node.ask("POST", f"{TOPIC}/split/0", bearer("viewer"))
            await node.ask("GET", TOPIC, bearer(STRANGER))
            async with node.connect("token", token("producer").encode()) as client:
                await client.answer()
                await answer_to(client, NAMED["GET_TOPICS_OF_NAMESPACE"])
        lines = [line for line in logged if line["event"] == "authorization.refused"]
        told = [(line["principal"], line["reason"], line["request"]) for line in lines]
        assert told == [
            (
                "viewer",
                "denied",
                f"POST {ADMIN}/scalable/{{tenant}}/{{namespace}}/{{topic}}/split/{{segmentId}}",
            ),
            (STRANGER, "hidden", f"GET {ADMIN}/scalable/{{tenant}}/{{namespace}}/{{topic}}"),
            ("producer", "hidden", "GET_TOPICS_OF_NAMESPACE"),
        ]
        assert {line["peer"] for line in lines} == {"127.0.0.1"}
        assert lines[0]["resource"] == "acme/shop/orders"
        assert lines[0]["method"] == "token"
        assert lines[0]["why"] == "viewer needs scale"
        assert node.security.guard.refused == {"denied": 1, "hidden": 2, "rate": 0}

    with_secured(test, **settings(tmp_path))


def test_metrics_are_for_everybody_unless_the_settings_say_otherwise(tmp_path: Path) -> None:
    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        for shown in ("", bearer(STRANGER), bearer(ROOT)):
            answer = await node.ask("GET", "/metrics", shown)
            assert answer.status_code == 200
            assert "# HELP" in answer.text
        assert (await node.ask("GET", "/metrics", "Bearer wrong")).status_code == 401
        assert (await node.ask("GET", f"{ADMIN}/tenants")).status_code == 401

    with_secured(test, **settings(tmp_path) | {"authenticateMetricsEndpoint": False})
    assert not Settings.model_validate({}).authenticate_metrics_endpoint


QUEUE: Final = pb.ScalableConsumerType.QUEUE
DEAD: Final = "acme/shop/orders-jobs-DLQ"


def _subscribe(role_s_letters: str = "") -> pb.CommandScalableTopicSubscribe:
    return pb.CommandScalableTopicSubscribe(
        request_id=1,
        topic="topic://acme/shop/orders",
        subscription="jobs",
        consumer_name="one",
        consumer_id=1,
        consumer_type=QUEUE,
        dead_letter=pb.DeadLetterPolicy(topic=role_s_letters, deliveries_max=3),
    )


def test_who_may_only_consume_has_no_topic_made_or_used_for_dead_letters(tmp_path: Path) -> None:
    """By either port; who may produce to it may use it, and an administrator have it made."""

    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        await furnished(node)
        view = node.node.view
        path = f"{TOPIC}/subscriptions/jobs"

        async def subscribed(role: str) -> BaseCommand | None:
            async with node.connect("token", token(role).encode()) as client:
                await client.answer()
                return await answer_to(client, _subscribe())

        async def put(role: str) -> int:
            body = {"maxDeliveries": 3}
            return (
                await node.ask("PUT", f"{path}/deadLetterPolicy", bearer(role), body)
            ).status_code

        assert _code(await subscribed("consumer")) == ServerError.AuthorizationError
        assert view.subscription("acme/shop/orders", "jobs") is None, "nothing is made"
        made = await node.ask("PUT", f"{path}?type=QUEUE", bearer("consumer"))
        assert made.status_code == 204
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
        only = ["consume"]
        assert (await node.ask("POST", grant, bearer(BOSS), only)).status_code == 204
        assert _code(await subscribed("consumer")) == -1, "what is so already is not asked for"
        elsewhere = {"deadLetterTopic": "other/secret/topic", "maxDeliveries": 3}
        answer = await node.ask("PUT", f"{path}/deadLetterPolicy", bearer("consumer"), elsewhere)
        assert (answer.status_code, "not for consumer" in answer.text) == (404, True)
        assert node.security.guard.refused["denied"] == 3
        assert node.security.guard.refused["hidden"] == 1

    with_secured(test, **settings(tmp_path))


def test_what_a_node_worries_about_is_told_to_superusers_alone(tmp_path: Path) -> None:
    """It names roles, topics and archives; the rest of the status is everybody's."""
    worry = "Kafka's ACLs are not what was granted: User:ada READ TOPIC ...segment.acme.shop."

    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        await furnished(node)
        node.node.runtime.worries.append(lambda: [worry])
        for role in (ROOT, BOSS, "viewer", STRANGER):
            told = await node.ask("GET", f"{ADMIN}/brokers/status", bearer(role))
            assert told.status_code == 200
            assert told.json()["concerns"] == ([worry] if role == ROOT else [])
            assert told.json()["mode"] == "serving"

    with_secured(test, **settings(tmp_path))


def test_which_broker_gets_a_bundle_is_for_superusers_to_say_by_every_route(tmp_path: Path) -> None:
    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        await furnished(node)
        path = f"{ADMIN}/scalable/acme/shop/orders/unload"
        to = f"{path}?destinationBroker={node.node.settings.broker_id}"
        assert (await node.ask("PUT", path, bearer(BOSS))).status_code == 204
        refused = await node.ask("PUT", to, bearer(BOSS))
        assert refused.status_code == 403
        assert "a superuser" in refused.json()["reason"]
        assert (await node.ask("PUT", to, bearer(ROOT))).status_code == 204

    with_secured(test, **settings(tmp_path))


def test_a_client_is_believed_only_the_traffic_that_it_may_have(tmp_path: Path) -> None:
    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        await furnished(node)
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
            async with node.connect("token", token(role).encode()) as client:
                await client.answer()
                answer = await answer_to(client, report)
            assert answer is not None
            assert answer.type == BaseCommand.SCALABLE_TRAFFIC_REPORT_RESPONSE
            believed[role] = [each.subscription for each in grown]
        assert believed == {BOSS: ["", "billing"], "consumer": ["billing"], "producer": [""]}

    with_secured(test, **settings(tmp_path))


def test_a_tenant_s_administrators_are_roles(tmp_path: Path) -> None:
    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        root, path = bearer(ROOT), f"{ADMIN}/tenants/river"
        for method, role in (("PUT", ""), ("PUT", "ada\0"), ("PUT", "ada"), ("POST", " ada")):
            told = {"adminRoles": ["bob", role], "allowedClusters": ["standalone"]}
            answer = await node.ask(method, path, root, told)
            assert answer.status_code == (204 if role == "ada" else 412)

    with_secured(test, **settings(tmp_path))
