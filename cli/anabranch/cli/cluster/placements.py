"""`anabranch isolation` and `anabranch domains`: limits on the brokers that may own bundles."""

from __future__ import annotations

import click

from anabranch.admin import Admin
from anabranch.cli.shared.api import connect, json_option, url_option
from anabranch.cli.shared.output import table, write_json
from anabranch.cli.shared.watching import watchable


def _connected(url: str) -> tuple[Admin, str]:
    """The administration, and the name of the cluster it is about."""
    admin = connect(url)
    return admin, admin.tenants.get_clusters()[0]


@click.group(
    epilog="Example: anabranch isolation set gold --namespace 'acme/.*' --primary 'node-[12]'"
)
def isolation() -> None:
    """Isolation policies: namespaces that have brokers of their own.

    Other namespaces get none of their primary brokers. Patterns are regular expressions of whole
    names. If several policies fit a namespace, the first by name counts. Bundles that are owned
    elsewhere stay there until they move.
    """


@isolation.command("list", epilog="Example: anabranch isolation list --json")
@url_option
@json_option
@watchable
def list_(url: str, as_json: bool) -> None:
    """List the policies."""
    admin, cluster = _connected(url)
    found = admin.placements.get_isolation_policies(cluster)
    if as_json:
        write_json(found)
        return
    rows = [
        (
            name,
            ", ".join(policy.namespaces),
            ", ".join(policy.primary),
            ", ".join(policy.secondary) or "-",
            str(policy.auto_failover_policy.parameters.min_limit),
        )
        for name, policy in found.items()
    ]
    table(("POLICY", "NAMESPACES", "PRIMARY", "SECONDARY", "MIN LIMIT"), rows)


@isolation.command(epilog="Example: anabranch isolation brokers")
@url_option
@json_option
@watchable
def brokers(url: str, as_json: bool) -> None:
    """List the policies' words on the brokers that serve now."""
    admin, cluster = _connected(url)
    found = admin.placements.get_isolated_brokers(cluster)
    if as_json:
        write_json(found)
        return
    rows = [
        (
            each.broker_name,
            each.policy_name,
            "primary" if each.primary else "secondary",
            ", ".join(each.namespace_regex),
        )
        for each in found
    ]
    table(("BROKER", "POLICY", "AS", "NAMESPACES"), rows)


@isolation.command(
    "set",
    epilog="Example: anabranch isolation set gold --namespace 'acme/.*' --primary 'node-[12]' "
    "--secondary node-3 --min-limit 1",
)
@click.argument("name")
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
    "--secondary",
    multiple=True,
    metavar="PATTERN",
    help="Brokers that help out; may be repeated.",
)
@click.option(
    "--min-limit",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Secondary brokers may be chosen while fewer primary ones than this are there.",
)
@url_option
def set_(
    name: str,
    namespaces: tuple[str, ...],
    primary: tuple[str, ...],
    secondary: tuple[str, ...],
    min_limit: int,
    url: str,
) -> None:
    """Create policy NAME, or replace its content."""
    admin, cluster = _connected(url)
    admin.placements.set_isolation_policy(
        cluster, name, namespaces, primary, secondary, min_limit=min_limit
    )
    click.echo(f"isolation policy {name} is set")


@isolation.command("delete", epilog="Example: anabranch isolation delete gold")
@click.argument("name")
@url_option
def delete(name: str, url: str) -> None:
    """Delete policy NAME."""
    admin, cluster = _connected(url)
    admin.placements.delete_isolation_policy(cluster, name)
    click.echo(f"isolation policy {name} is deleted")


@click.group(epilog="Example: anabranch domains set east node-1:8080 node-2:8080")
def domains() -> None:
    """Failure domains: brokers that fail together.

    Namespaces of one anti-affinity group are spread over them first
    (`anabranch namespaces anti-affinity`).
    """


@domains.command("list", epilog="Example: anabranch domains list")
@url_option
@json_option
@watchable
def list_domains(url: str, as_json: bool) -> None:
    """List the domains."""
    admin, cluster = _connected(url)
    found = admin.placements.get_failure_domains(cluster)
    if as_json:
        write_json(found)
        return
    table(("DOMAIN", "BROKERS"), [(name, ", ".join(each.brokers)) for name, each in found.items()])


@domains.command("set", epilog="Example: anabranch domains set east node-1:8080 node-2:8080")
@click.argument("name")
@click.argument("brokers", nargs=-1, required=True, metavar="BROKER...")
@url_option
def set_domain(name: str, brokers: tuple[str, ...], url: str) -> None:
    """Create domain NAME of the BROKERs, host:port, or replace them."""
    admin, cluster = _connected(url)
    admin.placements.set_failure_domain(cluster, name, brokers)
    click.echo(f"failure domain {name} has {', '.join(sorted(brokers))}")


@domains.command("delete", epilog="Example: anabranch domains delete east")
@click.argument("name")
@url_option
def delete_domain(name: str, url: str) -> None:
    """Delete domain NAME; its brokers stay."""
    admin, cluster = _connected(url)
    admin.placements.delete_failure_domain(cluster, name)
    click.echo(f"failure domain {name} is deleted")
