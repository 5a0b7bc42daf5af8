"""What a node needs of Kafka is said once, however it is shown."""

from __future__ import annotations

import re
from pathlib import Path

from anabranch.channel.kafka.acls import NODE_RIGHTS
from anabranch.core.security.acls import AclResource
from support.secured_kafka import rights_of_a_node

ROOT = Path(__file__).parents[4]
KINDS = {
    AclResource.TOPIC: "topics",
    AclResource.GROUP: "groups",
    AclResource.TRANSACTIONAL_ID: "transactions",
}


def test_the_page_and_the_tests_know_the_same_rights() -> None:
    page = (ROOT / "docs" / "topics.md").read_text("utf-8")
    part = page[page.index("## Rights in Kafka") :]
    table = part[: part.index("and with `kafkaAclsEnabled`")]
    rows = re.findall(r"^\| (topics|groups|transactional ids) \| (.*) \|$", table, re.MULTILINE)
    told = {kind.replace("transactional ids", "transactions"): ops for kind, ops in rows}
    for resource, operations in NODE_RIGHTS.items():
        words = {each.title().replace("_", "") for each in operations}
        assert set(told[KINDS[resource]].split(", ")) == words
    tested = {(KINDS[kind], "p", each) for kind, all_ in NODE_RIGHTS.items() for each in all_}
    assert set(rights_of_a_node("p")) == tested
