"""`anabranch doctor --acls`: compares Kafka's ACLs with grants, and tells a node's rights."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Final

import click
import msgspec

from anabranch.broker.settings import Settings
from anabranch.broker.snapshots.replayed import state_now
from anabranch.broker.startup import connect
from anabranch.channel.kafka.acls import CLUSTER_RIGHTS, NODE_RIGHTS, RACK_RIGHTS, KafkaAcls
from anabranch.channel.kafka.connection import KAFKA_S_MAX
from anabranch.channel.kafka.topics import Topics
from anabranch.cli.shared.output import table, write_json
from anabranch.cli.topics.words import count_of
from anabranch.core.security.acls import (
    Acl,
    AclDifference,
    AclResource,
    WantedAcls,
    difference,
    wanted_acls,
)
from anabranch.core.security.kafka_stems import KafkaStems

_NODE: Final = "User:NODE"  # the user puts in the nodes' name in Kafka
_OPTIONS: Final = {
    AclResource.TOPIC: "--topic",
    AclResource.GROUP: "--group",
    AclResource.TRANSACTIONAL_ID: "--transactional-id",
}


class AclReport(msgspec.Struct, frozen=True, rename="camel"):
    """The command's report with --json. `surplus`: ACLs that no grant explains."""

    wanted: int
    missing: list[str]
    surplus: list[str]
    unmapped_roles: list[str]
    remedy: list[str]
    node_rights: list[str]


def compare_acls(settings: Settings) -> tuple[AclDifference, WantedAcls]:
    """Compares Kafka's ACLs with those that the log, read to its end, asks for.

    Raises AnabranchError.
    """
    connection = connect(settings)
    prefix, mapping = settings.topic_prefix, settings.principal_mapping
    state = state_now(connection, Topics(prefix), settings.passed_over)
    wanted = wanted_acls(state, KafkaStems.of(state, prefix), mapping)
    found = KafkaAcls(connection).find(KAFKA_S_MAX)
    return difference(wanted.acls, found, prefix, mapping), wanted


def show_acls(settings: Settings, *, as_json: bool) -> int:
    """Prints them; exit status 1 where they differ."""
    change, wanted = compare_acls(settings)
    gone = sorted((*change.revoked, *change.replaced))
    report = AclReport(
        wanted=len(wanted.acls),
        missing=list(map(str, change.missing)),
        surplus=list(map(str, gone)),
        unmapped_roles=sorted(wanted.unmapped),
        remedy=list(_remedy(settings, change, gone, wanted.unmapped)),
        node_rights=list(node_commands(settings)),
    )
    if as_json:
        write_json(report)
    else:
        _print(settings, report)
    return 1 if change or wanted.unmapped else 0


def _print(settings: Settings, report: AclReport) -> None:
    rows = [("missing", each) for each in report.missing]
    rows += [("not granted", each) for each in report.surplus]
    rows += [("cannot be told", f"role {each}") for each in report.unmapped_roles]
    if rows:
        table(("", "ACL"), rows)
    click.echo(
        f"{count_of(report.wanted, 'ACL')} wanted by grants, {len(report.missing)} of them "
        f"missing; {len(report.surplus)} that no grant explains"
    )
    for line in report.remedy:
        click.echo(line)
    click.echo(
        "\nA node's principal needs, where Kafka's brokers are in racks the last but one as well, "
        "and with kafkaAclsEnabled the last one:"
    )
    for line in report.node_rights:
        click.echo(line)


def _remedy(
    settings: Settings, change: AclDifference, gone: list[Acl], unmapped: frozenset[str]
) -> Iterator[str]:
    for role in sorted(unmapped):
        yield f"grant what role {role!r} has to another one: on Kafka everybody is called so"
    if not change:
        return
    if settings.kafka_acls_enabled:
        yield (
            "the leader puts that right at the next change, or after "
            f"{settings.kafka_acls_interval_seconds:g} s (kafkaAclsIntervalSeconds); if it does "
            "not, /admin/v2/brokers/health of the leader says why"
        )
        return
    yield "set kafkaAclsEnabled=true on every node, or do by hand:"
    for each in change.missing:
        yield _command(settings, "--add", each)
    for each in gone:
        yield _command(settings, "--remove --force", each)


def _command(settings: Settings, what: str, acl: Acl) -> str:
    pattern = "prefixed" if acl.is_prefix else "literal"
    host = "" if acl.host == "*" else f" --allow-host {shlex.quote(acl.host)}"
    return (
        f"kafka-acls --bootstrap-server {settings.bootstrap_servers} {what} "
        f"--allow-principal {shlex.quote(acl.principal)}{host} --operation {_word(acl.operation)} "
        f"{_OPTIONS[acl.resource]} {shlex.quote(acl.name)} --resource-pattern-type {pattern}"
    )


def node_commands(settings: Settings) -> Iterator[str]:
    """Yields Kafka's commands that give a node's principal its rights."""
    start = f"kafka-acls --bootstrap-server {settings.bootstrap_servers} --add"
    start = f"{start} --allow-principal {_NODE}"
    for resource, operations in NODE_RIGHTS.items():
        what = f"{_OPTIONS[resource]} {settings.topic_prefix} --resource-pattern-type prefixed"
        yield f"{start} {_operations(operations)} {what}"
    for rights in (RACK_RIGHTS, CLUSTER_RIGHTS):
        yield f"{start} {_operations(rights)} --cluster"


def _operations(named: Iterable[str]) -> str:
    return " ".join(f"--operation {_word(each)}" for each in named)


def _word(operation: str) -> str:
    """Returns an operation's name as Kafka's commands write it.

    >>> _word("DESCRIBE_CONFIGS")
    'DescribeConfigs'
    """
    return operation.title().replace("_", "")
