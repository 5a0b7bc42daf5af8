"""`anabranch tenants`: the owners of namespaces."""

from __future__ import annotations

import click

from anabranch.cli.shared.api import connect, json_option, url_option
from anabranch.cli.shared.output import write_json
from anabranch.cli.shared.watching import watchable
from anabranch.core import names

_roles = click.option(
    "--admin-role", "roles", multiple=True, metavar="ROLE", help="May be repeated."
)
_clusters = click.option(
    "--allowed-cluster",
    "clusters",
    multiple=True,
    metavar="NAME",
    help="May be repeated; the node's own cluster if left.",
)


@click.group(epilog="Example: anabranch tenants create acme")
def tenants() -> None:
    """Tenants: the first part of the names of namespaces and topics."""


@tenants.command("list", epilog="Example: anabranch tenants list --json")
@url_option
@json_option
@watchable
def list_(url: str, as_json: bool) -> None:
    """List all tenants."""
    found = sorted(connect(url).tenants.get_tenants())
    if as_json:
        write_json(found)
    else:
        click.echo("".join(f"{name}\n" for name in found), nl=False)


@tenants.command(epilog="Example: anabranch tenants show acme")
@click.argument("tenant")
@url_option
@json_option
@watchable
def show(tenant: str, url: str, as_json: bool) -> None:
    """Show the roles and clusters of TENANT.

    Its roles administer it if nodes have authorization enabled. Clusters are only kept and shown.
    """
    found = connect(url).tenants.get_tenant_info(tenant)
    if as_json:
        write_json(found)
        return
    click.echo(f"admin roles: {', '.join(found.admin_roles) or '-'}")
    click.echo(f"allowed clusters: {', '.join(found.allowed_clusters)}")


@tenants.command(epilog="Example: anabranch tenants create acme --admin-role ada")
@click.argument("tenant")
@_roles
@_clusters
@url_option
def create(tenant: str, roles: tuple[str, ...], clusters: tuple[str, ...], url: str) -> None:
    """Create TENANT."""
    names.tenant(tenant)  # before anything is asked
    known = connect(url).tenants
    known.create_tenant(tenant, clusters or known.get_clusters(), roles)
    click.echo(f"tenant {tenant} is created")


@tenants.command(epilog="Example: anabranch tenants update acme --admin-role ada --admin-role bob")
@click.argument("tenant")
@_roles
@_clusters
@url_option
def update(tenant: str, roles: tuple[str, ...], clusters: tuple[str, ...], url: str) -> None:
    """Replace the roles and clusters of TENANT by those given."""
    known = connect(url).tenants
    known.update_tenant(tenant, clusters or known.get_clusters(), roles)
    click.echo(f"tenant {tenant} is updated")


@tenants.command(epilog="Example: anabranch tenants delete acme")
@click.argument("tenant")
@url_option
def delete(tenant: str, url: str) -> None:
    """Delete TENANT, which must have no namespaces left."""
    connect(url).tenants.delete_tenant(tenant)
    click.echo(f"tenant {tenant} is deleted")
