"""Questions to a running cluster over HTTP: `lookup`, `brokers`."""

from __future__ import annotations

import click
import msgspec

from anabranch.admin import NotFoundError
from anabranch.cli.shared.api import connect, json_option, refused, url_option
from anabranch.cli.shared.output import table, write_json
from anabranch.cli.shared.watching import watchable
from anabranch.core.names import SCALABLE_DOMAIN, full_name, parse_scalable_topic, parse_topic


@click.command(epilog="Example: anabranch lookup public/default/orders --url http://node-1:8080")
@click.argument("topic")
@url_option
@json_option
def lookup(topic: str, url: str, as_json: bool) -> None:
    """Say which broker serves TOPIC ([domain://]tenant/namespace/name).

    A name without a domain is a scalable topic, topic://, as everywhere. The answer is then its
    controller, or that there is no such topic. Other domains have no topics on record, so the
    answer is the owner of the bundle that the name falls into. The command has a free bundle
    assigned to a broker.
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


@click.command(epilog="Example: anabranch brokers --watch")
@url_option
@json_option
@watchable
def brokers(url: str, as_json: bool) -> None:
    """List the brokers that serve now, with how many bundles each owns, and who leads."""
    admin = connect(url)
    status = admin.brokers.get_status()
    found = [
        {
            "brokerId": broker,
            "bundles": len(admin.brokers.get_owned_namespaces(status.cluster_name, broker)),
            "leader": broker == status.leader,
        }
        for broker in admin.brokers.get_active_brokers()
    ]
    if as_json:
        write_json({"clusterName": status.cluster_name, "brokers": found})
        return
    rows = [
        (str(item["brokerId"]), str(item["bundles"]), "leader" if item["leader"] else "")
        for item in found
    ]
    table(("BROKER", "BUNDLES", ""), rows)
