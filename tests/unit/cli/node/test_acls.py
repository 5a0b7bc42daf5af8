"""What a node needs of Kafka is said once, however it is shown."""

from __future__ import annotations

import re
from pathlib import Path

from anabranch.broker.settings import load_settings
from anabranch.channel.kafka.acls import NODE_RIGHTS
from anabranch.cli.node.acls import node_commands
from anabranch.core.security.acls import AclResource
from support.secured_kafka import rights_of_a_leader, rights_of_a_node

ROOT = Path(__file__).parents[4]
KINDS = {
    AclResource.TOPIC: "topics",
    AclResource.GROUP: "groups",
    AclResource.TRANSACTIONAL_ID: "transactions",
}
OPTIONS = {
    "topics": "--topic river. --resource-pattern-type prefixed",
    "groups": "--group river. --resource-pattern-type prefixed",
    "transactions": "--transactional-id river. --resource-pattern-type prefixed",
    "cluster": "--cluster",
}


def test_the_page_the_commands_and_the_tests_know_the_same_rights() -> None:
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


def test_the_doctor_s_commands_give_what_the_tests_give() -> None:
    settings = load_settings(None, {}, {"topicPrefix": "river.", "bootstrapServers": "k:9092"})
    given = set()
    for line in node_commands(settings):
        assert line.startswith("kafka-acls --bootstrap-server k:9092 --add --allow-principal ")
        kind = next(name for name, option in OPTIONS.items() if line.endswith(option))
        given |= {(kind, word.upper()) for word in re.findall(r"--operation (\w+)", line)}
    tested = {(kind, each.replace("_", "")) for kind, _, each in rights_of_a_leader("river.")}
    assert given == tested
