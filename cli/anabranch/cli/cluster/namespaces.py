"""`anabranch namespaces`: the groups of topics, and the division of their bundles."""

from __future__ import annotations

import itertools
from typing import Final

import click

from anabranch.admin import Admin
from anabranch.cli.shared.api import connect, json_option, url_option
from anabranch.cli.shared.output import write_json
from anabranch.cli.shared.watching import watchable
from anabranch.cli.topics.words import count_of

_TOPICS: Final = "maxTopicsPerNamespace"
_SUBSCRIPTIONS: Final = "maxSubscriptionsPerTopic"
_CONSUMERS: Final = "maxConsumersPerSubscription"
_LIMITS: Final = (_TOPICS, _SUBSCRIPTIONS, _CONSUMERS)


@click.group(epilog="Example: anabranch namespaces create acme/shop --bundles 2")
def namespaces() -> None:
    """Namespaces, and their bundles: ranges of the ring that topics' names fall into.

    NAMESPACE is tenant/name. A bundle has one owner; `anabranch bundles` lists them.
    """


@namespaces.command("list", epilog="Example: anabranch namespaces list acme")
@click.argument("tenant", default="public")
@url_option
@json_option
@watchable
def list_(tenant: str, url: str, as_json: bool) -> None:
    """List the namespaces of TENANT (public if left out)."""
    found = sorted(connect(url).namespaces.get_namespaces(tenant))
    if as_json:
        write_json(found)
    else:
        click.echo("".join(f"{name}\n" for name in found), nl=False)


@namespaces.command(epilog="Example: anabranch namespaces show acme/shop")
@click.argument("namespace")
@url_option
@json_option
@watchable
def show(namespace: str, url: str, as_json: bool) -> None:
    """Show the policies of NAMESPACE."""
    found = connect(url).namespaces.get_policies(namespace)
    if as_json:
        write_json(found)
        return
    click.echo(f"bundles: {found.bundles.num_bundles}, {', '.join(found.bundles.boundaries)}")
    click.echo(f"clusters: {', '.join(found.replication_clusters)}")
    for name, limit in (
        (_TOPICS, found.max_topics_per_namespace),
        (_SUBSCRIPTIONS, found.max_subscriptions_per_topic),
        (_CONSUMERS, found.max_consumers_per_subscription),
    ):
        if limit is not None:
            click.echo(f"{name}: {limit or 'any number'}")


@namespaces.command(epilog="Example: anabranch namespaces create acme/shop --bundles 2")
@click.argument("namespace")
@click.option(
    "--bundles",
    type=click.IntRange(1),
    help="Number of them, of equal size.  [setting: defaultNumberOfNamespaceBundles]",
)
@url_option
def create(namespace: str, bundles: int | None, url: str) -> None:
    """Create NAMESPACE; its tenant must be there."""
    connect(url).namespaces.create_namespace(namespace, bundles)
    click.echo(f"namespace {namespace} is created")


@namespaces.command(epilog="Example: anabranch namespaces delete acme/shop")
@click.argument("namespace")
@url_option
def delete(namespace: str, url: str) -> None:
    """Delete NAMESPACE, which must have no scalable topics left."""
    connect(url).namespaces.delete_namespace(namespace)
    click.echo(f"namespace {namespace} is deleted")


@namespaces.command(
    "anti-affinity", epilog="Example: anabranch namespaces anti-affinity acme/shop apart"
)
@click.argument("namespace")
@click.argument("group", required=False)
@click.option("--remove", is_flag=True, help="Take it out of its group.")
@url_option
def anti_affinity(namespace: str, group: str | None, remove: bool, url: str) -> None:
    """Put NAMESPACE into the anti-affinity GROUP, or show which one it is in.

    Bundles of a group's namespaces keep apart: on other brokers, in other failure domains
    (`anabranch domains`), as far as there are any. Bundles that are owned stay until they move.
    """
    if group is not None and remove:
        raise click.UsageError("--remove is for no group: leave GROUP out")
    admin = connect(url)
    if remove:
        admin.namespaces.remove_anti_affinity_group(namespace)
    elif group is not None:
        admin.namespaces.set_anti_affinity_group(namespace, group)
    found = group or "" if group or remove else admin.namespaces.get_anti_affinity_group(namespace)
    click.echo(f"{namespace} is in {f'anti-affinity group {found}' if found else 'no group'}")


@namespaces.command(epilog="Example: anabranch namespaces limit acme/shop maxTopicsPerNamespace 50")
@click.argument("namespace")
@click.argument("name", metavar="NAME", type=click.Choice(_LIMITS))
@click.argument("number", type=click.IntRange(0), required=False)
@click.option("--remove", is_flag=True, help="Let the cluster's setting count again.")
@url_option
def limit(namespace: str, name: str, number: int | None, remove: bool, url: str) -> None:
    """Let NAMESPACE have NUMBER of something, whatever the cluster's setting is; 0: any number.

    NAME is maxTopicsPerNamespace, maxSubscriptionsPerTopic or maxConsumersPerSubscription. Nothing
    is taken from a namespace that has more already. `anabranch namespaces show` has its limits.
    """
    if (number is not None) == remove:
        raise click.UsageError("give either a NUMBER or --remove")
    of = connect(url).namespaces
    set_, remove_ = {
        _TOPICS: (of.set_max_topics_per_namespace, of.remove_max_topics_per_namespace),
        _SUBSCRIPTIONS: (of.set_max_subscriptions_per_topic, of.remove_max_subscriptions_per_topic),
        _CONSUMERS: (
            of.set_max_consumers_per_subscription,
            of.remove_max_consumers_per_subscription,
        ),
    }[name]
    if number is None:
        remove_(namespace)
        click.echo(f"{name} of {namespace} is the cluster's setting")
    else:
        set_(namespace, number)
        click.echo(f"{name} of {namespace} is {number or 'any number'}")


@namespaces.command(
    epilog="Example: anabranch namespaces unload acme/shop 0x80000000_0xffffffff --to node-2:8080"
)
@click.argument("namespace")
@click.argument("bundle", required=False)
@click.option("--to", metavar="HOST:PORT", help="The broker that shall own the bundle next.")
@url_option
def unload(namespace: str, bundle: str | None, to: str | None, url: str) -> None:
    """Take a bundle of NAMESPACE from its owner, or all of them.

    BUNDLE is a range, as `anabranch bundles` has it. The next look-up of one of its topics gives it
    to any broker, or to the one named.
    """
    admin = connect(url)
    if bundle is None:
        if to:
            raise click.UsageError("--to is for one bundle: name it")
        admin.namespaces.unload(namespace)
        click.echo(f"all bundles of {namespace} are unloaded")
        return
    admin.bundles.unload_bundle(namespace, bundle, to or "")
    done = f"belongs to {to}" if to else "is unloaded"
    click.echo(f"bundle {bundle} of {namespace} {done}")


@namespaces.command(
    epilog="Example: anabranch namespaces split acme/shop 0x80000000_0xffffffff --at 3221225472"
)
@click.argument("namespace")
@click.argument("bundle")
@click.option(
    "--at",
    "positions",
    type=int,
    multiple=True,
    metavar="POSITION",
    help="Position to cut at, on the ring of 32 bits; may be repeated. In halves if left.",
)
@click.option("--unload", is_flag=True, help="Take the parts from their owner, too.")
@url_option
def split(namespace: str, bundle: str, positions: tuple[int, ...], unload: bool, url: str) -> None:
    """Divide a bundle of NAMESPACE; its owner keeps the parts.

    BUNDLE is a range, as `anabranch bundles` has it.
    """
    admin = connect(url)
    before = admin.bundles.get_bundles(namespace).boundaries
    admin.bundles.split_bundle(namespace, bundle, positions, unload=unload)
    click.echo(split_in_words(admin, namespace, bundle, before))


def split_in_words(admin: Admin, namespace: str, bundle: str, before: list[str]) -> str:
    """Names the parts that a bundle was split into; `before`: the namespace's former boundaries."""
    edges = admin.bundles.get_bundles(namespace).boundaries
    if "_" not in bundle:  # a word that stands for a bundle: new edges lie in that
        new = [at for at, edge in enumerate(edges) if edge not in before]
        if not new:
            return f"bundle {bundle} of {namespace} is split"
        bundle = f"{edges[new[0] - 1]}_{edges[new[-1] + 1]}"
    lower, _, upper = bundle.partition("_")
    inside = [edge for edge in edges if int(lower, 16) <= int(edge, 16) <= int(upper, 16)]
    parts = [f"{one}_{other}" for one, other in itertools.pairwise(inside)]
    return f"bundle {bundle} is split into {count_of(len(parts), 'part')}: {', '.join(parts)}"
