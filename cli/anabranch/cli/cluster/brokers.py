"""The brokers: look-ups, limits on what they may own, and settings of all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from anabranch.admin import (
    Admin,
    BrokerIsolationData,
    FailureDomainData,
    IsolationData,
    NotFoundError,
    SettingOverrideData,
)
from anabranch.cli.shared.api import (
    answers,
    changes,
    connect,
    json_option,
    refused,
    rows,
    url_option,
)
from anabranch.cli.shared.command import Command, CommandGroup
from anabranch.cli.shared.output import table, write_json
from anabranch.core.names import SCALABLE_DOMAIN, full_name, parse_scalable_topic, parse_topic

_name = click.argument("name")


@click.command(cls=Command)
@click.argument("topic")
@url_option
@json_option
def lookup(topic: str, url: str, as_json: bool) -> None:
    """Say which broker serves TOPIC ([domain://]tenant/namespace/name).

    A name without a domain is a scalable topic, topic://, as everywhere. The answer is then its
    controller, or that there is no such topic. Other domains have no topics on record, so the
    answer is the owner of the bundle that the name falls into. The command has a free bundle
    assigned to a broker.

    Example: anabranch lookup public/default/orders --url http://node-1:8080
    """
    name, _ = parse_topic(topic)
    admin = connect(url)
    if name.startswith(f"{SCALABLE_DOMAIN}://"):
        scalable = parse_scalable_topic(name)
        try:
            admin.scalable_topics.get_metadata(scalable)
        except NotFoundError as error:
            hint = f"`anabranch topics create {full_name(scalable)}` makes it"
            raise refused(error, hint if "opic" in error.reason else "") from error
    found = admin.lookups.lookup_topic(name)
    bundle = admin.lookups.get_bundle_range(name)
    if as_json:
        write_json({"topic": name, "bundle": bundle, **msgspec.to_builtins(found)})
    else:
        click.echo(f"{name} is served by {found.http_url} (bundle {bundle})")


def _tell_brokers(found: dict[str, Any]) -> None:
    rows(
        ("BROKER", "BUNDLES", ""),
        lambda each: (each["brokerId"], str(each["bundles"]), "leader" if each["leader"] else ""),
    )(found["brokers"])


@click.command(cls=Command)
@answers(_tell_brokers)
def brokers(admin: Admin) -> dict[str, Any]:
    """List the brokers that serve now, with how many bundles each owns, and who leads.

    Example: anabranch brokers --json
    """
    status = admin.brokers.get_status()
    cluster = status.cluster_name
    found = [
        {
            "brokerId": broker,
            "bundles": len(admin.brokers.get_owned_namespaces(cluster, broker)),
            "leader": broker == status.leader,
        }
        for broker in admin.brokers.get_active_brokers()
    ]
    return {"clusterName": cluster, "brokers": found}


# --- settings while nodes run -----------------------------------------------------------


@click.group(cls=CommandGroup)
def config() -> None:
    """Settings of all nodes at once, while they run.

    An override goes before each node's file, environment and flags, from its record's place in the
    log on, and stays until it is unset. `anabranch settings` says which settings may change so.

    Example: anabranch config set loadBalancerSheddingEnabled false
    """


def _tell_overrides(found: dict[str, SettingOverrideData]) -> None:
    table(
        ("SETTING", "VALUE", "BEFORE", "SINCE", "BY"),
        [
            (
                name,
                each.value or "-",
                each.before or "-",
                datetime.fromtimestamp(each.since_ms / 1000, UTC).isoformat(timespec="seconds"),
                each.broker,
            )
            for name, each in found.items()
        ],
    )
    for name, each in found.items():
        if each.ignored:
            click.echo(f"{name} does not count on the node that was asked: {each.ignored}")


@config.command("list")
@answers(_tell_overrides)
def list_overrides(admin: Admin) -> dict[str, SettingOverrideData]:
    """List the overrides, their former values, times and brokers.

    The log has every change (`anabranch log tail`).

    Example: anabranch config list --json
    """
    return dict(sorted(admin.brokers.get_setting_overrides().items()))


@config.command("set", context_settings={"ignore_unknown_options": True})  # -1 is a value
@_name
@click.argument("value")
@changes
def set_override(admin: Admin, name: str, value: str) -> str:
    """Override setting NAME by VALUE on all nodes, at once.

    VALUE is written as in a file of settings. If NAME says a unit, VALUE may have another one: 5s,
    64MB, 25%. A value that contradicts other settings is refused.

    Example: anabranch config set lookupTimeoutMillis 5s
    """
    admin.brokers.update_dynamic_configuration(name, value)
    return f"{name} is set"


@config.command()
@_name
@changes
def unset(admin: Admin, name: str) -> str:
    """Let every node go by its own setting NAME again.

    Example: anabranch config unset lookupTimeoutMillis
    """
    admin.brokers.delete_dynamic_configuration(name)
    return f"{name} is not overridden"


# --- limits on the brokers that may own bundles -----------------------------------------


@click.group(cls=CommandGroup)
def isolation() -> None:
    """Isolation policies: namespaces that have brokers of their own.

    Other namespaces get none of their primary brokers. Patterns are regular expressions of whole
    names. If several policies fit a namespace, the first by name counts. Bundles that are owned
    elsewhere stay there until they move.

    Example: anabranch isolation set gold --namespace 'acme/.*' --primary 'node-[12]'
    """


def _isolation(pair: tuple[str, IsolationData]) -> tuple[str, ...]:
    name, policy = pair
    return (
        name,
        ", ".join(policy.namespaces),
        ", ".join(policy.primary),
        ", ".join(policy.secondary) or "-",
        str(policy.auto_failover_policy.parameters.min_limit),
    )


@isolation.command("list")
@answers(rows(("POLICY", "NAMESPACES", "PRIMARY", "SECONDARY", "MIN LIMIT"), _isolation))
def list_isolation(admin: Admin) -> dict[str, IsolationData]:
    """List the policies.

    Example: anabranch isolation list --json
    """
    return admin.placements.get_isolation_policies(_cluster(admin))


def _isolated(each: BrokerIsolationData) -> tuple[str, ...]:
    rank = "primary" if each.primary else "secondary"
    return (each.broker_name, each.policy_name, rank, ", ".join(each.namespace_regex))


@isolation.command("brokers")
@answers(rows(("BROKER", "POLICY", "AS", "NAMESPACES"), _isolated))
def isolated_brokers(admin: Admin) -> list[BrokerIsolationData]:
    """List the policies' words on the brokers that serve now.

    Example: anabranch isolation brokers
    """
    return admin.placements.get_isolated_brokers(_cluster(admin))


@isolation.command("set")
@_name
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    required=True,
    metavar="PATTERN",
    help="Namespaces that it is for; may be repeated.",
)
@click.option(
    "--primary",
    multiple=True,
    required=True,
    metavar="PATTERN",
    help="Brokers that are theirs, by host or host:port; may be repeated.",
)
@click.option(
    "--secondary", multiple=True, metavar="PATTERN", help="Brokers that help out; may be repeated."
)
@click.option(
    "--min-limit",
    type=click.IntRange(0),
    default=0,
    help="Secondary brokers may be chosen while fewer primary ones than this are there.",
)
@changes
def set_isolation(admin: Admin, name: str, **patterns: Any) -> str:
    """Create policy NAME, or replace its content.

    Example: anabranch isolation set gold --namespace 'acme/.*' --primary 'node-[12]' --secondary
    node-3 --min-limit 1
    """
    admin.placements.set_isolation_policy(_cluster(admin), name, **patterns)
    return f"isolation policy {name} is set"


@isolation.command("delete")
@_name
@changes
def delete_isolation(admin: Admin, name: str) -> str:
    """Delete policy NAME.

    Example: anabranch isolation delete gold
    """
    admin.placements.delete_isolation_policy(_cluster(admin), name)
    return f"isolation policy {name} is deleted"


@click.group(cls=CommandGroup)
def domains() -> None:
    """Failure domains: brokers that fail together.

    Namespaces of one anti-affinity group are spread over them first
    (`anabranch namespaces anti-affinity`).

    Example: anabranch domains set east node-1:8080 node-2:8080
    """


@domains.command("list")
@answers(rows(("DOMAIN", "BROKERS"), lambda pair: (pair[0], ", ".join(pair[1].brokers))))
def list_domains(admin: Admin) -> dict[str, FailureDomainData]:
    """List the domains.

    Example: anabranch domains list
    """
    return admin.placements.get_failure_domains(_cluster(admin))


@domains.command("set")
@_name
@click.argument("brokers", nargs=-1, required=True, metavar="BROKER...")
@changes
def set_domain(admin: Admin, name: str, brokers: Sequence[str]) -> str:
    """Create domain NAME of the BROKERs, host:port, or replace them.

    Example: anabranch domains set east node-1:8080 node-2:8080
    """
    admin.placements.set_failure_domain(_cluster(admin), name, brokers)
    return f"failure domain {name} has {', '.join(sorted(brokers))}"


@domains.command("delete")
@_name
@changes
def delete_domain(admin: Admin, name: str) -> str:
    """Delete domain NAME; its brokers stay.

    Example: anabranch domains delete east
    """
    admin.placements.delete_failure_domain(_cluster(admin), name)
    return f"failure domain {name} is deleted"


def _cluster(admin: Admin) -> str:
    return admin.tenants.get_clusters()[0]
