"""`anabranch acls`: one set of rules in three forms, and one owner for each principal."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.settings import load_settings
from anabranch.cli.cluster.acls import (
    binding,
    commands,
    kafka_user,
    left_to_others,
    manifests,
    without_user,
)
from anabranch.core.entities.permission import Permission
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.security.acls import Acl, AclResource, PrincipalMapping, node_acls, wanted_acls
from support import kafka_rules
from support.commands import run_here

CLUSTER = "kafka-cluster"
NEWER = "# Kafka 4.0 on, for queues:\n"
names = st.from_regex(r"[a-zA-Z0-9._-]{1,60}", fullmatch=True)
users = st.from_regex(r"User:(CN=)?[a-z0-9]([a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True).filter(
    lambda text: bool(kafka_user(text))
)
OPERATIONS = ("READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "ALTER", "CREATE")


def rules_of(principals: st.SearchStrategy[str]) -> st.SearchStrategy[frozenset[Acl]]:
    kinds = st.sampled_from(sorted(set(AclResource) - {AclResource.CLUSTER}))
    named = st.builds(Acl, principals, kinds, names, st.booleans(), st.sampled_from(OPERATIONS))
    whole = st.builds(
        Acl,
        *(principals, st.just(AclResource.CLUSTER), st.just(CLUSTER), st.just(False)),
        st.sampled_from(OPERATIONS),
    )
    return st.frozensets(named | whole, max_size=12)


def upper(word: str) -> str:
    """`DescribeConfigs` and `transactionalId` as Kafka's constants."""
    return "".join(f"_{c}" if c.isupper() and at else c for at, c in enumerate(word)).upper()


def from_manifests(text: str) -> list[dict[str, str]]:
    """As Strimzi understands them, by its documentation of KafkaUser."""
    found = []
    for user in yaml.safe_load_all(text):
        assert (user["apiVersion"], user["kind"]) == ("kafka.strimzi.io/v1", "KafkaUser")
        assert user["metadata"]["labels"] == {"strimzi.io/cluster": "home"}
        assert user["spec"].keys() == {"authorization"}
        assert user["spec"]["authorization"]["type"] == "simple"
        for rule in user["spec"]["authorization"]["acls"]:
            resource = rule["resource"]
            kind = upper(resource["type"])
            pattern = {"prefix": "PREFIXED", "literal": "LITERAL", None: "LITERAL"}
            found += [
                {
                    "resourceType": kind,
                    "name": resource.get("name", CLUSTER),
                    "patternType": pattern[resource.get("patternType")],
                    "principal": user["metadata"]["name"],
                    "host": "*",
                    "operation": upper(each),
                    "permissionType": "ALLOW",
                }
                for each in rule["operations"]
            ]
    return found


def sorted_bindings(bindings: list[dict[str, str]]) -> list[tuple[str, ...]]:
    return sorted(tuple(each[name] for name in sorted(each)) for each in bindings)


@given(rules_of(users))
def test_manifests_say_what_the_bindings_say(acls: frozenset[Acl]) -> None:
    acls = frozenset(
        each for each in acls if each.principal not in without_user({a.principal for a in acls})
    )
    told = [binding(each) for each in acls]
    for each in told:
        each["principal"] = kafka_user(each["principal"])
    assert sorted_bindings(from_manifests("".join(manifests(acls, "home")))) == sorted_bindings(
        told
    )


texts = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20)


@given(rules_of(texts.map("User:{}".format)))
def test_commands_say_what_the_bindings_say(acls: frozenset[Acl]) -> None:
    found: list[tuple[str, ...]] = []
    for line in commands(acls, "kafka:9092"):
        words = shlex.split(line.removeprefix(NEWER))
        assert words[:4] == ["kafka-acls.sh", "--bootstrap-server", "kafka:9092", "--add"]
        given_ = [(a, b) for a, b in pairwise(words) if a.startswith("--")]
        one = dict(given_)
        kind = next(k for k in ("topic", "group", "transactional-id", "cluster") if f"--{k}" in one)
        name = CLUSTER if kind == "cluster" else one[f"--{kind}"]
        pattern = one["--resource-pattern-type"].upper()
        found += [
            (
                *("*", name, upper(word), pattern, "ALLOW"),
                *(one["--allow-principal"], kind.upper().replace("-", "_")),
            )
            for option, word in given_
            if option == "--operation"
        ]
    assert sorted(found) == sorted_bindings([binding(each) for each in acls])


def test_a_command_for_groups_has_newer_operations_alone_so_that_an_older_tool_takes_the_rest() -> (
    None
):
    acls = node_acls("User:node", "anabranch.", makes_acls=False)
    lines = [each for each in commands(acls, "kafka:9092") if "--group" in each]
    told = [(each.startswith(NEWER), each.count("Configs")) for each in lines]
    assert sorted(told) == [(False, 0), (True, 2)]
    assert " --operation Read " in lines[0]
    topics = [each for each in commands(acls, "kafka:9092") if "--topic" in each]
    assert [(each.startswith("#"), each.count("Configs")) for each in topics] == [(False, 2)]


@pytest.mark.parametrize(
    "principal",
    [
        *(
            "User:Ada",
            "User:CN=ada,O=acme",
            "User:",
            "User:a b",
            "Group:ada",
            "User:a_b",
            "User:-a",
        ),
        *("User:CN=" + "a" * 65, "User:a.", "User:\nname: x"),
    ],
)
def test_who_can_be_no_kafka_user_is_known(principal: str) -> None:
    assert kafka_user(principal) == ""
    assert without_user({principal, "User:bob"}) == {principal}


def test_two_principals_do_not_share_a_kafka_user() -> None:
    both = {"User:ada", "User:CN=ada"}
    assert without_user({*both, "User:bob"}) == both


def test_nobody_needs_kafka_for_what_nodes_need() -> None:
    common = ("acls", "--nodes-only", "--bootstrap-servers", "nowhere.invalid:1")
    found = run_here(*common, "--format", "json", "--set", "topicPrefix=eu.")
    told = json.loads(found.stdout)
    made = node_acls("User:node", "eu.", makes_acls=False)
    assert sorted_bindings(told) == sorted_bindings([binding(each) for each in made])
    found = run_here(*common, "--format", "strimzi", "--strimzi-cluster", "home")
    assert (found.returncode, found.stderr) == (0, "")
    assert {each["principal"] for each in from_manifests(found.stdout)} == {"node"}
    assert len(from_manifests(found.stdout)) == len(made)


def test_who_is_left_out_of_manifests_is_told_and_the_status_is_1() -> None:
    who = ("--node-principal", "User:node", "--node-principal", "User:CN=x,O=acme")
    found = run_here("acls", "--nodes-only", "--format", "strimzi", *who)
    assert found.returncode == 1
    assert found.stderr.startswith("anabranch: left out, User:CN=x,O=acme can be no KafkaUser")
    assert "CN=x" not in found.stdout
    wrong = run_here("acls", "--nodes-only", "--node-principal", "User:*")
    assert (wrong.returncode, wrong.stdout) == (2, "")


def granted() -> MemoryReplica:
    state = MemoryReplica()
    roles = ("ada", "bob", "proxy", "*")
    base: Any = (("tenant", 0), ("namespace", 0))
    list(kafka_rules.played(state, base))
    words = ("consume", "produce")
    state.apply([(f"permission:a/b:{role}", Permission(1, words, 0, "p")) for role in roles])
    return state


@pytest.mark.parametrize(
    ("enabled", "elsewhere", "expected"),
    [
        (False, "", {"ada", "bob"}),
        (False, "b*", {"ada", "bob"}),
        (True, "", set()),
        (True, "b*", {"bob"}),
        (True, "*", {"ada", "bob"}),
    ],
)
def test_each_role_s_acls_are_the_nodes_or_printed_and_never_both(
    enabled: bool, elsewhere: str, expected: set[str], tmp_path: Path
) -> None:
    (tmp_path / "key").write_bytes(b"x" * 32)
    settings = load_settings(
        None,
        {},
        {
            "authenticationEnabled": True,
            "authenticationProviders": "token",
            "tokenSecretKey": str(tmp_path / "key"),
            "authorizationEnabled": True,
            "kafkaAclsEnabled": enabled,
            "kafkaAclsOwnedElsewhere": elsewhere,
            "proxyRoles": "proxy",
        },
    )
    state, prefix = granted(), settings.topic_prefix
    found = left_to_others(state, settings)
    assert {each.principal.removeprefix("User:") for each in found.acls} == expected
    assert found.unmapped == {"*"}
    nodes = wanted_acls(state, prefix, settings.principal_mapping).acls if enabled else frozenset()
    assert not nodes & found.acls
    every = PrincipalMapping("User:{role}", frozenset(("proxy",)))
    assert nodes | found.acls == wanted_acls(state, prefix, every).acls


def test_the_page_shows_the_manifest_as_it_is_printed() -> None:
    page = (Path(__file__).parents[4] / "docs" / "kafka.md").read_text("utf-8")
    acls = node_acls("User:CN=node", "anabranch.", makes_acls=False)
    lines = "".join(manifests(acls, "my-cluster")).splitlines()
    assert "\n".join(f"    {each}" for each in lines) in page
