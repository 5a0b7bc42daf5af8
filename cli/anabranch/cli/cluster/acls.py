"""`anabranch acls`: Kafka's ACLs that nodes and roles need, in the forms of those who make them."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum, unique
from itertools import groupby
from typing import Any, Final

import click

from anabranch.broker.node.startup import connect
from anabranch.broker.settings import Settings
from anabranch.broker.snapshots.replayed import state_now
from anabranch.channel.kafka.topics import Topics
from anabranch.cli.shared.command import Command
from anabranch.cli.shared.exit_status import ExitStatus
from anabranch.cli.shared.flags import setting_flags, settings_of
from anabranch.cli.shared.output import write_json
from anabranch.core.log.state import StateQueries
from anabranch.core.security.acls import (
    Acl,
    AclResource,
    PrincipalMapping,
    WantedAcls,
    node_acls,
    spoken,
    wanted_acls,
)
from anabranch.core.topics.kafka_names import names_pattern


@unique
class Form(StrEnum):
    """The forms, by who takes them."""

    STRIMZI = "strimzi"
    JSON = "json"
    KAFKA_ACLS = "kafka-acls"


@click.command(cls=Command)
@setting_flags
@click.option(
    "--format",
    "form",
    type=click.Choice([each.value for each in Form]),
    default=Form.KAFKA_ACLS.value,
    help="Manifests of KafkaUsers, bindings as Kafka's AclBinding has them, or commands.",
)
@click.option(
    "--node-principal",
    "nodes",
    multiple=True,
    default=("User:node",),
    metavar="TYPE:NAME",
    help="Kafka's principal of the nodes; may be repeated.",
)
@click.option("--nodes-only", is_flag=True, help="Print the nodes' ACLs alone, without Kafka.")
@click.option(
    "--strimzi-cluster",
    "home",
    default="my-cluster",
    metavar="NAME",
    help="The Kafka resource that the KafkaUsers belong to.",
)
def acls(form: str, nodes: tuple[str, ...], nodes_only: bool, home: str, **given: Any) -> int:
    """Print the ACLs that Kafka needs and that nodes do not make.

    These are the nodes' own and, unless --nodes-only, those of roles, by the grants in the log.
    With kafkaAclsEnabled they leave out the roles whose ACLs nodes make, so that each principal has
    one owner: kafkaAclsOwnedElsewhere names the others. Give the nodes' own settings.

    Exit status 1: some principal cannot have what it needs in this form.

    Example: anabranch acls --format strimzi --config node.toml --node-principal User:CN=node
    """
    settings = settings_of(**given)
    prefix, makes_acls = settings.topic_prefix, settings.kafka_acls_enabled
    found = {acl for each in nodes for acl in node_acls(each, prefix, makes_acls=makes_acls)}
    notes = []
    if not nodes_only:
        topics = Topics(prefix)
        of_roles = left_to_others(
            state_now(connect(settings), topics, settings.passed_over), settings
        )
        found |= of_roles.acls
        notes += [f"role {role!r} would be everybody on Kafka" for role in of_roles.unmapped]
    if form == Form.STRIMZI:
        nameless = without_user({each.principal for each in found})
        notes += [f"{each} can be no KafkaUser of its own: see --format json" for each in nameless]
        found = {each for each in found if each.principal not in nameless}
    if form == Form.JSON:
        write_json([binding(each) for each in sorted(found)])
    else:
        click.echo(f"# Names of this cluster in Kafka: {names_pattern(prefix)}")
        servers = settings.bootstrap_servers
        texts = manifests(found, home) if form == Form.STRIMZI else commands(found, servers)
        click.echo("".join(texts), nl=False)
    for note in sorted(notes):
        click.echo(f"anabranch: left out, {note}", err=True)
    return ExitStatus.BAD if notes else ExitStatus.DONE


def left_to_others(state: StateQueries, settings: Settings) -> WantedAcls:
    """The ACLs of roles that nodes with these settings do not make."""
    everyone = PrincipalMapping(settings.kafka_acls_principal, settings.proxies)
    every = wanted_acls(state, settings.topic_prefix, everyone)
    if not settings.kafka_acls_enabled:
        return every
    made = wanted_acls(state, settings.topic_prefix, settings.principal_mapping)
    return WantedAcls(every.acls - made.acls, every.unmapped)


# --- the forms ------------------------------------------------------------------------------

_WORDS: Final = {  # Strimzi's, and an option of kafka-acls.sh
    AclResource.TOPIC: ("topic", "--topic"),
    AclResource.GROUP: ("group", "--group"),
    AclResource.TRANSACTIONAL_ID: ("transactionalId", "--transactional-id"),
    AclResource.CLUSTER: ("cluster", "--cluster"),
}
_NEWER: Final = "# Kafka 4.0 on, for queues:\n"
# A name on Kubernetes, or a certificate's common name of 64 characters (RFC 5280, appendix A).
_USER: Final = re.compile(r"User:(?:CN=)?((?!.{65})[a-z0-9]+([.-]+[a-z0-9]+)*)")


def kafka_user(principal: str) -> str:
    """The name of the KafkaUser with that principal; "" if there can be none.

    >>> kafka_user("User:CN=node"), kafka_user("User:ada"), kafka_user("User:CN=ada,O=acme")
    ('node', 'ada', '')
    """
    found = _USER.fullmatch(principal)
    return found[1] if found else ""


def without_user(principals: Collection[str]) -> set[str]:
    """Those that can be no KafkaUser, or would share one: the last one applied would count."""
    names = {each: kafka_user(each) for each in principals}
    taken = Counter(names.values())
    return {each for each, name in names.items() if not name or taken[name] > 1}


def binding(acl: Acl) -> dict[str, str]:
    """The fields of Kafka's AclBinding."""
    return {
        "resourceType": acl.resource.value,
        "name": acl.name,
        "patternType": "PREFIXED" if acl.is_prefix else "LITERAL",
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permissionType": "ALLOW",
    }


def commands(acls: Collection[Acl], servers: str) -> Iterator[str]:
    """Commands for a shell, one a line, and comments."""
    for principal, rules in _by_principal(acls):
        for first, operations in rules:
            option = _WORDS[first.resource][1]
            named = () if first.resource is AclResource.CLUSTER else (first.name,)
            pattern = "prefixed" if first.is_prefix else "literal"
            for note, some in _parts(first.resource, operations):
                words = [
                    *("kafka-acls.sh", "--bootstrap-server", servers, "--add"),
                    *("--allow-principal", principal),
                    *(word for each in some for word in ("--operation", each)),
                    *(option, *named, "--resource-pattern-type", pattern),
                ]
                yield f"{note}{shlex.join(words)}\n"


def _parts(resource: AclResource, operations: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Divides the operations among commands: an older Kafka's tool refuses one as a whole for an
    operation that is not known there.
    """
    newer = [
        each for each in operations if resource is AclResource.GROUP and each.endswith("Configs")
    ]
    if older := [each for each in operations if each not in newer]:
        yield "", older
    if newer:
        yield _NEWER, newer


def manifests(acls: Collection[Acl], home: str) -> Iterator[str]:
    """KafkaUsers in YAML, for principals that can be one. `home`: their Kafka resource."""
    for principal, rules in _by_principal(acls):
        kind = "tls" if principal.startswith("User:CN=") else "scram-sha-512"
        user = kafka_user(principal)
        yield _USER_HEAD.format(user=user, home=json.dumps(home), principal=principal, kind=kind)
        for first, operations in rules:
            kind = _WORDS[first.resource][0]
            yield f"      - resource:\n          type: {kind}\n"
            if first.resource is not AclResource.CLUSTER:
                pattern = "prefix" if first.is_prefix else "literal"
                yield f"          name: {json.dumps(first.name)}\n"
                yield f"          patternType: {pattern}\n"
            yield f"        operations: [{', '.join(operations)}]\n"


_USER_HEAD: Final = """\
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaUser
metadata:
  name: "{user}"
  labels:
    strimzi.io/cluster: {home}
spec:
  # Add an authentication by which Kafka knows this user as {principal}, such as type {kind}.
  authorization:
    type: simple
    acls:
"""


def _by_principal(
    acls: Collection[Acl],
) -> Iterator[tuple[str, Iterable[tuple[Acl, list[str]]]]]:
    """Each principal's rules: the first of some that differ in the operation alone, and these."""
    for principal, theirs in groupby(sorted(acls), lambda each: each.principal):
        alike = groupby(theirs, lambda each: (each.resource, each.name, each.is_prefix))
        rules = [list(each) for _, each in alike]
        yield principal, [(each[0], [spoken(acl.operation) for acl in each]) for each in rules]
