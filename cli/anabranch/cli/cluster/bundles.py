"""`anabranch bundles`: the owners of the parts of a namespace's ring, and moves by hand."""

from __future__ import annotations

import click

from anabranch.cli.cluster.namespaces import split_in_words
from anabranch.cli.shared.api import connect, json_option, url_option
from anabranch.cli.shared.output import table, write_json
from anabranch.cli.shared.watching import watchable

_LIST = "list"
_ALGORITHMS = (
    "range_equally_divide",
    "topic_count_equally_divide",
    "flow_or_qps_equally_divide",
)


class _ListByDefault(click.Group):
    """`bundles NAMESPACE` is `bundles list NAMESPACE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [_LIST, *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ListByDefault, epilog="Example: anabranch bundles acme/shop")
def bundles() -> None:
    """Bundles: ranges of the ring that a namespace's topics fall into, each with one owner.

    NAMESPACE is tenant/name, BUNDLE a range as `anabranch bundles NAMESPACE` lists it.
    """


@bundles.command(_LIST, epilog="Example: anabranch bundles list public/default --watch")
@click.argument("namespace", default="public/default")
@url_option
@json_option
@watchable
def list_(namespace: str, url: str, as_json: bool) -> None:
    """List the bundles of NAMESPACE (public/default if left out)."""
    found = connect(url).bundles.get_ownership(namespace)
    if as_json:
        write_json(found)
        return
    rows = [
        (item.bundle, item.state, item.broker or "-", str(item.version)) for item in found.bundles
    ]
    table(("BUNDLE", "STATE", "BROKER", "VERSION"), rows)


@bundles.command(epilog="Example: anabranch bundles unload acme/shop 0x80000000_0xffffffff")
@click.argument("namespace")
@click.argument("bundle")
@url_option
def unload(namespace: str, bundle: str, url: str) -> None:
    """Take BUNDLE of NAMESPACE from its owner; the next look-up assigns it."""
    connect(url).bundles.unload_bundle(namespace, bundle)
    click.echo(f"bundle {bundle} of {namespace} is unloaded")


@bundles.command(
    epilog="Example: anabranch bundles transfer acme/shop 0x80000000_0xffffffff node-2:8080"
)
@click.argument("namespace")
@click.argument("bundle")
@click.argument("broker")
@url_option
def transfer(namespace: str, bundle: str, broker: str, url: str) -> None:
    """Give BUNDLE of NAMESPACE to BROKER, host:port, which must serve."""
    connect(url).bundles.unload_bundle(namespace, bundle, broker)
    click.echo(f"bundle {bundle} of {namespace} belongs to {broker}")


@bundles.command(epilog="Example: anabranch bundles split acme/shop HOT")
@click.argument("namespace")
@click.argument("bundle")
@click.option(
    "--at",
    "positions",
    type=int,
    multiple=True,
    metavar="POSITION",
    help="Position to cut at, on the ring of 32 bits; may be repeated.",
)
@click.option(
    "--algorithm",
    type=click.Choice(_ALGORITHMS),
    default=_ALGORITHMS[0],
    show_default=True,
    help="In halves; between the scalable topics in the middle; or wherever their traffic would "
    "be more than one bundle may have. Not with --at.",
)
@click.option("--unload", is_flag=True, help="Take the parts from their owner, too.")
@url_option
def split(
    namespace: str,
    bundle: str,
    positions: tuple[int, ...],
    algorithm: str,
    unload: bool,
    url: str,
) -> None:
    """Divide BUNDLE of NAMESPACE; its owner keeps the parts.

    LARGEST is the one with the most scalable topics, HOT the one whose scalable topics have the
    most traffic.
    """
    admin = connect(url)
    before = admin.bundles.get_bundles(namespace).boundaries
    chosen = "" if positions else algorithm
    admin.bundles.split_bundle(namespace, bundle, positions, algorithm=chosen, unload=unload)
    click.echo(split_in_words(admin, namespace, bundle, before))
