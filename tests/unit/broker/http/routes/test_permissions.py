"""Permissions over HTTP and by commands, and what the log lets through of what roles ask for."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import httpx

from anabranch.core.entities.unit import Unit
from anabranch.core.log.records import PermissionChange
from anabranch.core.log.state import Entity
from anabranch.core.security.actions import Right
from anabranch.core.security.changes import need_of
from anabranch.core.security.table import REST
from support.asking import ASKED, asking
from support.commands import ran
from support.http import PATIENT, HttpNode, on_nodes
from support.memory_cluster import MemoryCluster, MemoryNode, asking_cluster, until

ADMIN: Final = "/admin/v2"
HOME: Final = f"{ADMIN}/namespaces/public/default/permissions"
TOPIC: Final = f"{ADMIN}/scalable/public/default/orders"
ON_TOPIC: Final = f"{TOPIC}/permissions"


async def found(node: HttpNode, path: str) -> Any:
    answer = await node.http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refused(answer: httpx.Response, status: int, said: str) -> None:
    assert answer.status_code == status, answer.text
    assert said in answer.json()["reason"]


@on_nodes(2)
async def test_what_is_granted_at_one_node_is_seen_and_revoked_at_another(
    nodes: list[HttpNode], cluster: MemoryCluster
) -> None:
    one, other = nodes
    assert await found(one, HOME) == {}
    words = ["produce", "consume", "produce"]
    answer = await one.http.post(f"{HOME}/ada", json=words)
    assert (answer.status_code, answer.content) == (204, b"")
    await until(lambda: len(other.node.view.entities) == len(one.node.view.entities))
    assert await found(other, HOME) == {"ada": ["consume", "produce"]}
    before = len(cluster.entries)
    assert (await other.http.post(f"{HOME}/ada", json=words)).status_code == 204
    assert len(cluster.entries) == before  # it says so already
    # All that the role may do is what was said last.
    assert (await other.http.post(f"{HOME}/ada", json=["view"])).status_code == 204
    assert await found(other, HOME) == {"ada": ["view"]}
    assert (await one.http.delete(f"{HOME}/ada")).status_code == 204
    assert await found(one, HOME) == {}
    await refused(await other.http.delete(f"{HOME}/ada"), 404, "nothing is granted to ada")


@on_nodes()
async def test_a_topic_s_are_told_with_its_namespace_s_and_go_with_it(node: HttpNode) -> None:
    http = node.http
    await refused(await http.post(f"{ON_TOPIC}/ada", json=["view"]), 404, "topic not found")
    assert (await http.put(TOPIC)).status_code == 204
    for path, role, words in (
        (HOME, "ada", ["view"]),
        (HOME, "bob", ["scale"]),
        (ON_TOPIC, "ada", ["produce"]),
        (ON_TOPIC, "eve", ["consume"]),
    ):
        assert (await http.post(f"{path}/{role}", json=words)).status_code == 204
    told = {"ada": ["produce", "view"], "bob": ["scale"], "eve": ["consume"]}
    assert await found(node, ON_TOPIC) == told
    assert await found(node, HOME) == {"ada": ["view"], "bob": ["scale"]}
    # Of bob nothing is granted on the topic itself.
    await refused(await http.delete(f"{ON_TOPIC}/bob"), 404, "on public/default/orders itself")
    assert (await http.delete(f"{ON_TOPIC}/eve")).status_code == 204
    assert (await http.delete(TOPIC)).status_code == 204
    await refused(await http.get(ON_TOPIC), 404, "Scalable topic not found")
    assert (await http.put(TOPIC)).status_code == 204
    assert await found(node, ON_TOPIC) == {"ada": ["view"], "bob": ["scale"]}


@on_nodes()
async def test_a_role_may_have_any_characters_that_can_be_printed(node: HttpNode) -> None:
    for role in ("spiffe://acme/shop", "a b", "ä@acme.example", "%2F"):
        path = f"{HOME}/{quote(role, safe='')}"
        assert (await node.http.post(path, json=["view"])).status_code == 204
        assert await found(node, HOME) == {role: ["view"]}
        assert (await node.http.delete(path)).status_code == 204
        assert await found(node, HOME) == {}


@on_nodes()
async def test_what_cannot_be_granted_is_refused_in_words(node: HttpNode) -> None:
    http = node.http
    before = len(node.cluster.entries)
    for role, body, status, said in (
        ("ada", ["functions"], 412, "'functions' is no action that can be granted here"),
        ("ada", ["Produce"], 412, "give some of consume, produce, scale, view"),
        ("ada", [], 412, "no action is given"),
        ("ada", {"produce": True}, 400, ""),
        ("", ["view"], 412, "role ''"),
        ("a%0Ab", ["view"], 412, "can be printed"),
        ("a" * 256, ["view"], 412, "1 to 255"),
    ):
        await refused(await http.post(f"{HOME}/{role}", json=body), status, said)
    none = HOME.replace("default", "none")
    for path in (none, f"{none}/ada"):
        verb = http.get if path == none else http.delete
        await refused(await verb(path), 404, "Namespace public/none does not exist")
    assert len(node.cluster.entries) == before


@on_nodes()
async def test_the_commands_grant_list_and_revoke(node: HttpNode) -> None:
    assert (await node.http.put(TOPIC)).status_code == 204
    done = await ran(
        str(node.http.base_url),
        "permissions grant public/default ada view",
        "permissions grant topic://public/default/orders ada produce consume",
        "permissions list public/default/orders",
        "permissions list public/default --json",
        "permissions revoke public/default/orders ada",
        "permissions revoke public/default/orders ada",
        "permissions list public",
    )
    assert [each.exit_code for each in done] == [0, 0, 0, 0, 0, 1, 1]
    assert done[1].output == "ada may consume, produce on public/default/orders\n"
    assert done[2].output.splitlines()[1].split(maxsplit=1) == ["ada", "consume, produce, view"]
    assert "nothing is granted to ada on public/default/orders itself" in done[5].errors


# --- what the log lets through --------------------------------------------------------------------

HOLDERS: Final = {Right.SUPERUSER: "root", Right.TENANT_ADMIN: "boss", Right.GRANTED: "user"}
LEAST: Final = {
    # Superusers' on a node, for where a bundle lies is the cluster's affair.
    "/namespaces/acme/shop/unload": Right.TENANT_ADMIN
}


def kept(node: MemoryNode) -> dict[str, Entity]:
    """What the log keeps, but for bundles: the node sees by itself to their owner."""
    found = node.view.entities
    return {key: entity for key, entity in found.items() if not isinstance(entity, Unit)}


def row_of(verb: str, path: str) -> Right:
    """What the table has for a request, found by its path's own words."""
    words = f"{ADMIN}{path}".split("/")
    fits = [
        rule
        for row, rule in REST.items()
        for form in [row.partition(" ")[2].split("/")]
        if row.startswith(f"{verb} ")
        and len(form) == len(words)
        and all(want in (word, f"{{{want[1:-1]}}}") for want, word in zip(form, words, strict=True))
    ]
    most = max(fits, key=lambda rule: rule.need.right)
    return most.need.right


async def test_no_request_is_let_through_by_the_log_without_its_right_and_each_with_it() -> None:
    """The node that answers asks nobody here: it is the log alone that refuses."""
    asks = {**PATIENT, "brokerServicePort": 7000, "scalableTopicAutoScaleEnabled": False}
    async with asking_cluster(("root",), **asks) as cluster:
        node = cluster.nodes[0]
        async with asking(node) as client:

            async def ask(who: str, verb: str, path: str, body: object) -> int:
                answer = await client.request(
                    verb, ADMIN + path, json=body, headers={"who": who}, follow_redirects=True
                )
                return answer.status_code

            for verb, path, body in ASKED:
                least = LEAST.get(path, row_of(verb, path))
                before = kept(node)
                for right, holder in HOLDERS.items():
                    if right < least:
                        assert await ask(holder, verb, path, body) == 403, (holder, path)
                assert await ask("eve", verb, path, body) == 403, path
                assert kept(node) == before, path
                assert await ask(HOLDERS[least], verb, path, body) == 204, path
                if path == "/namespaces/acme/shop":
                    grant = f"{path}/permissions/user"
                    if verb == "PUT":
                        assert await ask("boss", "POST", grant, ["consume", "scale"]) == 204

        assert PermissionChange in {type(entry.record()) for entry in cluster.entries}
        for entry in cluster.entries:
            record = entry.record()
            assert record is not None
            need_of(record)  # there is an answer for each
