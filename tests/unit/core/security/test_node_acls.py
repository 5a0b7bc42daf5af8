"""What a node needs of Kafka is said once, however it is shown."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from anabranch.core.errors import InvalidInputError
from anabranch.core.security.acls import AclResource, node_acls
from support.secured_kafka import CLUSTER, rights_of_a_leader, rights_of_a_node

ROOT = Path(__file__).parents[4]
KINDS = {
    AclResource.TOPIC: "topics",
    AclResource.GROUP: "groups",
    AclResource.TRANSACTIONAL_ID: "transactions",
    AclResource.CLUSTER: "cluster",
}


def test_the_page_has_a_nodes_rights_and_no_others() -> None:
    page = (ROOT / "docs" / "topics.md").read_text("utf-8")
    part = page[page.index("## Rights in Kafka") :]
    table = part[: part.index("and with `kafkaAclsEnabled`")]
    rows = re.findall(r"^\| (topics|groups|transactional ids) \| (.*) \|$", table, re.MULTILINE)
    told = {
        kind.replace("transactional ids", "transactions"): set(o.split(", ")) for kind, o in rows
    }
    meant: dict[str, set[str]] = defaultdict(set)
    for each in node_acls("User:n", "p.", makes_acls=False):
        meant[KINDS[each.resource]].add(each.operation.title().replace("_", ""))
    assert told == meant


@pytest.mark.parametrize("makes_acls", [False, True])
def test_they_are_what_tests_with_a_real_kafka_give_nodes(makes_acls: bool) -> None:
    tested = rights_of_a_leader("p.") if makes_acls else rights_of_a_node("p.")
    made = node_acls("User:n", "p.", makes_acls=makes_acls)
    assert {(KINDS[each.resource], each.name, each.operation) for each in made} == set(tested)
    assert {each.is_prefix for each in made if each.name != CLUSTER} == {True}
    assert {(each.principal, each.host) for each in made} == {("User:n", "*")}


@pytest.mark.parametrize("principal", ["", "node", ":node", "User:", "User:*", "User:ANONYMOUS"])
def test_no_node_is_everybody_or_nobody(principal: str) -> None:
    with pytest.raises(InvalidInputError, match="no principal that a node can have"):
        node_acls(principal, "p.", makes_acls=False)
