"""`anabranch namespaces` and `bundles`: groups of topics, and the division of their ring."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import click

from anabranch.admin import Admin, NamespaceOwnership, Policies
from anabranch.cli.shared.api import answers, changes, lines, rows
from anabranch.cli.shared.command import CommandGroup
from anabranch.cli.topics.words import count_of

_LIMITS: Final = (
    "maxTopicsPerNamespace",
    "maxSubscriptionsPerTopic",
    "maxConsumersPerSubscription",
)
_LIST: Final = "list"
_ALGORITHMS: Final = (
    "range_equally_divide",
    "topic_count_equally_divide",
    "flow_or_qps_equally_divide",
)
_namespace = click.argument("namespace")
_bundle = click.argument("bundle")


@click.group(cls=CommandGroup)
def namespaces() -> None:
    """Namespaces, and their bundles: ranges of the ring that topics' names fall into.

    NAMESPACE is tenant/name. A bundle has one owner; `anabranch bundles` lists them.

    Example: anabranch namespaces create acme/shop --bundles 2
    """


@namespaces.command("list")
@click.argument("tenant", default="public")
@answers(lines)
def list_namespaces(admin: Admin, tenant: str) -> list[str]:
    """List the namespaces of TENANT (public if left out).

    Example: anabranch namespaces list acme
    """
    return sorted(admin.namespaces.get_namespaces(tenant))


def _tell_policies(found: Policies) -> None:
    click.echo(f"bundles: {found.bundles.num_bundles}, {', '.join(found.bundles.boundaries)}")
    click.echo(f"clusters: {', '.join(found.replication_clusters)}")
    limits = (
        found.max_topics_per_namespace,
        found.max_subscriptions_per_topic,
        found.max_consumers_per_subscription,
    )
    for name, limit in zip(_LIMITS, limits, strict=True):
        if limit is not None:
            click.echo(f"{name}: {limit or 'any number'}")


@namespaces.command("show")
@_namespace
@answers(_tell_policies)
def show_namespace(admin: Admin, namespace: str) -> Policies:
    """Show the policies of NAMESPACE.

    Example: anabranch namespaces show acme/shop
    """
    return admin.namespaces.get_policies(namespace)


@namespaces.command("create")
@_namespace
@click.option(
    "--bundles",
    type=click.IntRange(1),
    help="Number of them, of equal size.  [setting: defaultNumberOfNamespaceBundles]",
)
@changes
def create_namespace(admin: Admin, namespace: str, bundles: int | None) -> str:
    """Create NAMESPACE; its tenant must be there.

    Example: anabranch namespaces create acme/shop --bundles 2
    """
    admin.namespaces.create_namespace(namespace, bundles)
    return f"namespace {namespace} is created"


@namespaces.command("delete")
@_namespace
@changes
def delete_namespace(admin: Admin, namespace: str) -> str:
    """Delete NAMESPACE, which must have no scalable topics left.

    Example: anabranch namespaces delete acme/shop
    """
    admin.namespaces.delete_namespace(namespace)
    return f"namespace {namespace} is deleted"


@namespaces.command("anti-affinity")
@_namespace
@click.argument("group", required=False)
@click.option("--remove", is_flag=True, help="Take it out of its group.")
@changes
def anti_affinity(admin: Admin, namespace: str, group: str | None, remove: bool) -> str:
    """Put NAMESPACE into the anti-affinity GROUP, or show which one it is in.

    Bundles of a group's namespaces keep apart: on other brokers, in other failure domains
    (`anabranch domains`), as far as there are any. Bundles that are owned stay until they move.

    Example: anabranch namespaces anti-affinity acme/shop apart
    """
    if group is not None and remove:
        raise click.UsageError("--remove is for no group: leave GROUP out")
    if remove:
        admin.namespaces.remove_anti_affinity_group(namespace)
    elif group is not None:
        admin.namespaces.set_anti_affinity_group(namespace, group)
    found = group or "" if group or remove else admin.namespaces.get_anti_affinity_group(namespace)
    return f"{namespace} is in {f'anti-affinity group {found}' if found else 'no group'}"


@namespaces.command("limit")
@_namespace
@click.argument("name", metavar="NAME", type=click.Choice(_LIMITS))
@click.argument("number", type=click.IntRange(0), required=False)
@click.option("--remove", is_flag=True, help="Let the cluster's setting count again.")
@changes
def limit_namespace(
    admin: Admin, namespace: str, name: str, number: int | None, remove: bool
) -> str:
    """Let NAMESPACE have NUMBER of something, whatever the cluster's setting is; 0: any number.

    NAME is maxTopicsPerNamespace, maxSubscriptionsPerTopic or maxConsumersPerSubscription. Nothing
    is taken from a namespace that has more already. `anabranch namespaces show` has its limits.

    Example: anabranch namespaces limit acme/shop maxTopicsPerNamespace 50
    """
    if (number is not None) == remove:
        raise click.UsageError("give either a NUMBER or --remove")
    of = admin.namespaces
    set_, remove_ = (
        (of.set_max_topics_per_namespace, of.remove_max_topics_per_namespace),
        (of.set_max_subscriptions_per_topic, of.remove_max_subscriptions_per_topic),
        (of.set_max_consumers_per_subscription, of.remove_max_consumers_per_subscription),
    )[_LIMITS.index(name)]
    if number is None:
        remove_(namespace)
        return f"{name} of {namespace} is the cluster's setting"
    set_(namespace, number)
    return f"{name} of {namespace} is {number or 'any number'}"


@namespaces.command("unload")
@_namespace
@changes
def unload_namespace(admin: Admin, namespace: str) -> str:
    """Take all bundles of NAMESPACE from their owners.

    The next look-up of one of their topics assigns them; `anabranch bundles` unloads a single one.

    Example: anabranch namespaces unload acme/shop
    """
    admin.namespaces.unload(namespace)
    return f"all bundles of {namespace} are unloaded"


# --- bundles ----------------------------------------------------------------------------


class _ListByDefault(CommandGroup):
    """`bundles NAMESPACE` is `bundles list NAMESPACE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [_LIST, *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ListByDefault)
def bundles() -> None:
    """Bundles: ranges of the ring that a namespace's topics fall into, each with one owner.

    NAMESPACE is tenant/name, BUNDLE a range as `anabranch bundles NAMESPACE` lists it.

    Example: anabranch bundles acme/shop
    """


def _tell_bundles(found: NamespaceOwnership) -> None:
    head = ("BUNDLE", "STATE", "BROKER", "VERSION")
    rows(head, lambda each: (each.bundle, each.state, each.broker or "-", str(each.version)))(
        found.bundles
    )


@bundles.command(_LIST)
@click.argument("namespace", default="public/default")
@answers(_tell_bundles)
def list_bundles(admin: Admin, namespace: str) -> NamespaceOwnership:
    """List the bundles of NAMESPACE (public/default if left out).

    Example: anabranch bundles list public/default
    """
    return admin.bundles.get_ownership(namespace)


@bundles.command("unload")
@_namespace
@_bundle
@changes
def unload_bundle(admin: Admin, namespace: str, bundle: str) -> str:
    """Take BUNDLE of NAMESPACE from its owner; the next look-up assigns it.

    Example: anabranch bundles unload acme/shop 0x80000000_0xffffffff
    """
    admin.bundles.unload_bundle(namespace, bundle)
    return f"bundle {bundle} of {namespace} is unloaded"


@bundles.command("transfer")
@_namespace
@_bundle
@click.argument("broker")
@changes
def transfer(admin: Admin, namespace: str, bundle: str, broker: str) -> str:
    """Give BUNDLE of NAMESPACE to BROKER, host:port, which must serve.

    Example: anabranch bundles transfer acme/shop 0x80000000_0xffffffff node-2:8080
    """
    admin.bundles.unload_bundle(namespace, bundle, broker)
    return f"bundle {bundle} of {namespace} belongs to {broker}"


@bundles.command("split")
@_namespace
@_bundle
@click.option(
    "--at",
    "positions",
    type=int,
    multiple=True,
    metavar="POSITION",
    help="Position to cut at, on the ring of 32 bits; may be repeated. In halves if left.",
)
@click.option(
    "--algorithm",
    type=click.Choice(_ALGORITHMS),
    default=_ALGORITHMS[0],
    help="In halves; between the scalable topics in the middle; or wherever their traffic would "
    "be more than one bundle may have. Not with --at.",
)
@click.option("--unload", is_flag=True, help="Take the parts from their owner, too.")
@changes
def split(
    admin: Admin,
    namespace: str,
    bundle: str,
    positions: Sequence[int],
    algorithm: str,
    unload: bool,
) -> str:
    """Divide BUNDLE of NAMESPACE; its owner keeps the parts.

    LARGEST is the one with the most scalable topics, HOT the one whose scalable topics have the
    most traffic.

    Example: anabranch bundles split acme/shop HOT
    """
    if positions:
        algorithm = ""
    before = admin.bundles.get_bundles(namespace).boundaries
    admin.bundles.split_bundle(namespace, bundle, positions, algorithm=algorithm, unload=unload)
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
