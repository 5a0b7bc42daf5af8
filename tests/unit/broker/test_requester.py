"""A change of the log says who asked for it, and nothing else does."""

from __future__ import annotations

import asyncio
from typing import Final

import httpx
import msgspec
import pytest
from structlog.testing import capture_logs

from anabranch.broker.proposals import not_permitted
from anabranch.broker.requester import asked_by, principal
from anabranch.cli.cluster.log import sentence
from anabranch.core.entities.topic import TopicMove
from anabranch.core.entities.unit import Move
from anabranch.core.log.records import (
    Cause,
    PolicyOp,
    Record,
    SubscriptionChange,
    TenantChange,
    TopicChange,
    UnitMove,
)
from anabranch.core.security.principal import Principal
from support.asking import ASKED, TENANT, asking
from support.binary import reachable
from support.binary_consumer import client_of
from support.memory_cluster import MemoryCluster, until

ADA: Final = "ada"
GATE: Final = "gate"
ADMIN: Final = "/admin/v2"
CHANGES: Final = [each for each in ASKED if each[0] != "DELETE"]
"""What is asked for by REST, one after the other."""


def records(cluster: MemoryCluster) -> list[Record]:
    return [record for entry in cluster.entries if (record := entry.record()) is not None]


async def ask(
    client: httpx.AsyncClient, who: str, method: str, path: str, body: object, by: str = ""
) -> None:
    headers = {"who": who, "by": by}
    answer = await client.request(method, ADMIN + path, json=body, headers=headers)
    assert answer.status_code == 204, (path, answer.text)


@pytest.mark.parametrize(("who", "by"), [(ADA, ""), ("", ""), (ADA, GATE)])
async def test_what_is_asked_for_by_rest_names_who_asked_and_no_more(who: str, by: str) -> None:
    async with reachable(scalableTopicAutoScaleEnabled=False) as cluster:
        async with asking(cluster.nodes[0]) as client:
            for method, path, body in CHANGES:
                before = len(records(cluster))
                await ask(client, who, method, path, body, by)
                told = [names(each) for each in records(cluster)[before:]]
                assert [each for each in told if any(each)] == ([(who, by)] if who else []), path
            assert (await client.get(f"{ADMIN}/scalable/acme/shop/orders")).json()["epoch"] == 2
        found = records(cluster)
        kinds = {type(record) for record in found if names(record) == (ADA, by)}
        assert len(kinds) == (8 if who else 0)
        # What the controller and the bundle's owner did next, they did by themselves.
        moves = [record for record in found if isinstance(record, TopicChange)]
        asked = {record.move for record in moves if record.principal}
        by_request = {TopicMove.CREATE, TopicMove.UPDATE, TopicMove.POLICY, TopicMove.BEGIN}
        assert asked == (by_request if who else set())
        assert {record.move for record in moves} > {TopicMove.OPEN, TopicMove.COMMIT}
        units = [record for record in found if isinstance(record, UnitMove)]
        assert {each.move for each in units if each.principal} == ({Move.RELEASE} if who else set())
        assert {each.move for each in units} > {Move.ASSIGN, Move.OWN}


def names(record: Record) -> tuple[str, str]:
    """The principal, and the proxy by which it asked."""
    return getattr(record, "principal", ""), getattr(record, "proxied_by", "")


async def test_requests_that_are_answered_together_keep_their_own_principals() -> None:
    async with reachable(scalableTopicAutoScaleEnabled=False) as cluster:
        async with asking(cluster.nodes[0]) as client:
            names = [f"t{number}" for number in range(8)]
            asked = (ask(client, name, "PUT", f"/tenants/{name}", TENANT) for name in names)
            await asyncio.gather(*asked)
        made = [each for each in records(cluster) if isinstance(each, TenantChange)]
        assert {each.tenant: each.principal for each in made} == {name: name for name in names}
        assert principal() == ""


async def test_a_consumer_is_on_the_log_for_whose_connection_it_has() -> None:
    async with reachable(scalableTopicAutoScaleEnabled=False) as cluster:

        def changes() -> list[tuple[str, str, str, str]]:
            return [
                (each.op.name, each.consumer, each.principal, each.proxied_by)
                for each in records(cluster)
                if isinstance(each, SubscriptionChange)
            ]

        node = cluster.nodes[0]
        await node.operations.topics.create("public/default/orders", 1, {})
        async with (
            client_of(node, "a", role=ADA) as client,
            client_of(node, "b") as other,
            client_of(node, "c", role=ADA, by=GATE) as through,
        ):
            await client.subscribe()
            await other.subscribe()
            await through.subscribe()
            await client.leave()
            await through.leave()
            await until(lambda: len(changes()) == 6)

        assert changes() == [
            ("CREATE", "", ADA, ""),
            ("JOIN", "a", ADA, ""),
            ("JOIN", "b", "", ""),
            ("JOIN", "c", ADA, GATE),
            ("LEAVE", "a", ADA, ""),
            ("LEAVE", "c", ADA, GATE),
        ]


async def test_a_decision_is_told_with_whoever_asked_and_their_proxy() -> None:
    async with reachable(scalableTopicAutoScaleEnabled=False) as cluster:
        async with asking(cluster.nodes[0]) as client:
            with capture_logs() as logged:
                for who, by, name in (("", "", "a"), (ADA, "", "b"), (ADA, GATE, "c")):
                    await ask(client, who, "PUT", f"/tenants/{name}", TENANT, by)
        told = {
            each["key"]: {name: each[name] for name in ("principal", "proxied_by") if name in each}
            for each in logged
            if each["event"].startswith("decision.") and each["key"].startswith("tenant:")
        }
        assert told == {
            "tenant:a": {},
            "tenant:b": {"principal": ADA},
            "tenant:c": {"principal": ADA, "proxied_by": GATE},
        }


def test_who_is_refused_by_the_log_is_told_of_the_proxy_too() -> None:
    with asked_by(Principal(ADA)):
        assert str(not_permitted("tenant:acme")).startswith("ada may not change tenant:acme: ")
    with asked_by(Principal(ADA, GATE)):
        said = str(not_permitted("tenant:acme"))
    assert said.startswith("ada, or gate, by which they ask, may not change tenant:acme: ")


def test_a_line_of_the_log_names_the_principal_where_there_is_one() -> None:
    record = TenantChange("p", "acme", PolicyOp.CREATE, 1, "b1:80", 1, cause=Cause.OPERATOR)
    assert sentence(record) == "CREATE tenant:acme  (version 1, by b1:80, operator)"
    record = msgspec.structs.replace(record, principal=ADA)
    assert sentence(record) == "CREATE tenant:acme  (version 1, by b1:80 for ada, operator)"
    record = msgspec.structs.replace(record, proxied_by=GATE)
    told = "CREATE tenant:acme  (version 1, by b1:80 for ada through gate, operator)"
    assert sentence(record) == told
