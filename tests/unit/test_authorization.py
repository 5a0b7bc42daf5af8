"""What each role may ask of a node, by either port, is what the table says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from anabranch.broker.binary.guarding import resource_of_command
from anabranch.core.security.actions import Action, Right
from anabranch.core.security.resources import ResourceLevel
from anabranch.core.security.table import REST, WIRE, AccessRule
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from support.memory_cluster import MemoryCluster
from support.secured import (
    ROOT,
    SecuredNode,
    answer_to,
    bearer,
    tokens_alone,
    with_secured,
)
from support.tokens import token

ADMIN: Final = "/admin/v2"
TOPIC: Final = f"{ADMIN}/scalable/acme/shop/orders"
# What was granted to each role: on acme/shop, on its topic, or as acme's administrator.
ON_NAMESPACE: Final = {"consumer": ["consume"], "viewer": ["view"], "scaler": ["scale"]}
ON_TOPIC: Final = {"producer": ["produce"]}
BOSS: Final = "boss"
STRANGER: Final = "stranger"
ROLES: Final = (ROOT, BOSS, *ON_NAMESPACE, *ON_TOPIC, STRANGER, "")
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


def settings(folder: Path) -> dict[str, object]:
    return tokens_alone(
        folder,
        authorizationEnabled=True,
        superuserRoles=ROOT,
        perIpLimitExemptAddresses="127.0.0.1",
    )


async def furnished(node: SecuredNode) -> None:
    """A tenant with an administrator, a namespace, a topic, and what is granted on them."""
    root = bearer(ROOT)
    tenant = {"adminRoles": [BOSS], "allowedClusters": ["standalone"]}
    assert (await node.ask("PUT", f"{ADMIN}/tenants/acme", root, tenant)).status_code == 204
    boss = bearer(BOSS)
    assert (await node.ask("PUT", f"{ADMIN}/namespaces/acme/shop", boss)).status_code == 204
    assert (await node.ask("PUT", TOPIC, boss)).status_code == 204
    for home, granted in ((f"{ADMIN}/namespaces/acme/shop", ON_NAMESPACE), (TOPIC, ON_TOPIC)):
        for role, actions in granted.items():
            path = f"{home}/permissions/{role}"
            assert (await node.ask("POST", path, boss, actions)).status_code == 204


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
        assert lines[0]["why"] == "it needs scale"
        assert node.security.guard.refused == {"denied": 1, "hidden": 2}

    with_secured(test, **settings(tmp_path))
