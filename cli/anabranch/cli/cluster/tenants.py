"""`anabranch tenants` and `permissions`: owners of namespaces, and roles' rights on topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from anabranch.admin import Admin, TenantInfo
from anabranch.cli.shared.api import answers, changes, lines, rows
from anabranch.cli.shared.command import CommandGroup
from anabranch.core import names

_SLASHES_OF_A_TOPIC: Final = 2
_tenant = click.argument("tenant")
_role = click.argument("role")
_target = click.argument("target")
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


@click.group(cls=CommandGroup)
def tenants() -> None:
    """Tenants: the first part of the names of namespaces and topics.

    Example: anabranch tenants create acme
    """


@tenants.command("list")
@answers(lines)
def list_tenants(admin: Admin) -> list[str]:
    """List all tenants.

    Example: anabranch tenants list --json
    """
    return sorted(admin.tenants.get_tenants())


def _tell_tenant(found: TenantInfo) -> None:
    click.echo(f"admin roles: {', '.join(found.admin_roles) or '-'}")
    click.echo(f"allowed clusters: {', '.join(found.allowed_clusters)}")


@tenants.command("show")
@_tenant
@answers(_tell_tenant)
def show_tenant(admin: Admin, tenant: str) -> TenantInfo:
    """Show the roles and clusters of TENANT.

    Its roles administer it if nodes have authorization enabled. Clusters are only kept and shown.

    Example: anabranch tenants show acme
    """
    return admin.tenants.get_tenant_info(tenant)


@tenants.command("create")
@_tenant
@_roles
@_clusters
@changes
def create_tenant(admin: Admin, tenant: str, roles: Sequence[str], clusters: Sequence[str]) -> str:
    """Create TENANT.

    Example: anabranch tenants create acme --admin-role ada
    """
    names.tenant(tenant)  # before anything is asked
    admin.tenants.create_tenant(tenant, clusters or admin.tenants.get_clusters(), roles)
    return f"tenant {tenant} is created"


@tenants.command("update")
@_tenant
@_roles
@_clusters
@changes
def update_tenant(admin: Admin, tenant: str, roles: Sequence[str], clusters: Sequence[str]) -> str:
    """Replace the roles and clusters of TENANT by those given.

    Example: anabranch tenants update acme --admin-role ada --admin-role bob
    """
    admin.tenants.update_tenant(tenant, clusters or admin.tenants.get_clusters(), roles)
    return f"tenant {tenant} is updated"


@tenants.command("delete")
@_tenant
@changes
def delete_tenant(admin: Admin, tenant: str) -> str:
    """Delete TENANT, which must have no namespaces left.

    Example: anabranch tenants delete acme
    """
    admin.tenants.delete_tenant(tenant)
    return f"tenant {tenant} is deleted"


# --- permissions ------------------------------------------------------------------------


@click.group(cls=CommandGroup)
def permissions() -> None:
    """Roles' rights: produce, consume, scale, view.

    TARGET is a namespace, tenant/namespace, and means all its topics, or one topic,
    tenant/namespace/topic. Rights count if nodes have authorization enabled.

    Example: anabranch permissions grant acme/shop ada produce consume
    """


@permissions.command("list")
@_target
@answers(rows(("ROLE", "ACTIONS"), lambda pair: (pair[0], ", ".join(pair[1]))))
def list_permissions(admin: Admin, target: str) -> dict[str, list[str]]:
    """List roles' rights on TARGET; for a topic, its namespace's too.

    Example: anabranch permissions list acme/shop
    """
    name, is_topic = _named(target)
    asked = admin.scalable_topics if is_topic else admin.namespaces
    return dict(sorted(asked.get_permissions(name).items()))


@permissions.command("grant")
@_target
@_role
@click.argument("actions", nargs=-1, required=True, metavar="ACTION...")
@changes
def grant(admin: Admin, target: str, role: str, actions: Sequence[str]) -> str:
    """Let ROLE do these ACTIONs, and no others, with TARGET.

    Example: anabranch permissions grant acme/shop/orders ada consume
    """
    name, is_topic = _named(target)
    if is_topic:
        admin.scalable_topics.grant_permission(name, role, actions)
    else:
        admin.namespaces.grant_permission_on_namespace(name, role, actions)
    return f"{role} may {', '.join(sorted(set(actions)))} on {name}"


@permissions.command("revoke")
@_target
@_role
@changes
def revoke(admin: Admin, target: str, role: str) -> str:
    """Take away the grants of ROLE on TARGET itself.

    Example: anabranch permissions revoke acme/shop ada
    """
    name, is_topic = _named(target)
    if is_topic:
        admin.scalable_topics.revoke_permissions(name, role)
    else:
        admin.namespaces.revoke_permissions_on_namespace(name, role)
    return f"nothing is granted to {role} on {name} itself any more"


def _named(target: str) -> tuple[str, bool]:
    """The bare name, and whether it is a topic's. Raises InvalidInputError."""
    full = target.startswith(f"{names.SCALABLE_DOMAIN}://")
    if full or target.count("/") == _SLASHES_OF_A_TOPIC:
        return names.parse_scalable_topic(target), True
    return names.parse_namespace(target), False
