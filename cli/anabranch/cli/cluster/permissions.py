"""`anabranch permissions`: roles' rights on a namespace's topics, or on one topic."""

from __future__ import annotations

import click

from anabranch.cli.shared.api import connect, json_option, url_option
from anabranch.cli.shared.output import table, write_json
from anabranch.cli.shared.watching import watchable
from anabranch.core.names import SCALABLE_DOMAIN, parse_namespace, parse_scalable_topic

_SLASHES_OF_A_TOPIC = 2


@click.group(epilog="Example: anabranch permissions grant acme/shop ada produce consume")
def permissions() -> None:
    """Roles' rights: produce, consume, scale, view.

    TARGET is a namespace, tenant/namespace, and means all its topics, or one topic,
    tenant/namespace/topic. Rights count if nodes have authorization enabled.
    """


@permissions.command("list", epilog="Example: anabranch permissions list acme/shop")
@click.argument("target")
@url_option
@json_option
@watchable
def list_(target: str, url: str, as_json: bool) -> None:
    """List roles' rights on TARGET; for a topic, its namespace's too."""
    admin, (name, is_topic) = connect(url), _named(target)
    if is_topic:
        found = admin.scalable_topics.get_permissions(name)
    else:
        found = admin.namespaces.get_permissions(name)
    if as_json:
        write_json(found)
        return
    table(("ROLE", "ACTIONS"), [(role, ", ".join(found[role])) for role in sorted(found)])


@permissions.command(epilog="Example: anabranch permissions grant acme/shop/orders ada consume")
@click.argument("target")
@click.argument("role")
@click.argument("actions", nargs=-1, required=True, metavar="ACTION...")
@url_option
def grant(target: str, role: str, actions: tuple[str, ...], url: str) -> None:
    """Let ROLE do these ACTIONs, and no others, with TARGET."""
    admin, (name, is_topic) = connect(url), _named(target)
    if is_topic:
        admin.scalable_topics.grant_permission(name, role, actions)
    else:
        admin.namespaces.grant_permission_on_namespace(name, role, actions)
    click.echo(f"{role} may {', '.join(sorted(set(actions)))} on {name}")


@permissions.command(epilog="Example: anabranch permissions revoke acme/shop ada")
@click.argument("target")
@click.argument("role")
@url_option
def revoke(target: str, role: str, url: str) -> None:
    """Take away the grants of ROLE on TARGET itself."""
    admin, (name, is_topic) = connect(url), _named(target)
    if is_topic:
        admin.scalable_topics.revoke_permissions(name, role)
    else:
        admin.namespaces.revoke_permissions_on_namespace(name, role)
    click.echo(f"nothing is granted to {role} on {name} itself any more")


def _named(target: str) -> tuple[str, bool]:
    """The bare name, and whether it is a topic's. Raises InvalidInputError."""
    full = target.startswith(f"{SCALABLE_DOMAIN}://")
    if full or target.count("/") == _SLASHES_OF_A_TOPIC:
        return parse_scalable_topic(target), True
    return parse_namespace(target), False
